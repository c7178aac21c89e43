"""`squall kill`, `squall activate` and `squall deactivate`: one topology from one state to the next."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import click

from squall_cli.cluster import cluster_client
from squall_cli.cluster.placed import LAG_SECS, LEAVING
from squall_cli.commands.completion import name_argument
from squall_cli.options.numbers import Seconds
from squall_cli.terminal.formats import plural

if TYPE_CHECKING:
    from squall.api.answers import TopologyAnswer
    from squall_cli.cluster.nimbus_client import NimbusClient

#: Idle reasons of a spout without open trees: deactivated, or finished.
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
    from squall.api.answers import StateAnswer
    from squall.http.client import at
    from squall_cli.cluster.waiting import obeyed

    with cluster_client.about(client, name):
        killed = topology_id(client, name) if wait else None
        _, shown = obeyed(
            lambda: client.delete_json(StateAnswer, at("topologies", name), wait_secs=wait_secs)
        )
        if killed is not None:
            wait_until_gone(client, name, killed)
    if as_json:
        click.echo(json.dumps({**shown, "gone": wait}, indent=2))
    elif wait:
        click.echo(f"{name} is gone.")
    else:
        click.echo(f"{name} is being killed: it drains, then it is gone.")


def topology_id(client: NimbusClient, name: str) -> str | None:
    """Return the id of the topology that has the name now, None without one."""
    found = status_or_none(client, name)
    return None if found is None else found.id


def status_or_none(client: NimbusClient, name: str) -> TopologyAnswer | None:
    """Return the status of a topology, None when there is none of that name."""
    from squall.api.answers import TopologyAnswer
    from squall.http.client import Refused, at

    try:
        return client.read(TopologyAnswer, at("topologies", name))
    except Refused as refused:
        if refused.kind == "NoSuchTopology":
            return None
        raise


def wait_until_gone(client: NimbusClient, name: str, killed: str) -> None:
    """Wait until the name is free, or another submission has it."""
    from squall_cli.cluster.waiting import wait

    def check() -> tuple[bool | None, str]:
        status = status_or_none(client, name)
        if status is None or status.id != killed:
            return True, ""
        pending = pending_trees(status)
        if pending:
            return None, f"{name} drains: {plural(pending, 'tree')} pending"
        if any(worker.state not in LEAVING for worker in status.workers):
            return None, f"{name} drains"
        return None, f"{name}: its workers stop"

    wait(check)


def pending_trees(status: TopologyAnswer) -> int:
    """Return the number of open trees of all spouts."""
    return sum(component.pending for component in status.components.values())


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
    from squall.api.answers import StateAnswer
    from squall.http.client import at
    from squall_cli.cluster.waiting import obeyed

    with cluster_client.about(client, name):
        path = at("topologies", name, "activate")
        answer, shown = obeyed(lambda: client.post_json(StateAnswer, path, repeatable=True))
    click.echo(json.dumps(shown, indent=2) if as_json else f"{name} is {answer.state}.")


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
    from squall.api.answers import StateAnswer
    from squall.http.client import at
    from squall_cli.cluster.waiting import obeyed

    with cluster_client.about(client, name):
        path = at("topologies", name, "deactivate")
        answer, shown = obeyed(lambda: client.post_json(StateAnswer, path, repeatable=True))
        if wait or wait_secs is not None:
            wait_until_at_rest(client, name, wait_secs)
    click.echo(json.dumps(shown, indent=2) if as_json else f"{name} is {answer.state}.")


def wait_until_at_rest(client: NimbusClient, name: str, within: float | None) -> None:
    """Wait until no spout has an open tree; SquallError when that takes longer than `within` seconds."""
    from squall.api.answers import TopologyAnswer
    from squall.http.client import at
    from squall_cli.cluster.waiting import wait
    from topology_api.errors import SquallError

    pending = 0
    began = time.monotonic()
    was_inactive = False

    def check() -> tuple[bool | None, str]:
        nonlocal pending, was_inactive
        status = client.read(TopologyAnswer, at("topologies", name))
        if status.state != "INACTIVE":
            if status.state == "ACTIVE" and not was_inactive and time.monotonic() - began < LAG_SECS:
                return None, f"waiting for Nimbus to list {name} as INACTIVE"
            raise SquallError(f"{name} is {status.state} by now, not INACTIVE: not waited for any longer")
        was_inactive = True
        pending = pending_trees(status)
        spouts = [each for each in status.components.values() if each.kind == "spout"]
        if not pending and all(each.idle in AT_REST for each in spouts):
            return True, ""
        return (
            None,
            f"{name} is INACTIVE: {plural(pending, 'tree') + ' in flight' if pending else 'its spouts stop'}",
        )

    if wait(check, within) is None:
        raise SquallError(
            f"{name} is INACTIVE, but {plural(pending, 'tree')} had no verdict after {within:g} s; they are worked off,"
            " or fail when their message timeout is over"
        )
