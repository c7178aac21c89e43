"""`squall status`: the current state of one topology, its components' counters, its workers and its errors. `squall errors`: a
topology's error reports in full, the newest last.
"""

from __future__ import annotations

import sys
import textwrap
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import click
from msgspec.structs import asdict

from squall.api.answers import ErrorEntry, ErrorsAnswer, PreviousAnswer, TopologyAnswer, WorkerEntry
from squall.api.cluster_answers import SupervisorEntry
from squall.reports.error_reports import raised
from squall.status import ComponentStatus
from squall.values import TaskRow
from squall_cli.cluster.cluster_client import ClusterOptions, cluster_options, echo_json
from squall_cli.cluster.events import on_one_line, own_paths
from squall_cli.cluster.placed import fewer_workers, has_fewer_workers, no_workers, on_trial
from squall_cli.commands import completion
from squall_cli.commands.listing import STYLES, waits_for_slots
from squall_cli.terminal.component_table import rows_of, table_without_rates
from squall_cli.terminal.epoch_lines import epoch_lines, wait_sentences
from squall_cli.terminal.formats import columns_of, cropped_inside, duration, moment, plural, to_type
from squall_cli.terminal.lines import Line, echo, harmless, plain, width_of, write_lines
from squall_cli.terminal.load_table import (
    busy_cell,
    call_lines,
    load_lines,
    memory_lines,
    memory_text,
    restarts_cell,
)
from squall_cli.terminal.tables import TableColumn, lines_of, table_of
from topology_api.epoch_rules import memory_note
from topology_api.errors import SquallError
from topology_api.wording import nearest

if TYPE_CHECKING:
    from squall_cli.cluster.nimbus_client import NimbusClient

#: How many notes about a topology's workers are shown: the latest ones. --json has all notes that are kept.
MOST_NOTES: Final = 3
#: The most lines of a note on a screen; a note may end with a long text that a worker wrote.
MOST_LINES: Final = 10
WORKER_COLUMNS: Final[tuple[TableColumn[WorkerEntry], ...]] = (
    TableColumn("WORKER", lambda each: each.worker, elastic=True),
    TableColumn("HOST", lambda each: each.host or "-", elastic=True),  # the worker's supervisor may be gone
    TableColumn("SLOT", lambda each: str(each.slot), number=True, rank=2),
    TableColumn("STATE", lambda each: (each.state, "" if each.state in ("RUNNING", "STOPPED") else "warn")),
    TableColumn("RESTARTS", restarts_cell, number=True, rank=3),
    TableColumn("TASKS", lambda each: tasks_text(each.tasks), elastic=True, rank=1),
)
#: What a worker's process uses, for workers that report it.
PROCESS_COLUMNS: Final[tuple[TableColumn[WorkerEntry], ...]] = (
    TableColumn("PID", lambda each: "-" if each.pid is None else str(each.pid), number=True, rank=4),
    TableColumn("CPU", lambda each: busy_cell(each.cpu), number=True, rank=2),
    TableColumn("RSS", lambda each: memory_text(each.rss), number=True, rank=2),
    TableColumn(
        "THREADS", lambda each: "-" if each.threads is None else str(each.threads), number=True, rank=4
    ),
)


@click.command()
@completion.name_argument
@click.option("--tasks", is_flag=True, help="Show the load of each task, not only of each component.")
@cluster_options
def status(cluster: ClusterOptions, name: str, tasks: bool) -> None:
    """Show state, counters and workers of a topology.

    Counters are totals since the submission; latencies are from the first emission to the ack.

    \b
    Examples:
      squall status word-count
      squall status word-count --tasks
      squall status word-count --json | jq .components.count.executed
    """

    supervisors: Sequence[SupervisorEntry] = ()
    with cluster.asked(name) as client:
        found, shown = client.read_json(TopologyAnswer, "topologies", name)
        if cluster.as_json:
            echo_json(shown)
            return
        if has_fewer_workers(found) or waits_for_slots(found, len(found.workers)):
            supervisors = client.supervisors()
    width = width_of(sys.stdout)
    loads = load_lines(found.components, tasks, width, now_of(found))
    workers = worker_lines(found.workers, width)
    epochs = epoch_lines(found.epoch, found.components, width, kept_in(found))
    parts = (head(found, width), loads, workers, epochs, [*trouble(found, supervisors, width)])
    lines = [line for part in parts if part for line in ((), *part)]
    write_lines(sys.stdout, lines[1:])


