"""`squall rebalance`: place the tasks of a topology again, over other workers or in other numbers."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from squall_cli.cluster import cluster_client
from squall_cli.cluster.placed import (
    LAG_SECS,
    LEAVING,
    PLACED,
    fewer_to_come,
    fewer_workers,
    has_fewer_workers,
)
from squall_cli.commands import completion
from squall_cli.commands.lifecycle import pending_trees, wait_secs_option
from squall_cli.options.numbers import Whole
from squall_cli.terminal.formats import plural

if TYPE_CHECKING:
    from squall.api.answers import TopologyAnswer
    from squall_cli.cluster.nimbus_client import NimbusClient

HELP = """Change the number of workers or tasks of a topology, or spread it anew over the hosts that are there.

Its spouts stop, what is in flight is worked off, for at most SECS seconds; then all tasks are placed as if they were
new. A worker whose slot still has all of its tasks keeps its process; each other one is replaced by a new process, whose
tasks are opened and prepared again and have lost what they held in memory. With another number of workers that is most
of them, often every one. Tasks of a component whose number changes are always made anew.

\b
Examples:
  squall rebalance word-count                         # after hosts have come
  squall rebalance word-count -n 4 --wait
  squall rebalance word-count -e count=8 -e split=2 -w 60
"""


def counts(ctx: click.Context, option: click.Parameter, texts: tuple[str, ...]) -> dict[str, int]:
    """The callback of `-e`: ID=N; what is not of that form is wrong usage."""
    found: dict[str, int] = {}
    for text in texts:
        component, equals, number = text.rpartition("=")
        if not (equals and component and number.isascii() and number.isdigit() and int(number) > 0):
            raise click.BadParameter(
                f"{text!r}: write COMPONENT=N, with a whole number N from 1 on", ctx, option
            )
        if component in found:
            raise click.BadParameter(f"{component!r} is there twice", ctx, option)
        found[component] = int(number)
    return found


@click.command(help=HELP)
@completion.name_argument
@click.option("-n", "--workers", metavar="N", type=Whole(1), help="The new number of worker processes.")
@click.option(
    "-e",
    "--parallelism",
    metavar="ID=N",
    multiple=True,
    callback=counts,
    shell_complete=completion.parallelism,
    help="A component's new number of tasks. May be repeated.",
)
@wait_secs_option("How long it may drain.  [default: topology.message.timeout.secs]")
@click.option("--wait", is_flag=True, help="Return when every worker of the new placement runs.")
@cluster_client.options
def rebalance(
    name: str,
    workers: int | None,
    parallelism: dict[str, int],
    wait_secs: float | None,
    wait: bool,
    nimbus: str | None,
    config: str | None,
    as_json: bool,
) -> None:
    client = cluster_client.connect(nimbus, config)
    from msgspec import to_builtins

    from squall.api.answers import StateAnswer, SupervisorsAnswer
    from squall.http.client import at
    from squall_cli.cluster.waiting import obeyed

    body = {"workers": workers, "parallelism": parallelism or None, "wait_secs": wait_secs}
    with cluster_client.about(client, name):
        answer, shown = obeyed(
            lambda: client.post_json(StateAnswer, at("topologies", name, "rebalance"), body)
        )
        if wait:
            status = wait_until_placed(client, name)
            whole = to_builtins(status)
            shown = {key: whole[key] for key in ("name", "state", "workers", "workers_wanted")}
            answer = StateAnswer(status.name, status.state)
            fewer = ""
            if has_fewer_workers(status):
                fewer = fewer_workers(status, client.read(SupervisorsAnswer, "supervisors").supervisors)
        else:
            fewer = forecast(client, name, workers, parallelism)
    if as_json:
        click.echo(json.dumps(shown, indent=2))
        if fewer:
            click.echo(f"{name}: {fewer}", err=True)
    elif wait:
        click.echo(f"{name} is {answer.state} again{f', with {fewer}' if fewer else ''}.")
    else:
        over = f", over {fewer}" if fewer else ""
        click.echo(f"{name} is being rebalanced: it drains, then its tasks are placed anew{over}.")


def forecast(client: NimbusClient, name: str, workers: int | None, parallelism: Mapping[str, int]) -> str:
    """Return that there will be fewer workers than wanted, and why; "" otherwise, or when that is not known. The rebalance has
    begun in any case."""
    from squall.api.answers import SupervisorsAnswer, TopologyAnswer
    from squall.http.client import at
    from topology_api.errors import SquallError

    try:
        status = client.read(TopologyAnswer, at("topologies", name))
        return fewer_to_come(
            status, client.read(SupervisorsAnswer, "supervisors").supervisors, workers, parallelism
        )
    except SquallError:
        return ""


def wait_until_placed(client: NimbusClient, name: str) -> TopologyAnswer:
    """Wait until the rebalance is over and every worker has opened its tasks; return the status."""
    from squall.api.answers import TopologyAnswer
    from squall.http.client import at
    from squall_cli.cluster.waiting import wait
    from topology_api.errors import SquallError

    began = time.monotonic()
    has_begun = False

    def check() -> tuple[TopologyAnswer | None, str]:
        nonlocal has_begun
        status = client.read(TopologyAnswer, at("topologies", name))
        state = status.state
        if state == "REBALANCING":
            has_begun = True
            pending = pending_trees(status)
            return None, f"{name} drains: {plural(pending, 'tree')} pending"
        if state == "FAILED":
            raise SquallError(f"{name} has FAILED: {status.error}")
        if state not in PLACED:
            raise SquallError(f"{name} is {state} by now: its rebalance is not waited for any longer")
        if not has_begun and time.monotonic() - began < LAG_SECS:
            return None, f"{name}: waiting for Nimbus to begin"
        there = [worker for worker in status.workers if worker.state not in LEAVING]
        opened = sum(worker.opened for worker in there)
        if there and opened == len(there):
            return status, ""
        return None, f"{name}: {opened} of {plural(len(there), 'worker')} ready"

    found = wait(check)
    assert found is not None  # it waits for as long as it takes
    return found
