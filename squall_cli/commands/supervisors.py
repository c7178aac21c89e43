"""`squall supervisors`: the hosts of a cluster, their slots, and what runs in them."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

import click

from squall_cli import cluster_client
from squall_cli.figures import plural
from squall_cli.tables import Cell, Column, show, table

HELP = """List the supervisors of a cluster: their hosts, slots, and what runs there.

\b
Examples:
  squall supervisors
  squall supervisors --json | jq '.supervisors[] | select(.drained) | .host'
"""

NOTHING: Final = "There are no supervisors; `squall supervisor` starts one on its host."
COLUMNS: Final = (
    Column("HOST", elastic=True),
    Column("STATE"),
    Column("USED", number=True),
    Column("SLOTS", number=True),
    Column("CPUS", number=True, rank=4),
    Column("MEMORY", number=True, rank=5),
    Column("SQUALL", rank=3),
    Column("PYTHON", rank=3),
    Column("ID", rank=2),
    Column("WORKERS OF", elastic=True, rank=1),
)


@click.command(help=HELP)
@cluster_client.options
def supervisors(nimbus: str | None, config: str | None, as_json: bool) -> None:
    there = cluster_client.listed("supervisors", nimbus, config, as_json, NOTHING)
    if not there:
        return
    there = sorted(there, key=lambda each: (each["host"], each["id"]))
    show(table(COLUMNS, map(row, there)), sys.stdout)
    if sys.stdout.isatty():
        click.echo(f"\n{summary(there)}")
    else:
        click.echo(summary(there), err=True)  # what is piped is a table


def row(supervisor: Mapping[str, Any]) -> list[Cell]:
    versions, resources = supervisor.get("versions") or {}, supervisor.get("resources") or {}
    workers = Counter(str(worker["topology"]) for worker in supervisor["workers"])
    cpus, memory = resources.get("cpus"), resources.get("memory_bytes")
    return [
        str(supervisor["host"]),
        state_of(supervisor),
        str(supervisor["used"]),
        str(supervisor["slots"]),
        "-" if cpus is None else f"{cpus:g}",
        "-" if memory is None else f"{memory / 2**30:.1f}G",
        str(versions.get("squall", "-")),
        str(versions.get("python", "-")),
        str(supervisor["id"]),
        ", ".join(f"{name} {number}" for name, number in sorted(workers.items())),
    ]


def state_of(supervisor: Mapping[str, Any]) -> Cell:
    """`away`: nothing is heard of it; its workers go on for their lease, then their tasks go elsewhere."""
    if not supervisor["connected"]:
        return "away", "bad"
    if supervisor["drained"]:
        return ("draining" if supervisor["used"] else "drained"), "warn"
    return "ready", "good"


def summary(there: Sequence[Mapping[str, Any]]) -> str:
    """How many slots are free."""
    total = sum(int(each["slots"]) for each in there)
    used = sum(int(each["used"]) for each in there)
    return f"{plural(len(there), 'supervisor')}; {used} of {plural(total, 'slot')} used, {free_slots(there)} free"


def free_slots(there: Sequence[Mapping[str, Any]]) -> int:
    """Slots that work may be placed in."""
    return sum(
        max(0, int(each["slots"]) - int(each["used"]))
        for each in there
        if each["connected"] and not each["drained"]
    )
