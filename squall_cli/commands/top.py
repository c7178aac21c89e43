"""`squall top`: the busiest components of a cluster. On a terminal they are measured repeatedly, elsewhere once."""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import click

from squall.api.answers import ClusterAnswer
from squall.status import ComponentStatus
from squall_cli.cluster.cluster_client import ClusterOptions, cluster_options, echo_json
from squall_cli.cluster.waiting import is_away
from squall_cli.local.rates import Rates
from squall_cli.options.kinds import Seconds
from squall_cli.terminal.component_table import undecided_sentence, why_idle
from squall_cli.terminal.formats import cropped, latency, plural, rate, short
from squall_cli.terminal.lines import Line, Piece, console, echo, harmless, is_terminal, painted, styles_of
from squall_cli.terminal.load_table import busy_cell
from squall_cli.terminal.tables import TableColumn, bad_when_some, lines_of, show, table_of

if TYPE_CHECKING:
    from squall_cli.cluster.nimbus_client import NimbusClient


COLUMNS: Final[tuple[TableColumn[Busy], ...]] = (
    TableColumn("TOPOLOGY", lambda each: each.topology, elastic=True),
    TableColumn("COMPONENT", lambda each: each.name, elastic=True),
    TableColumn("KIND", lambda each: (each.component.kind, "dim"), rank=4),
    TableColumn("TASKS", lambda each: short(each.component.tasks), number=True, rank=3),
    TableColumn("RATE/s", lambda each: (rate(each.rate), "head" if each.rate else "dim"), number=True),
    TableColumn("FAILED", lambda each: bad_when_some(each.component.failed), number=True, rank=1),
    TableColumn("PENDING", lambda each: each.of_spout(short(each.component.pending)), number=True, rank=2),
    TableColumn("p99", lambda each: each.of_spout(latency(each.component.p99)), number=True, rank=2),
    TableColumn("BUSY", lambda each: busy_cell(each.component.busy), number=True, rank=1),
    TableColumn("QUEUE", lambda each: each.of_bolt(short(each.component.queue)), number=True, rank=3),
    TableColumn(
        "EXEC p99", lambda each: each.of_bolt(latency(each.component.execute_p99)), number=True, rank=2
    ),
    TableColumn("ERRORS", lambda each: bad_when_some(each.component.errors), number=True, rank=1),
    TableColumn(
        "WHY IDLE",
        lambda each: each.why_idle,
        elastic=True,
        rank=5,
    ),
)
#: How many rows of the window are taken by the summary, the table's header and the footer.
AROUND: Final = 5


@dataclass(frozen=True)
class Busy:
    """One component of one topology, and its rate (None if the rate is not known yet)."""

    topology: str
    name: str
    component: ComponentStatus
    rate: float | None

    @property
    def why_idle(self) -> Piece:
        """Return why the component is idle or waits; what is down, or without a verdict, stands out."""
        if self.component.undecided:
            return undecided_sentence(self.name, self.component), "warn"
        return why_idle(self.component), "bad" if self.component.down else "dim"

    def of_spout(self, text: str) -> str:
        """Return a text that is shown only for spouts."""
        return text if self.component.kind == "spout" else ""

    def of_bolt(self, text: str) -> str:
        """Return a text that is shown only for bolts."""
        return text if self.component.kind == "bolt" else ""


@dataclass(frozen=True)
class ClusterMoment:
    """The cluster at one moment, the busiest component first."""

    cluster: ClusterAnswer
    busy: tuple[Busy, ...]

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
@cluster_options
def top(cluster: ClusterOptions, delay: float) -> None:
    """Watch the busiest components of a cluster: tuples per second, over the last five seconds.

    The rate of a spout counts the tuples that it emits, the rate of a bolt the tuples that it executes. In a pipe, or with
    --json, the command measures for SECS seconds, prints once and ends.

    \b
    Examples:
      squall top
      squall top --delay 5
      squall top --json | jq '.components[0]'
    """
    with cluster.asked() as client:
        watched = WatchedCluster(client)
        if is_terminal(sys.stdout) and not cluster.as_json:
            with suppress(KeyboardInterrupt):  # Ctrl-C is the normal end
                follow(watched, delay)
            return
        watched.measure(time.monotonic())
        time.sleep(delay)
        moment = watched.measure(time.monotonic())
    if cluster.as_json:
        echo_json(as_values(moment))
    else:
        echo(summary(moment))
        show(table_of(COLUMNS, moment.busy), sys.stdout)


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
        there = set()
        for listed in self.client.topologies():
            status = self.client.topology_or_none(listed.name) if listed.components else None
            if status is None:
                continue
            key, name = status.id, status.name
            there.add(key)
            components = status.components
            rates = self.rates.setdefault(key, Rates(now, components)).at(now, components)
            busy += [Busy(name, each, component, rates.get(each)) for each, component in components.items()]
        self.rates = {key: self.rates[key] for key in there}
        busy.sort(key=lambda each: (-(each.rate or 0.0), each.topology, each.name))
        return ClusterMoment(cluster, tuple(busy))


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
    }


def follow(watched: WatchedCluster, delay: float) -> None:
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
            drawn = [painted(each, styles) for each in picture(latest, problem, *resized.size)]
            live.update(Text.from_ansi("\n".join(drawn), no_wrap=True), refresh=True)
            time.sleep(delay)


def picture(moment: ClusterMoment, problem: str, width: int, height: int) -> list[Line]:
    """Return all lines to draw: at most as many as the window has, but at least one component with its summary, header and
    footer."""
    room = max(1, height - AROUND)
    more = len(moment.busy) - room
    foot = (f"and {plural(more, 'less busy component')}; " if more > 0 else "") + "Ctrl-C ends"
    if problem:
        foot = f"last known state: {harmless(problem)}"
    drawn = lines_of(table_of(COLUMNS, moment.busy[:room]), width)
    head = cropped(summary(moment), width)
    return [((head, ""),), (), *drawn, (), ((cropped(foot, width), "bad" if problem else "dim"),)]
