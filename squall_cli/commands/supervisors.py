"""`squall supervisors`: the hosts of a cluster, their slots, and the workers in them."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from typing import Final

import click

from squall.api.answers import SupervisorEntry, SupervisorsAnswer
from squall_cli.cluster import cluster_client
from squall_cli.cluster.cluster_client import ClusterOptions
from squall_cli.terminal.formats import plural
from squall_cli.terminal.tables import Cell, TableColumn, show, table

NOTHING: Final = "There are no supervisors; `squall supervisor` starts one on its host."
COLUMNS: Final = (
    TableColumn("HOST", elastic=True),
    TableColumn("STATE"),
    TableColumn("USED", number=True),
    TableColumn("SLOTS", number=True),
    TableColumn("CPUS", number=True, rank=4),
    TableColumn("MEMORY", number=True, rank=5),
    TableColumn("SQUALL", rank=3),
    TableColumn("PYTHON", rank=3),
    TableColumn("ID", rank=2),
    TableColumn("WORKERS OF", elastic=True, rank=1),
)


@click.command()
@cluster_client.options
def supervisors(cluster: ClusterOptions) -> None:
    """List the supervisors of a cluster with their hosts, slots and workers.

    \b
    Examples:
      squall supervisors
      squall supervisors --json | jq '.supervisors[] | select(.drained) | .host'
    """

    with cluster.asked() as client:
        answer, shown = client.read_json(SupervisorsAnswer, "supervisors")
    if not cluster.answer_list(shown, answer.supervisors, NOTHING):
        return
    there = sorted(answer.supervisors, key=lambda each: (each.host, each.id))
    show(table(COLUMNS, map(row, there)), sys.stdout)
    if sys.stdout.isatty():
        click.echo(f"\n{summary(there)}")
    else:
        click.echo(summary(there), err=True)  # stdout has only the table, for pipes


def row(supervisor: SupervisorEntry) -> list[Cell]:
    versions, resources = supervisor.versions, supervisor.resources
    workers = Counter(worker.topology for worker in supervisor.workers)
    cpus, memory = resources.get("cpus"), resources.get("memory_bytes")
    return [
        supervisor.host,
        state_of(supervisor),
        str(supervisor.used),
        str(supervisor.slots),
        "-" if cpus is None else f"{cpus:g}",
        "-" if memory is None else f"{memory / 2**30:.1f}G",
        versions.get("squall", "-"),
        versions.get("python", "-"),
        supervisor.id,
        ", ".join(f"{name} {number}" for name, number in sorted(workers.items())),
    ]


def state_of(supervisor: SupervisorEntry) -> Cell:
    """Return the state. `away`: it sends no heartbeats; its workers run until their lease ends, then their tasks move."""
    if not supervisor.connected:
        return "away", "bad"
    if supervisor.drained:
        return ("draining" if supervisor.used else "drained"), "warn"
    return "ready", "good"


def summary(there: Sequence[SupervisorEntry]) -> str:
    """Return the number of supervisors, and of used and free slots."""
    total = sum(each.slots for each in there)
    used = sum(each.used for each in there)
    return f"{plural(len(there), 'supervisor')}; {used} of {plural(total, 'slot')} used, {free_slots(there)} free"


def free_slots(there: Sequence[SupervisorEntry]) -> int:
    """Return the number of slots that can get a worker."""
    return sum(max(0, each.slots - each.used) for each in there if each.connected and not each.drained)