def kept_in(found: TopologyAnswer) -> str:
    """Return the folder of the topology's state; "": it keeps none, or Nimbus is of an earlier release."""
    return "" if found.state_path is None else f"{found.state_path.removeprefix('file://')}/{found.name}"


def head(found: TopologyAnswer, width: int) -> list[Line]:
    """Return the lines with the topology's name and state, and the table of its components."""
    state = found.state
    facts = how_long(found)
    workers = [worker for worker in found.workers if worker.state != "STOPPED"]
    if workers:
        hosts = len({worker.host for worker in workers if worker.host})
        facts += f", {plural(len(workers), 'worker')} on {plural(hosts, 'host')}"
    title: Line = (
        (found.name, "head"),
        ("  ", ""),
        (state, STYLES.get(state, "").replace("dim", "")),
        (facts, ""),
    )
    identity = f"  ({found.id})"
    if columns_of(plain(title) + identity) <= width:
        title = (*title, (identity, "dim"))
    lines: list[Line] = [title]
    if found.error:
        lines += [((line, "bad"),) for line in own_paths(found.error).splitlines()]
    components = {harmless(name): values for name, values in found.components.items()}
    if components:
        lines += [(("", ""),), *table_without_rates(rows_of(components, {}, own_paths), width)]
    return lines


def how_long(found: TopologyAnswer) -> str:
    """Return ` for 12.3 s, submitted 28 min 05 s ago`; only the first part if the topology's state never changed."""
    if found.state == "BAD":
        return ""
    age, stayed = found.uptime_secs, found.state_secs
    submitted = f", submitted {duration(age)} ago" if stayed is None or age - stayed >= 1.0 else ""
    return submitted if stayed is None else f" for {duration(max(0.0, stayed))}{submitted}"


def worker_lines(workers: list[WorkerEntry], width: int) -> list[Line]:
    """Return a table with a row for each worker, host by host."""
    ordered = sorted(workers, key=lambda worker: (str(worker.host), worker.slot))
    known = any(worker.pid is not None for worker in workers)
    columns = (*WORKER_COLUMNS[:-1], *(PROCESS_COLUMNS if known else ()), WORKER_COLUMNS[-1])
    return lines_of(table_of(columns, ordered), width, note=True) if workers else []


def now_of(found: TopologyAnswer) -> float:
    """Return when Nimbus answered. A Nimbus of an earlier release does not say it."""
    return found.now or time.time()


def tasks_text(tasks: Sequence[TaskRow]) -> str:
    """List tasks by component: `count 5 6 7, split 2`."""
    of_components: dict[str, list[str]] = {}
    for task, component, _ in tasks:
        of_components.setdefault(str(component), []).append(str(task))
    return ", ".join(f"{component} {' '.join(ids)}" for component, ids in of_components.items())


def trouble(found: TopologyAnswer, supervisors: Sequence[SupervisorEntry], width: int) -> Iterator[Line]:
    """Yield lines about errors of the user's code, failed trees, and the latest notes about the workers."""
    newest = {report.component: report for report in found.error_reports}
    for sentence in wait_sentences(found.epoch, own_paths).values():
        yield from (((each, "bad"),) for each in wrapped(sentence, width))
    yield from call_lines(found.components, width, now_of(found), shown=own_paths)
    yield from memory_lines(found.workers, found.components)
    troubled = {name: values for name, values in found.components.items() if values.errors}
    for component, values in troubled.items():
        count = plural(values.errors, "error")
        report = newest.get(component)
        text = f"in {component}" + (
            f", the newest: {own_paths(raised(report.call, report.text))}" if report else ""
        )
        yield (count, "bad"), (" ", ""), (cropped_inside(harmless(text), max(width - len(count) - 1, 40)), "")
    if troubled:
        yield ((f"{to_type('errors', found.name)} shows them.", "dim"),)
    if found.dead_letters:
        command = f"`squall dead-letters {found.name} list` shows them"
        yield (plural(found.dead_letters, "dead letter"), "bad"), (f"; {command}.", "")
    if waits_for_slots(found, len(found.workers)):
        yield ((f"{no_workers(supervisors)}; `squall supervisors` shows what there is.", "warn"),)
    for sentence in (fewer_workers(found, supervisors), on_trial(found)):
        if sentence:
            yield ((sentence, "warn"),)
    if found.state_in_memory:
        note = harmless(memory_note(found.state_in_memory))
        yield from (((each, "warn"),) for each in wrapped(note, width))
    for component, values in found.components.items():
        if values.first_failure:
            line = f"the first tree of {component} that failed for good: {own_paths(values.first_failure)}"
            for each in wrapped(harmless(line), width):
                yield ((each, "warn"),)
    for event in found.events[-MOST_NOTES:]:
        when = f"{moment(event.time)}  " if event.time else ""
        first, *rest = wrapped(harmless(on_one_line(event)), max(width - len(when), 40))
        yield (when, "dim"), (first, "")
        for each in rest:
            yield ((" " * len(when) + each, ""),)


