"""`squall top`: the busiest components of a cluster. On a terminal they are measured repeatedly, elsewhere once."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import click
import msgspec

from squall.api.cluster_answers import ClusterAnswer
from squall.epoch_status import EpochStatus
from squall_cli.cluster.cluster_client import ClusterOptions, cluster_options, echo_json
from squall_cli.cluster.events import own_paths
from squall_cli.cluster.waiting import is_away
from squall_cli.local.rates import Rates
from squall_cli.options.kinds import Seconds
from squall_cli.terminal.busy_table import (
    COMPONENTS,
    KEYS,
    TASKS,
    WORKERS,
    Busy,
    BusyWorker,
    busiest,
    commit_lines,
    tasks_of,
    trouble_lines,
)
from squall_cli.terminal.formats import cropped, plural, rate
from squall_cli.terminal.lines import (
    Line,
    console,
    echo,
    harmless,
    is_terminal,
    painted,
    styles_of,
    width_of,
    write_lines,
)
from squall_cli.terminal.tables import Table, lines_of, table_of

if TYPE_CHECKING:
    from squall_cli.cluster.nimbus_client import NimbusClient


#: How many rows of the window are taken by the summary, the table's header and the footer.
AROUND: Final = 5
#: The most lines about problems. The workers get a quarter of the rows if at least `ROOM_FOR_WORKERS` rows are left.
MOST_TROUBLES: Final = 3
#: The most lines about last commits.
MOST_COMMITS: Final = 3
ROOM_FOR_WORKERS: Final = 12


class ClusterMoment(msgspec.Struct, frozen=True):
    """The cluster at one moment, the busiest component first."""

    cluster: ClusterAnswer
    busy: tuple[Busy, ...]
    workers: tuple[BusyWorker, ...] = ()
    #: By the names of the topologies that keep their state.
    epochs: Mapping[str, EpochStatus] = msgspec.field(default_factory=dict)

    @property
    def rate(self) -> float:
        """Tuples per second that all bolts of the cluster execute."""
        return sum(each.rate or 0.0 for each in self.busy if each.component.kind == "bolt")


@click.command()
@click.option(
    "--delay",
    metavar="SECS",
    type=Seconds(0.2, 3600),
    default=2.0,
    show_default=True,
    help="Seconds between two measurements.",
)
@click.option(
    "--tasks", is_flag=True, help="Show a row for each task: those in a long call first, then the busiest."
)
@cluster_options
def top(cluster: ClusterOptions, delay: float, tasks: bool) -> None:
    """Watch the busiest components and workers of a cluster: tuples per second, over the last five seconds.

    The rate of a spout counts the tuples that it emits, the rate of a bolt the tuples that it executes. In a pipe, or with
    --json, the command measures for SECS seconds, prints once and ends.

    \b
    Examples:
      squall top
      squall top --tasks --delay 5
      squall top --json | jq '.components[0]'
    """
    with cluster.asked() as client:
        watched = WatchedCluster(client)
        if is_terminal(sys.stdout) and not cluster.as_json:
            with suppress(KeyboardInterrupt):  # Ctrl-C is the normal end
                follow(watched, delay, tasks)
            return
        watched.measure(time.monotonic())
        time.sleep(delay)
        moment = watched.measure(time.monotonic())
    if cluster.as_json:
        echo_json(as_values(moment))
    else:
        echo(summary(moment))
        width = width_of(sys.stdout)
        below = [*commit_lines(moment.epochs, width)]
        below += trouble_lines(moment.busy, moment.workers, width, moment.epochs)
        parts = (lines_of(table_at(moment, tasks), width), worker_table(moment, width, None), below)
        write_lines(sys.stdout, [line for part in parts if part for line in ((), *part)][1:])


class WatchedCluster:
    """All topologies of a cluster, and the rates of their counters."""

    def __init__(self, client: NimbusClient) -> None:
        self.client = client
        #: The rates of each submission, by id. Not by name, since the counters of a new submission with an old name begin at
        #: zero.
        self.rates: dict[str, Rates] = {}

    def measure(self, now: float) -> ClusterMoment:
        """Read all counters from Nimbus, and return the rates."""
        cluster = self.client.cluster()
        busy: list[Busy] = []
        workers: list[BusyWorker] = []
        epochs: dict[str, EpochStatus] = {}
        there = set()
        for listed in self.client.topologies():
            status = self.client.topology_or_none(listed.name) if listed.components else None
            if status is None:
                continue
            key, name = status.id, status.name
            there.add(key)
            if status.epoch is not None:
                epochs[name] = status.epoch
            components = status.components
            rates = self.rates.setdefault(key, Rates(now, components)).at(now, components)
            busy += [
                Busy(name, each, component, rates.get(each), status.now or time.time(), own_paths)
                for each, component in components.items()
            ]
            workers += [BusyWorker(name, each) for each in status.workers if each.state != "STOPPED"]
        self.rates = {key: self.rates[key] for key in there}
        busy.sort(key=lambda each: (-(each.rate or 0.0), each.topology, each.name))
        return ClusterMoment(cluster, tuple(busy), tuple(busiest(workers)), epochs)


def summary(moment: ClusterMoment) -> str:
    """Describe the cluster in one line."""
    cluster = moment.cluster
    slots = cluster.slots
    leader = cluster.leader.url if cluster.leader else "no leader"
    return (
        f"{rate(moment.rate)} tuples/s executed, {plural(cluster.topologies, 'topology', 'topologies')},"
        f" {plural(cluster.supervisors, 'supervisor')}, {slots.used} of {plural(slots.total, 'slot')} used; {leader}"
    )


def as_values(moment: ClusterMoment) -> dict[str, object]:
    """Return the moment as JSON values."""
    from msgspec import to_builtins

    return {
        "cluster": to_builtins(moment.cluster),
        "rate": moment.rate,
        "components": [
            {
                "topology": each.topology,
                "component": each.name,
                "rate": each.rate,
                **to_builtins(each.component),
            }
            for each in moment.busy
        ],
        "workers": [{"topology": each.topology, **to_builtins(each.worker)} for each in moment.workers],
        "epochs": [{"topology": name, **to_builtins(epoch)} for name, epoch in moment.epochs.items()],
    }


def table_at(moment: ClusterMoment, tasks: bool) -> Table:
    """Return the table of components, or of tasks."""
    if tasks:
        return table_of(TASKS, tasks_of(moment.busy, moment.workers))
    made = table_of(COMPONENTS, moment.busy)
    return made if any(each.keys for each in moment.busy) else made.without([KEYS.head])


def worker_table(moment: ClusterMoment, width: int, most: int | None) -> list[Line]:
    """Return the table of the workers that use most processor time: at most `most` of them."""
    shown = moment.workers[:most]
    return lines_of(table_of(WORKERS, shown), width) if shown else []


def follow(watched: WatchedCluster, delay: float, tasks: bool) -> None:
    """Draw until Ctrl-C. If Nimbus does not answer, repeat the request."""
    from rich.live import Live
    from rich.text import Text

    from squall.http.client import Refused, Unreachable

    latest, problem = ClusterMoment(watched.client.cluster(), ()), ""
    styles = styles_of(sys.stdout)
    with Live(console=console(sys.stdout), screen=True, auto_refresh=False) as live:
        while True:
            try:
                latest, problem = watched.measure(time.monotonic()), ""
            except (Unreachable, Refused) as error:
                if not is_away(error):
                    raise
                problem = str(error)
            resized = console(sys.stdout)  # the window may have been resized
            live.console.size = resized.size
            drawn = [painted(each, styles) for each in picture(latest, problem, *resized.size, tasks)]
            live.update(Text.from_ansi("\n".join(drawn), no_wrap=True), refresh=True)
            time.sleep(delay)


def picture(moment: ClusterMoment, problem: str, width: int, height: int, tasks: bool = False) -> list[Line]:
    """Return all lines to draw: at most as many as the window has, but at least one component with its summary, header and
    footer."""
    room = max(1, height - AROUND)
    troubles = [*trouble_lines(moment.busy, moment.workers, width, moment.epochs)][
        : min(MOST_TROUBLES, room // 5)
    ]
    commits = [*commit_lines(moment.epochs, width)][: min(MOST_COMMITS, room // 5)]
    below = [(), *commits, *troubles] if commits or troubles else []
    room -= len(below)
    workers: list[Line] = []
    if room >= ROOM_FOR_WORKERS:
        workers = worker_table(moment, width, room // 4 - 1)
        workers = [(), *workers] if workers else []
        room -= len(workers)
    made = table_at(moment, tasks)
    more = len(made.rows) - room
    what = "task" if tasks else "component"
    foot = (f"and {plural(more, f'less busy {what}')}; " if more > 0 else "") + "Ctrl-C ends"
    if problem:
        foot = f"last known state: {harmless(problem)}"
    drawn = [*lines_of(msgspec.structs.replace(made, rows=made.rows[:room]), width), *workers, *below]
    head = cropped(summary(moment), width)
    return [((head, ""),), (), *drawn, (), ((cropped(foot, width), "bad" if problem else "dim"),)]
