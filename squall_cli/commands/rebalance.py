"""`squall rebalance`: place the tasks of a topology again, over other workers or in other numbers."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

import click

from squall_cli.cluster import cluster_client
from squall_cli.cluster.cluster_client import ClusterOptions
from squall_cli.cluster.placed import (
    LAG_SECS,
    LEAVING,
    PLACED,
    fewer_to_come,
    fewer_workers,
    has_fewer_workers,
)
from squall_cli.cluster.waiting import obeyed, wait
from squall_cli.commands import completion
from squall_cli.commands.lifecycle import pending_trees, wait_secs_option, waits_option
from squall_cli.options.numbers import Whole
from squall_cli.terminal.formats import plural
from topology_api.errors import SquallError

if TYPE_CHECKING:
    from squall.api.answers import TopologyAnswer
    from squall_cli.cluster.nimbus_client import NimbusClient


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


@click.command()
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
@waits_option("Return when every worker of the new placement runs.")
@cluster_client.options
def rebalance(
    cluster: ClusterOptions,
    name: str,
    workers: int | None,
    parallelism: dict[str, int],
    wait_secs: float | None,
    waits: bool,
) -> None:
    """Change the number of workers or tasks of a topology, or spread it anew over the hosts that are there.

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
    from msgspec import to_builtins

    body = {"workers": workers, "parallelism": parallelism or None, "wait_secs": wait_secs}
    with cluster.asked(name) as client:
        _, shown = obeyed(partial(client.change, name, "rebalance", body, repeatable=False))
        if waits:
            status = wait_until_placed(client, name)
            whole = to_builtins(status)
            shown = {key: whole[key] for key in ("name", "state", "workers", "workers_wanted")}
            fewer = fewer_workers(status, client.supervisors()) if has_fewer_workers(status) else ""
            text = f"{name} is {status.state} again{', with ' * bool(fewer)}{fewer}."
        else:
            fewer = forecast(client, name, workers, parallelism)
            text = f"{name} is being rebalanced: it drains, then its tasks are placed anew{', over ' * bool(fewer)}{fewer}."
    cluster.answer(shown, text)
    if cluster.as_json and fewer:
        click.echo(f"{name}: {fewer}", err=True)


def forecast(client: NimbusClient, name: str, workers: int | None, parallelism: Mapping[str, int]) -> str:
    """Return that there will be fewer workers than wanted, and why; "" otherwise, or when that is not known. The rebalance has
    begun in any case."""
    try:
        return fewer_to_come(client.topology(name), client.supervisors(), workers, parallelism)
    except SquallError:
        return ""


def wait_until_placed(client: NimbusClient, name: str) -> TopologyAnswer:
    """Wait until the rebalance is over and every worker has opened its tasks; return the status."""
    began = time.monotonic()
    has_begun = False

    def check() -> tuple[TopologyAnswer | None, str]:
        nonlocal has_begun
        status = client.topology(name)
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