def wrapped(text: str, width: int) -> list[str]:
    """Wrap the text to one or more lines of at most `width` characters. A longer word, such as a path, stays whole."""
    found = textwrap.wrap(
        text, width, max_lines=MOST_LINES, placeholder=" …", break_long_words=False, break_on_hyphens=False
    )
    return found or [""]


@click.command()
@completion.name_argument
@click.option(
    "--component",
    metavar="ID",
    shell_complete=completion.components,
    help="Show only errors of this component.",
)
@click.option(
    "--previous",
    is_flag=True,
    help="Show errors and counters of the version that ended last, also of a killed topology.",
)
@cluster_options
def errors(cluster: ClusterOptions, name: str, component: str | None, previous: bool) -> None:
    """Show the errors that a topology's components reported, the newest last.

    Only the latest errors of each component are kept. The times come from the clocks of the hosts where the errors happened.
    --previous shows the version that was killed, replaced or rolled back last, with its counters.

    \b
    Examples:
      squall errors word-count
      squall errors word-count --component split
      squall errors word-count --previous
    """

    with cluster.asked(name) as client:
        if previous:
            show_previous(cluster, client, name, component)
            return
        answer, shown = client.read_json(ErrorsAnswer, "topologies", name, "errors", component=component)
        components = client.topology(name).components
    whose = name if component is None else f"{component} of {name}"
    if not cluster.answer_list(shown, answer.errors, f"{whose} has reported no errors."):
        return
    found = show_errors(answer.errors)
    for line in earlier(found, components):
        echo(line, err=True)


def show_errors(errors: Sequence[ErrorEntry]) -> list[ErrorEntry]:
    """Print errors, the newest last; return them in this order."""
    found = sorted(errors, key=lambda report: report.time)
    lines: list[Line] = []
    for report in found:
        first, *rest = harmless(own_paths(report.text)).splitlines()
        lines += [(), ((moment(report.time), "dim"), (" ", ""), (first, "bad"))]
        lines += [((line, ""),) for line in rest]
    write_lines(sys.stdout, lines[1:])
    return found


def show_previous(cluster: ClusterOptions, client: NimbusClient, name: str, component: str | None) -> None:
    """Print the errors and the counters of the version that ended last."""
    ended, shown = client.read_json(PreviousAnswer, "topologies", name, "previous")
    if cluster.as_json:
        parts = {id: each for id, each in shown["components"].items() if component in (None, id)}
        errors = [each for each in shown["errors"] if component in (None, each["component"])]
        echo_json({**shown, "components": parts, "errors": errors})
        return
    echo(heading(ended), err=True)
    chosen = [id for id in ended.components if component in (None, id)]
    if component is not None and not chosen:
        there = sorted(ended.components)
        raise SquallError(f"{ended.id} had no component {component!r}{nearest(component, there)}")
    show_errors([each for each in ended.errors if component in (None, each.component)])
    for id in chosen:
        counts = asdict(ended.components[id])
        echo(f"{id}: {', '.join(f'{what} {count:,}' for what, count in counts.items())}")


def heading(ended: PreviousAnswer) -> str:
    """Return a line that names a version that has ended."""
    why = f": {own_paths(ended.error).partition(chr(10))[0]}" if ended.error else ""
    return f"{ended.id}, {ended.how} at {moment(ended.ended)}{why}"


def earlier(found: Sequence[ErrorEntry], components: Mapping[str, ComponentStatus]) -> Iterator[str]:
    """Yield a line, with the total, for each component that had more errors than are shown."""
    shown: Counter[str] = Counter()
    for report in found:
        shown[report.component] += report.times
    for component, count in shown.items():
        total = components[component].errors if component in components else 0
        if total > count:
            yield f"{component}: the latest {count:,} of {total:,} errors; earlier ones are not kept"
