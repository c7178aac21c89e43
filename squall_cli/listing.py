"""`squall list`: the topologies of a cluster, one line each, and why one of them does not run."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

import click

from squall_cli import cluster_client
from squall_cli.figures import cropped_inside, short, span
from squall_cli.placed import PLACED, held_up, no_workers, on_trial
from squall_cli.said import own_paths
from squall_cli.tables import Cell, Column, harmless, show, table

HELP = """List the topologies of a cluster.

\b
Examples:
  squall list
  squall list --json | jq '.topologies[] | select(.state == "FAILED") | .name'
"""

#: Nimbus places the workers of what is submitted within this time, when there is room.
SOON_SECS: Final = 2.0
NOTHING: Final = "There are no topologies; `squall submit FILE` sends one."

#: How a state is shown; others as they are.
STYLES = {
    "ACTIVE": "good",
    "INACTIVE": "dim",
    "COMPLETED": "dim",
    "FAILED": "bad",
    "BAD": "bad",
    "KILLED": "warn",
    "REBALANCING": "warn",
    "REPLACING": "warn",
}

COLUMNS = (
    Column("NAME", elastic=True),
    Column("STATE"),
    Column("UPTIME", number=True, rank=3),
    Column("WORKERS", number=True, rank=4),
    Column("TASKS", number=True, rank=5),
    Column("EMITTED", number=True, rank=2),
    Column("ACKED", number=True, rank=2),
    Column("FAILED", number=True),
    Column("PENDING", number=True, rank=1),
    Column("ERRORS", number=True, rank=1),
)


@click.command("list", help=HELP)
@cluster_client.options
def listing(nimbus: str | None, config: str | None, as_json: bool) -> None:
    topologies = cluster_client.listed("topologies", nimbus, config, as_json, NOTHING)
    if not topologies:
        return
    topologies = sorted(topologies, key=lambda each: str(each["name"]))
    show(table(COLUMNS, map(row, topologies)), sys.stdout)
    supervisors: Sequence[Mapping[str, Any]] = ()
    if any(waits_for_slots(each, each.get("workers")) for each in topologies):
        client = cluster_client.connect(nimbus, config)
        with cluster_client.about(client):
            supervisors = client.get("supervisors")["supervisors"]
    for line in reasons(topologies, supervisors):
        click.echo(line)


def row(topology: Mapping[str, Any]) -> list[Cell]:
    state = str(topology["state"])
    return [
        str(topology["name"]),
        (state, STYLES.get(state, "")),
        _figure(topology, "uptime_secs", span),
        _figure(topology, "workers", short),
        _figure(topology, "tasks", short),
        _figure(topology, "emitted", short),
        _figure(topology, "acked", short),
        _bad_when_some(topology, "failed"),
        _figure(topology, "pending", short),
        _bad_when_some(topology, "errors"),
    ]


def _figure(topology: Mapping[str, Any], key: str, written: Any) -> str:
    """A number, or a dash where it is not known (of a topology whose record cannot be read)."""
    value = topology.get(key)
    return "-" if value is None else str(written(value))


def _bad_when_some(topology: Mapping[str, Any], key: str) -> Cell:
    return _figure(topology, key, short), "bad" if topology.get(key) else ""


def reasons(topologies: Sequence[Mapping[str, Any]], supervisors: Sequence[Mapping[str, Any]]) -> list[str]:
    """A line for each topology that does not run, or not in whole: why; and for one that is to prove that it does."""
    found = []
    for each in topologies:
        waits = waits_for_slots(each, each.get("workers"))
        why = str(each.get("error") or "") or (no_workers(supervisors) if waits else "") or held_up(each)
        found += [(each, text) for text in (why, "" if each.get("error") else on_trial(each)) if text]
    return [
        f"{harmless(str(each['name']))}: {cropped_inside(harmless(own_paths(text)), 200)}"
        for each, text in found
    ]


def waits_for_slots(topology: Mapping[str, Any], workers: int | None) -> bool:
    """Whether it should have workers by now, and none has a place."""
    placed = topology["state"] in PLACED
    return placed and workers == 0 and float(topology.get("uptime_secs") or 0) > SOON_SECS
