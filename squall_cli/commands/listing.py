"""`squall list`: the topologies of a cluster, one line each, and the reason if a topology does not run."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Final

import click

from squall.api.answers import TopologiesAnswer, TopologyAnswer, TopologySummary
from squall.api.cluster_answers import SupervisorEntry
from squall.values import TopologyState
from squall_cli.cluster.cluster_client import ClusterOptions, about, cluster_options
from squall_cli.cluster.events import own_paths
from squall_cli.cluster.placed import PLACED, held_up, no_workers, on_trial
from squall_cli.terminal.formats import cropped_inside, short, span
from squall_cli.terminal.lines import echo, harmless
from squall_cli.terminal.tables import TableColumn, bad_when_some, show, table_of

#: Seconds within which Nimbus places the workers of a new submission if slots are free.
SOON_SECS: Final = 2.0
NOTHING: Final = "There are no topologies; `squall submit FILE` sends one."

_STYLE_BY_REQUEST = {"run": "good", "pause": "dim", "drain": "warn", "stop": "dim"}
#: The style of each state.
STYLES: dict[str, str] = {state: _STYLE_BY_REQUEST[state.asks] for state in TopologyState}
STYLES |= {"FAILED": "bad", "BAD": "bad"}

COLUMNS: Final[tuple[TableColumn[TopologySummary], ...]] = (
    TableColumn("NAME", lambda each: each.name, elastic=True),
    TableColumn("STATE", lambda each: (each.state, STYLES.get(each.state, ""))),
    TableColumn("UPTIME", lambda each: span(each.uptime_secs), number=True, rank=3),
    TableColumn("WORKERS", lambda each: short(each.workers), number=True, rank=4),
    TableColumn("TASKS", lambda each: short(each.tasks), number=True, rank=5),
    TableColumn("EMITTED", lambda each: short(each.emitted), number=True, rank=2),
    TableColumn("ACKED", lambda each: short(each.acked), number=True, rank=2),
    TableColumn("FAILED", lambda each: bad_when_some(each.failed), number=True),
    TableColumn("PENDING", lambda each: short(each.pending), number=True, rank=1),
    TableColumn("ERRORS", lambda each: bad_when_some(each.errors), number=True, rank=1),
)


@click.command("list")
@cluster_options
def listing(cluster: ClusterOptions) -> None:
    """List the topologies of a cluster.

    \b
    Examples:
      squall list
      squall list --json | jq '.topologies[] | select(.state == "FAILED") | .name'
    """

    with cluster.asked() as client:
        answer, shown = client.read_json(TopologiesAnswer, "topologies")
    if not cluster.answer_list(shown, answer.topologies, NOTHING):
        return
    topologies = sorted(answer.topologies, key=lambda each: each.name)
    show(table_of(COLUMNS, topologies), sys.stdout)
    supervisors: Sequence[SupervisorEntry] = ()
    if any(waits_for_slots(each, each.workers) for each in topologies):
        with about(client):
            supervisors = client.supervisors()
    for line in reasons(topologies, supervisors):
        echo(line)


def reasons(topologies: Sequence[TopologySummary], supervisors: Sequence[SupervisorEntry]) -> list[str]:
    """Return a line with the reason for each topology that does not run or lacks workers, and a line for each new version that
    may still be rolled back."""
    found = []
    for each in topologies:
        waits = waits_for_slots(each, each.workers)
        why = each.error or (no_workers(supervisors) if waits else "") or held_up(each)
        for text in filter(None, (why, "" if each.error else on_trial(each))):
            found.append(f"{harmless(each.name)}: {cropped_inside(harmless(own_paths(text)), 200)}")
    return found


def waits_for_slots(topology: TopologyAnswer | TopologySummary, workers: int) -> bool:
    """Whether the topology should have workers by now, but has none."""
    return topology.state in PLACED and workers == 0 and topology.uptime_secs > SOON_SECS
