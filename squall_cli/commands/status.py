"""`squall status`: one topology at this moment: its state, its components' counters, its workers, what went wrong."""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import click

from squall.status import ComponentStatus
from squall_cli import cluster_client
from squall_cli.completion import name_argument
from squall_cli.component_table import Line, plain, rows_of, table_without_rates
from squall_cli.figures import cropped_inside, duration, moment, plural
from squall_cli.listing import STYLES, waits_for_slots
from squall_cli.next_command import to_type
from squall_cli.placed import fewer_workers, has_fewer_workers, no_workers, on_trial
from squall_cli.said import latest, on_one_line, own_paths
from squall_cli.screen import is_terminal, painted, styles_of
from squall_cli.tables import Cell, Column, Table, harmless, show, table

HELP = """Show state, counters and workers of a topology.

Counters are totals since it was submitted; latencies are from the first emission to the ack.

\b
Examples:
  squall status word-count
  squall status word-count --json | jq .components.count.executed
"""

#: In a file or a pipe a table is as wide as it likes.
NO_LIMIT: Final = 1000
#: Of what was said about its workers, the latest; --json has all that is kept.
MOST_NOTES: Final = 3
#: Lines that one of them gets on a screen; it may end with much that a worker wrote.
MOST_LINES: Final = 10
WORKER_COLUMNS: Final = (
    Column("WORKER"),
    Column("HOST", elastic=True),
    Column("SLOT", number=True, rank=2),
    Column("STATE"),
    Column("RESTARTS", number=True, rank=3),
    Column("TASKS", elastic=True, rank=1),
)


@click.command(help=HELP)
@name_argument
@cluster_client.options
def status(name: str, nimbus: str | None, config: str | None, as_json: bool) -> None:
    client = cluster_client.connect(nimbus, config)
    from squall.http_client import at

    supervisors: Sequence[Mapping[str, Any]] = ()
    with cluster_client.about(client, name):
        found = client.get(at("topologies", name))
        if not as_json and (has_fewer_workers(found) or waits_for_slots(found, len(found["workers"]))):
            supervisors = client.get("supervisors")["supervisors"]
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    out = sys.stdout
    width = shutil.get_terminal_size().columns if is_terminal(out) else NO_LIMIT
    for line in head(found, width):
        click.echo(painted(line, styles_of(out)))
    if found["workers"]:
        click.echo()
        show(worker_table(found["workers"]), out)
    rest = list(trouble(found, supervisors, width))
    if rest:
        click.echo()
    for line in rest:
        click.echo(painted(line, styles_of(out)))


def component_of(values: Mapping[str, Any]) -> ComponentStatus:
    """A component's status out of an answer; what a newer Nimbus says beyond it is left."""
    known = ComponentStatus.__dataclass_fields__
    return ComponentStatus(**{name: value for name, value in values.items() if name in known})


def head(found: Mapping[str, Any], width: int) -> list[Line]:
    """Which topology, how it is, and its components."""
    state = str(found["state"])
    facts = how_long(found)
    workers = [worker for worker in found["workers"] if worker["state"] != "STOPPED"]
    if workers:
        hosts = len({worker["host"] for worker in workers if worker["host"]})
        facts += f", {plural(len(workers), 'worker')} on {plural(hosts, 'host')}"
    title: Line = (
        (harmless(str(found["name"])), "head"),
        ("  ", ""),
        (state, STYLES.get(state, "").replace("dim", "")),
        (facts, ""),
    )
    identity = f"  ({found.get('id')})"
    if len(plain(title)) + len(identity) <= width:
        title = (*title, (identity, "dim"))
    lines: list[Line] = [title]
    if found.get("error"):
        lines += [((harmless(line), "bad"),) for line in own_paths(str(found["error"])).splitlines()]
    components = {harmless(name): component_of(values) for name, values in found["components"].items()}
    if components:
        lines += [(("", ""),), *table_without_rates(rows_of(components, {}), width)]
    return lines


