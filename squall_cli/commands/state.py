"""`squall state ACTION NAME|PATH`: what a topology has committed to the folder of its state: list, get, export.

The commands read files, of this host or of HDFS, so they work while the topology runs and when it does not. `get` with the name
of a topology asks the running task instead (`state_live`).
They import no code of the topology, except the classes of pickled keys and values, if this Python has them.
Must not know: the format of logs and snapshots.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec
from msgspec import structs

from squall_cli.cluster.cluster_client import ClusterOptions, cluster_options, echo_json
from squall_cli.commands import completion
from squall_cli.commands.state_drop import drop, named
from squall_cli.options.kinds import Whole, files
from squall_cli.options.state_path import state_place, topology_folder, webhdfs_option
from squall_cli.terminal.formats import cropped_inside, in_bytes, known_moment, plural, short, whole
from squall_cli.terminal.lines import echo, harmless
from squall_cli.terminal.tables import Cell, TableColumn, bad_when_some, show, table_of
from topology_api.errors import SquallError

if TYPE_CHECKING:
    from worker.loop.committed_state import EpochContent, KeptEpoch
    from worker.state.saved_rows import SavedRow

#: The widest value and position in a table; --json has all of them.
WIDEST: Final = 80
#: The most epochs in a table, and the most keys in an error.
MOST_EPOCHS: Final = 20
MOST_KEYS: Final = 5


@dataclass
class SavedComponent:
    """What the tasks of a component have in an epoch."""

    component: str
    kind: str = "bolt"
    tasks: int = 0
    #: Into how many key groups its keys are divided; 0: it has no keys, or an earlier release has divided them without groups.
    groups: int = 0
    keys: int = 0
    timers: int = 0
    parked: int = 0
    bytes: int = 0
    #: Of a spout: task -> position.
    positions: dict[int, Any] = field(default_factory=dict)
    damaged: int = 0

    @property
    def where(self) -> str:
        """The positions as a text."""
        texts = {task: json.dumps(position) for task, position in self.positions.items()}
        if self.tasks == 1:
            return cropped_inside("".join(texts.values()), WIDEST)
        return cropped_inside(", ".join(f"{task}: {text}" for task, text in texts.items()), WIDEST)

    def of_bolt(self, number: int) -> str:
        """Return a number that only bolts have."""
        return whole(number) if self.kind == "bolt" else ""


class StateRow(msgspec.Struct, frozen=True):
    """A row of a task."""

    component: str
    task: int
    row: SavedRow

    @property
    def shown(self) -> dict[str, Any]:
        """The row as a JSON object."""
        return {"component": self.component, "task": self.task, **structs.asdict(self.row)}

    @property
    def value(self) -> str:
        """The value as a text."""
        if self.row.kind == "timer":
            return f"due {known_moment(self.row.value)}"
        return cropped_inside(json.dumps(self.row.value, ensure_ascii=False), WIDEST)


def moments(times: Any) -> str:
    """Return a time, or the first and the last of several."""
    if isinstance(times, list) and times:
        first, last = known_moment(min(times)), known_moment(max(times))
        return first if first == last else f"{first} to {last}"
    return known_moment(times) if isinstance(times, float) else ""


EPOCHS: Final[tuple[TableColumn[KeptEpoch], ...]] = (
    TableColumn("EPOCH", lambda each: str(each.record.epoch), number=True),
    TableColumn("COMMITTED", lambda each: known_moment(each.committed)),
    TableColumn("VERSION", lambda each: each.version, elastic=True, rank=1),
    TableColumn("THEN", lambda each: "" if each.end is None else f"the topology was {each.end}"),
)
COMPONENTS: Final[tuple[TableColumn[SavedComponent], ...]] = (
    TableColumn("COMPONENT", lambda each: each.component, elastic=True),
    TableColumn("KIND", lambda each: (each.kind, "dim"), rank=2),
    TableColumn("TASKS", lambda each: short(each.tasks), number=True),
    TableColumn("GROUPS", lambda each: whole(each.groups) if each.groups else "", number=True, rank=3),
    TableColumn("KEYS", lambda each: each.of_bolt(each.keys), number=True),
    TableColumn("TIMERS", lambda each: each.of_bolt(each.timers), number=True),
    TableColumn("PARKED", lambda each: parked_cell(each), number=True),
    TableColumn("SIZE", lambda each: in_bytes(each.bytes), number=True),
    TableColumn("POSITION", lambda each: each.where, elastic=True, rank=1),
)
ROWS: Final[tuple[TableColumn[StateRow], ...]] = (
    TableColumn("STATE", lambda each: each.row.state, elastic=True),
    TableColumn("KIND", lambda each: (each.row.kind, "dim"), rank=3),
    TableColumn("TASK", lambda each: str(each.task), number=True, rank=4),
    TableColumn("VALUE", lambda each: each.value, elastic=True),
    TableColumn("WRITTEN", lambda each: moments(each.row.written), rank=2),
    TableColumn("EXPIRES", lambda each: moments(each.row.expires), rank=1),
)


def parked_cell(component: SavedComponent) -> Cell:
    """Return the number of parked tuples, highlighted unless it is 0."""
    return bad_when_some(component.parked) if component.kind == "bolt" else ""


place_argument = click.argument("place", metavar="NAME|PATH", shell_complete=completion.topologies)
epoch_option = click.option(
    "--epoch", metavar="N", type=Whole(1), help="An earlier epoch that is still kept.  [default: the newest]"
)


@click.group()
def state() -> None:
    """Show the state that a topology has committed to its folder.

    NAME is that of a topology: the cluster says where its state is. If it was killed, it is looked for where this host's
    supervisors keep state. PATH is the topology's folder below its topology.state.path, such as /folder/word-count, or /folder
    itself if it has one topology only, or hdfs://host:port/folder/word-count; with a PATH, list, get and export ask no cluster.
    The topology may run meanwhile or not. Type the commands on a host that sees the folder, as the user who owns it.

    \b
    Examples:
      squall state list word-count
      squall state get /var/lib/squall-state/word-count count squall
      squall state export /var/lib/squall-state/word-count -o state.jsonl
      squall state list hdfs://namenode:9000/state/word-count
    """


@state.command("list")
@place_argument
@epoch_option
@webhdfs_option
@cluster_options
def list_epochs(cluster: ClusterOptions, place: str, epoch: int | None, webhdfs: str | None) -> None:
    """List the epochs that are kept, and what each component has in the newest one, or in epoch N.

    Exit status 1 if a snapshot is damaged.

    \b
    Examples:
      squall state list word-count
      squall state list file:///var/lib/squall-state/word-count --epoch 17 --json
    """
    content = content_of(cluster, place, webhdfs, epoch)
    components = components_of(content)
    if cluster.as_json:
        echo_json(
            {
                "folder": content.folder,
                "epochs": [
                    {
                        "epoch": each.record.epoch,
                        "committed": each.committed,
                        "version": each.version,
                        "end": each.end,
                    }
                    for each in content.kept
                ],
                "epoch": content.epoch.record.epoch,
                "components": [asdict(each) for each in components],
                "damaged": content.damaged,
            }
        )
    else:
        several = len({each.version for each in content.kept}) > 1
        hidden = () if several else ("VERSION",)
        show(table_of(EPOCHS, content.kept[:MOST_EPOCHS]).without(hidden), sys.stdout)
        if len(content.kept) > MOST_EPOCHS:
            echo(f"and {plural(len(content.kept) - MOST_EPOCHS, 'epoch')} before them (--json has all)")
        echo(f"\n{content.name}:")
        show(table_of(COMPONENTS, components), sys.stdout)
    check_undamaged(content)


@state.command("get")
@click.argument("place", metavar="NAME|PATH", shell_complete=completion.topologies)
@click.argument("component", metavar="COMPONENT")
@click.argument("key", metavar="KEY...", nargs=-1, required=True)
@click.option(
    "--state", "only", metavar="STATE", default="", help="Only this state, or the timers of this name."
)
@epoch_option
@webhdfs_option
@cluster_options
def get_key(
    cluster: ClusterOptions,
    place: str,
    component: str,
    key: tuple[str, ...],
    only: str,
    epoch: int | None,
    webhdfs: str | None,
) -> None:
    """Show the states and timers of one key of a component, of the task that runs or in a commit.

    With NAME, the running task that has the key is asked, so what you see may not be committed yet. With NAME and --epoch, or
    with PATH, the topology's folder is read; PATH without --epoch is the newest commit.

    KEY is a JSON value, such as 7, null or ["a", 1]; a text that is no JSON is a text, and so is '"7"'. An array stands for a
    tuple, {"repr": TEXT} for a key that JSON does not have, such as bytes or an object of a class, by its repr: `squall state
    export` writes keys so. For a key of several fields you may also give a KEY for each. Exit status 1 if the key has no state,
    a task or a host could not be asked, or a snapshot is damaged.

    \b
    Examples:
      squall state get word-count count squall
      squall state get sensors quiet hall 7 --json
      squall state get sensors quiet '["hall", 7]' --epoch 17
      squall state get /var/lib/squall-state/sensors quiet '"7"'
    """
    from squall_cli.commands.state_live import show_live

    typed = [key_of(each) for each in key]
    wanted = typed[0] if len(typed) == 1 else typed
    if "/" not in place and epoch is None:
        show_live(cluster, place, component, wanted, only)
        return
    content = content_of(cluster, place, webhdfs, epoch, component)
    show_committed(content, component, wanted, only, cluster.as_json)


def show_committed(content: EpochContent, component: str, wanted: Any, only: str, as_json: bool) -> None:
    """Print what a key has in an epoch. Raises `SquallError` if it has nothing."""
    found = [
        each for each in rows_in(content, lambda form: bool(form == wanted)) if only in ("", each.row.state)
    ]
    if as_json and (found or content.damaged):
        echo_json(
            {"epoch": content.epoch.record.epoch, "live": False, "rows": [each.shown for each in found]}
        )
    elif found:
        echo(f"{json.dumps(wanted, ensure_ascii=False)} in {component}, {content.name}:")
        show_rows(found)
    check_undamaged(content)
    if not found:
        raise SquallError(no_such_key(content, component, wanted, only))


def show_rows(found: list[StateRow]) -> None:
    """Print the rows of a key."""
    untimed = () if any(each.row.written for each in found) else ("WRITTEN", "EXPIRES")
    show(table_of(ROWS, found).without(untimed), sys.stdout)


@state.command("export")
@place_argument
@click.option("--component", metavar="ID", help="Only the state of this component.")
@epoch_option
@webhdfs_option
@click.option(
    "-o", "--output", metavar="FILE", type=click.Path(dir_okay=False), shell_complete=files,
    help="Write to a new file instead of stdout.",
)  # fmt: skip
@cluster_options
def export(
    cluster: ClusterOptions,
    place: str,
    component: str | None,
    epoch: int | None,
    webhdfs: str | None,
    output: str | None,
) -> None:
    """Write states and timers as JSON lines: one object for each state of each key.

    An object has component, task, state (or the name of a timer), kind, key, value, written and expires. Times are seconds
    since 1970; written and expires are null without a ttl. A value that JSON does not have is {"repr": text}, a dict whose keys
    are not all texts {"items": [[key, value], ...]}. Exit status 1 if a snapshot is damaged; the others are written.

    \b
    Examples:
      squall state export word-count | jq .value
      squall state export /var/lib/squall-state/word-count --component count -o count.jsonl
    """
    if output is not None and Path(output).exists():
        raise SquallError(f"{output} exists: give the name of a new file")
    content = content_of(cluster, place, webhdfs, epoch, component)
    count = 0
    with nullcontext(sys.stdout) if output is None else open(output, "x", encoding="utf-8") as out:
        for row in rows_in(content):
            out.write(f"{json.dumps(row.shown)}\n")
            count += 1
    where = "" if output is None else f" to {output}"
    echo(f"{plural(count, 'row')} of {content.name} written{where}.", err=True)
    check_undamaged(content)


state.add_command(drop)


def content_of(
    cluster: ClusterOptions,
    place: str,
    webhdfs: str | None,
    epoch: int | None = None,
    component: str | None = None,
) -> EpochContent:
    """Read the snapshots of an epoch of a topology with a name, or in a folder. Raises `SquallError`."""
    if "/" in place or place in (".", ".."):
        return content_at(state_place(place), webhdfs, epoch, component)
    folder = named(cluster, place, webhdfs).folder
    return content_at(str(folder), folder.webhdfs, epoch, component)


def content_at(
    path: str, webhdfs: str | None, epoch: int | None, component: str | None = None
) -> EpochContent:
    """Read the snapshots of an epoch. Raises `SquallError`, also if others may write to the folder."""
    from worker.loop.committed_state import CommittedState
    from worker.loop.epoch_store import EpochFiles

    folder = topology_folder(path, webhdfs)
    return CommittedState(EpochFiles(folder.above, folder.name, folder.webhdfs)).read(epoch, component)


def components_of(content: EpochContent) -> list[SavedComponent]:
    """Return what each component has."""
    from worker.loop.committed_state import place_of
    from worker.state.readable import json_form, value_of
    from worker.state.saved_rows import counts_of

    found: dict[str, SavedComponent] = {}
    for task, size, snapshot in content.snapshots():
        name, index = place_of(task)
        each = found.setdefault(name, SavedComponent(name))
        each.tasks += 1
        each.bytes += size
        divided = content.files[task][0].groups
        each.groups = divided.groups if divided is not None else 0
        if snapshot is None:
            each.damaged += 1
            continue
        counts = counts_of(snapshot.state)
        each.keys += counts.keys
        each.timers += counts.timers
        each.parked += len(snapshot.parked)
        if "states" not in snapshot.state:
            each.kind = "spout"
        if snapshot.position is not None:
            each.positions[index] = json_form(value_of(snapshot.position))
    return list(found.values())


def rows_in(content: EpochContent, wanted: Callable[[Any], bool] | None = None) -> Iterator[StateRow]:
    """Yield the rows of all tasks; with `wanted`, those of the keys for which it returns true."""
    from worker.loop.committed_state import place_of
    from worker.state.saved_rows import rows_of

    for task, _, snapshot in content.snapshots():
        if snapshot is not None:
            component, index = place_of(task)
            yield from (StateRow(component, index, row) for row in rows_of(snapshot.state, wanted))


def key_of(given: str) -> Any:
    """Return the key that was typed, in the form in which rows have it."""
    try:
        return json.loads(given)
    except ValueError:
        return given


def no_such_key(content: EpochContent, component: str, wanted: Any, only: str = "") -> str:
    """Return the error for a key without state. It names a few keys that have some: first those that look the same."""
    from worker.state.saved_rows import forms_of_keys

    text = wanted if isinstance(wanted, str) else json.dumps(wanted)
    alike: dict[str, None] = {}
    others: dict[str, None] = {}
    for _, _, snapshot in content.snapshots():
        for form in forms_of_keys(snapshot.state) if snapshot is not None else ():
            shown = json.dumps(form, ensure_ascii=False)
            if text in (form, shown):
                alike[shown] = None
            elif len(others) < MOST_KEYS:
                others[shown] = None
    keys = [cropped_inside(each, WIDEST) for each in [*alike, *others][:MOST_KEYS]]
    there = f"some keys that have: {', '.join(keys)}" if keys else "no key has any"
    what = f"state {harmless(only)!r}" if only else "state"
    return (
        f"{component} has no {what} for the key {json.dumps(wanted, ensure_ascii=False)} in epoch "
        f"{content.epoch.record.epoch}; {there}"
    )


def check_undamaged(content: EpochContent) -> None:
    """Name the damaged snapshots, and end with exit status 1 if there are any."""
    if content.damaged:
        echo("\n".join(dict.fromkeys(content.damaged)), err=True)
        sys.exit(1)
