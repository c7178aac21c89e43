"""`squall kill`, `squall activate` and `squall deactivate`: one topology from one state to the next."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import click

from squall_cli import cluster_client
from squall_cli.completion import name_argument
from squall_cli.figures import plural
from squall_cli.numbers import Seconds
from squall_cli.placed import LAG_SECS, LEAVING

if TYPE_CHECKING:
    from squall.http_client import Client

#: Why a spout emits nothing though it has no trees left: it was told to, or it is at its end.
AT_REST: Final = ("inactive", "finished", "not open yet")


def wait_secs_option(text: str) -> Callable[[cluster_client.Command], cluster_client.Command]:
    """-w SECS."""
    return click.option("-w", "--wait-secs", metavar="SECS", type=Seconds(), help=text)


KILL = """Drain a topology and remove it.

Its spouts stop, what is in flight is worked off, for at most SECS seconds (by default the topology's message timeout);
what is left then fails with the reason "stopped". Its name is free when it is gone. Said again with another -w, it
changes the deadline.

\b
Examples:
  squall kill word-count
  squall kill word-count --wait
  squall kill word-count -w 0          # at once
"""


@click.command(help=KILL)
@name_argument
@wait_secs_option("How long it may drain.  [default: topology.message.timeout.secs]")
@click.option("--wait", is_flag=True, help="Return when it is gone.")
@cluster_client.options
def kill(
    name: str, wait_secs: float | None, wait: bool, nimbus: str | None, config: str | None, as_json: bool
) -> None:
    client = cluster_client.connect(nimbus, config)
    from squall.http_client import at
    from squall_cli.waiting import obeyed

    with cluster_client.about(client, name):
        killed = topology_id(client, name) if wait else None
        answer = obeyed(lambda: client.delete(at("topologies", name), wait_secs=wait_secs))
        if killed is not None:
            wait_until_gone(client, name, killed)
    if as_json:
        click.echo(json.dumps({**answer, "gone": wait}, indent=2))
    elif wait:
        click.echo(f"{name} is gone.")
    else:
        click.echo(f"{name} is being killed: it drains, then it is gone.")


def topology_id(client: Client, name: str) -> str | None:
    """The id of the submission that has the name now, None when nobody has it."""
    found = status_or_none(client, name)
    return None if found is None else str(found.get("id"))


def status_or_none(client: Client, name: str) -> Mapping[str, Any] | None:
    """The status of a topology, None when there is none of that name."""
    from squall.http_client import Refused, at

    try:
        status: Mapping[str, Any] = client.get(at("topologies", name))
    except Refused as refused:
        if refused.kind == "NoSuchTopology":
            return None
        raise
    return status


def wait_until_gone(client: Client, name: str, killed: str) -> None:
    """Until the name is free, or another submission has it."""
    from squall_cli.waiting import wait

    def look() -> tuple[bool | None, str]:
        status = status_or_none(client, name)
        if status is None or str(status.get("id")) != killed:
            return True, ""
        pending = pending_trees(status)
        if pending:
            return None, f"{name} drains: {plural(pending, 'tree')} pending"
        if any(worker["state"] not in LEAVING for worker in status["workers"]):
            return None, f"{name} drains"
        return None, f"{name}: its workers stop"

    wait(look)


def pending_trees(status: Mapping[str, Any]) -> int:
    """Open trees of all spouts."""
    return sum(component["pending"] for component in status["components"].values())


ACTIVATE = """Let the spouts of a topology run.

\b
Example:
  squall activate word-count
"""


@click.command(help=ACTIVATE)
@name_argument
@cluster_client.options
def activate(name: str, nimbus: str | None, config: str | None, as_json: bool) -> None:
    client = cluster_client.connect(nimbus, config)
    from squall.http_client import at
    from squall_cli.waiting import obeyed

    with cluster_client.about(client, name):
        answer = obeyed(lambda: client.post(at("topologies", name, "activate"), repeatable=True))
    click.echo(json.dumps(answer, indent=2) if as_json else f"{name} is {answer['state']}.")


DEACTIVATE = """Stop the spouts of a topology; tuples in flight are finished.

Its workers stay, and so does what its bolts hold in memory; `squall activate` lets the spouts run again.

\b
Examples:
  squall deactivate word-count
  squall deactivate word-count --wait    # until nothing is in flight any more
  squall deactivate word-count -w 30     # the same; exit status 1 after 30 s
"""


@click.command(help=DEACTIVATE)
@name_argument
@wait_secs_option("Wait for what is in flight, at most so long.")
@click.option("--wait", is_flag=True, help="Return when every tree in flight has its verdict.")
@cluster_client.options
def deactivate(
    name: str, wait_secs: float | None, wait: bool, nimbus: str | None, config: str | None, as_json: bool
) -> None:
    client = cluster_client.connect(nimbus, config)
    from squall.http_client import at
    from squall_cli.waiting import obeyed

    with cluster_client.about(client, name):
        answer = obeyed(lambda: client.post(at("topologies", name, "deactivate"), repeatable=True))
        if wait or wait_secs is not None:
            wait_until_at_rest(client, name, wait_secs)
    click.echo(json.dumps(answer, indent=2) if as_json else f"{name} is {answer['state']}.")


def wait_until_at_rest(client: Client, name: str, within: float | None) -> None:
    """Until no spout has an open tree; SquallError when that takes longer than `within` seconds."""
    from squall.http_client import at
    from squall_cli.waiting import wait
    from topology_api.errors import SquallError

    pending = 0
    began = time.monotonic()
    was_inactive = False

    def look() -> tuple[bool | None, str]:
        nonlocal pending, was_inactive
        status = client.get(at("topologies", name))
        if status["state"] != "INACTIVE":
            if status["state"] == "ACTIVE" and not was_inactive and time.monotonic() - began < LAG_SECS:
                return None, f"waiting for Nimbus to list {name} as INACTIVE"
            raise SquallError(f"{name} is {status['state']} by now, not INACTIVE: not waited for any longer")
        was_inactive = True
        pending = pending_trees(status)
        spouts = [each for each in status["components"].values() if each["kind"] == "spout"]
        if not pending and all(each["idle"] in AT_REST for each in spouts):
            return True, ""
        return (
            None,
            f"{name} is INACTIVE: {plural(pending, 'tree') + ' in flight' if pending else 'its spouts stop'}",
        )

    if wait(look, within) is None:
        raise SquallError(
            f"{name} is INACTIVE, but {plural(pending, 'tree')} had no verdict after {within:g} s; they are worked off,"
            " or fail when their message timeout is over"
        )