def how_long(found: Mapping[str, Any]) -> str:
    """` for 12.3 s, submitted 28 min 05 s ago`; once, when it is in the state that it was submitted in."""
    age, stayed = found.get("uptime_secs"), found.get("state_secs")  # an older Nimbus does not say the second
    if age is None or found["state"] == "BAD":
        return ""
    if stayed is None:
        return f", submitted {duration(age)} ago"
    submitted = f", submitted {duration(age)} ago" if age - stayed >= 1.0 else ""
    return f" for {duration(max(0.0, stayed))}{submitted}"


def worker_table(workers: list[Mapping[str, Any]]) -> Table:
    """A row for each worker, host by host."""
    ordered = sorted(workers, key=lambda worker: (str(worker["host"]), int(worker["slot"])))
    return table(WORKER_COLUMNS, [worker_row(worker) for worker in ordered])


def worker_row(worker: Mapping[str, Any]) -> list[Cell]:
    state = str(worker["state"])
    restarts = int(worker["incarnation"][1])
    return [
        str(worker["worker"]),
        str(worker["host"] or "-"),  # its supervisor is gone
        str(worker["slot"]),
        (state, "" if state in ("RUNNING", "STOPPED") else "warn"),
        (str(restarts), "warn" if restarts else "dim"),
        tasks_text(worker["tasks"]),
    ]


def tasks_text(tasks: list[list[Any]]) -> str:
    """Which tasks, component by component: `count 5 6 7, split 2`."""
    of_components: dict[str, list[str]] = {}
    for task, component, _ in tasks:
        of_components.setdefault(str(component), []).append(str(task))
    return ", ".join(f"{component} {' '.join(ids)}" for component, ids in of_components.items())


def trouble(found: Mapping[str, Any], supervisors: Sequence[Mapping[str, Any]], width: int) -> Iterator[Line]:
    """Errors of the user's code, why trees failed, and what was last said about the workers."""
    name = str(found["name"])
    newest = {component_in(report): report for report in found["errors"]}
    some = False
    for component, values in found["components"].items():
        if not values["errors"]:
            continue
        some = True
        count = plural(values["errors"], "error")
        report = newest.get(component, "").splitlines()
        newest_text = own_paths(report[0].partition(": ")[2]) if report else ""
        text = f"in {component}" + (f", the newest: {newest_text}" if newest_text else "")
        yield (count, "bad"), (" ", ""), (cropped_inside(harmless(text), max(width - len(count) - 1, 40)), "")
    if some:
        yield ((f"{harmless(to_type('errors', name))} shows them.", "dim"),)
    if waits_for_slots(found, len(found["workers"])):
        yield ((f"{harmless(no_workers(supervisors))}; `squall supervisors` shows what there is.", "warn"),)
    for sentence in (fewer_workers(found, supervisors), on_trial(found)):
        if sentence:
            yield ((harmless(sentence), "warn"),)
    for component, values in found["components"].items():
        if values.get("first_failure"):
            why = own_paths(str(values["first_failure"]))
            line = f"the first tree of {component} that failed for good: {why}"
            for each in wrapped(harmless(line), width):
                yield ((each, "warn"),)
    notes = [str(note) for note in found.get("notes") or ()]
    times = dict(zip(notes, found.get("note_times") or (), strict=False))  # an older Nimbus has none
    for note in latest(notes, MOST_NOTES):
        when = f"{moment(float(times[note]))}  " if note in times else ""
        text = harmless(on_one_line(own_paths(note)).replace(f" of topology {name!r}", ""))
        first, *rest = wrapped(text, max(width - len(when), 40))
        yield (when, "dim"), (first, "")
        for each in rest:
            yield ((" " * len(when) + each, ""),)


def wrapped(text: str, width: int) -> list[str]:
    """The text on lines of at most `width` characters, at least one; a longer word, a path, stays whole."""
    found = textwrap.wrap(
        text, width, max_lines=MOST_LINES, placeholder=" …", break_long_words=False, break_on_hyphens=False
    )
    return found or [""]


def component_in(report: str) -> str:
    """Whose report that is: its text begins with `component[task] of topology ...`."""
    return report.partition("[")[0]
