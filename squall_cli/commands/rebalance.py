"""`squall rebalance`: the tasks of a topology placed anew, over other workers or in other numbers."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from squall_cli import cluster_client, completion
from squall_cli.figures import plural
from squall_cli.lifecycle import pending_trees, wait_secs_option
from squall_cli.numbers import Whole
from squall_cli.placed import LAG_SECS, LEAVING, PLACED, fewer_to_come, fewer_workers, has_fewer_workers

if TYPE_CHECKING:
    from squall.http_client import Client

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
    from squall.http_client import at
    from squall_cli.waiting import obeyed

    body = {"workers": workers, "parallelism": parallelism or None, "wait_secs": wait_secs}
    with cluster_client.about(client, name):
        answer = obeyed(lambda: client.post(at("topologies", name, "rebalance"), body))
        if wait:
            status = wait_until_placed(client, name)
            answer = {key: status.get(key) for key in ("name", "state", "workers", "workers_wanted")}
            fewer = ""
            if has_fewer_workers(status):
                fewer = fewer_workers(status, client.get("supervisors")["supervisors"])
        else:
            fewer = forecast(client, name, workers, parallelism)
    if as_json:
        click.echo(json.dumps(answer, indent=2))
        if fewer:
            click.echo(f"{name}: {fewer}", err=True)
    elif wait:
        click.echo(f"{name} is {answer['state']} again{f', with {fewer}' if fewer else ''}.")
    else:
        over = f", over {fewer}" if fewer else ""
        click.echo(f"{name} is being rebalanced: it drains, then its tasks are placed anew{over}.")


def forecast(client: Client, name: str, workers: int | None, parallelism: Mapping[str, int]) -> str:
    """That there will be fewer workers than were asked for, and why; "" when there will not, or nobody can tell: the rebalance
    has begun in any case."""
    from squall.http_client import at
    from topology_api.errors import SquallError

    try:
        status = client.get(at("topologies", name))
        return fewer_to_come(status, client.get("supervisors")["supervisors"], workers, parallelism)
    except SquallError:
        return ""


def wait_until_placed(client: Client, name: str) -> Mapping[str, Any]:
    """Until the rebalance is over and every worker has opened its tasks; the status then."""
    from squall.http_client import at
    from squall_cli.waiting import wait
    from topology_api.errors import SquallError

    began = time.monotonic()
    has_begun = False

    def look() -> tuple[Mapping[str, Any] | None, str]:
        nonlocal has_begun
        status: Mapping[str, Any] = client.get(at("topologies", name))
        state = str(status["state"])
        if state == "REBALANCING":
            has_begun = True
            pending = pending_trees(status)
            return None, f"{name} drains: {plural(pending, 'tree')} pending"
        if state == "FAILED":
            raise SquallError(f"{name} has FAILED: {status['error']}")
        if state not in PLACED:
            raise SquallError(f"{name} is {state} by now: its rebalance is not waited for any longer")
        if not has_begun and time.monotonic() - began < LAG_SECS:
            return None, f"{name}: waiting for Nimbus to begin"
        there = [worker for worker in status["workers"] if worker["state"] not in LEAVING]
        opened = sum(bool(worker["opened"]) for worker in there)
        if there and opened == len(there):
            return status, ""
        return None, f"{name}: {opened} of {plural(len(there), 'worker')} ready"

    found = wait(look)
    assert found is not None  # it waits for as long as it takes
    return found
