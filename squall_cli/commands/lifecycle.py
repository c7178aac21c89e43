"""`squall kill`, `activate`, `deactivate` and `rebalance`: move a topology from one state to the next."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import nullcontext, suppress
from functools import partial
from typing import TYPE_CHECKING, Final

import click

from squall_cli.cluster import placed
from squall_cli.cluster.cluster_client import (
    ClusterOptions,
    Command,
    check_timeout,
    cluster_options,
    timeout_option,
    wait_secs_option,
)
from squall_cli.cluster.waiting import Overdue, obeyed, wait
from squall_cli.commands import completion
from squall_cli.options.kinds import Whole, task_counts
from squall_cli.terminal.formats import plural
from squall_cli.terminal.lines import echo
from topology_api.errors import SquallError

if TYPE_CHECKING:
    from squall.api.answers import TopologyAnswer
    from squall_cli.cluster.nimbus_client import NimbusClient

#: The reasons why a spout that has no open trees is idle.
AT_REST: Final = ("inactive", "finished", "not open yet")


def waits_option(text: str) -> Callable[[Command], Command]:
    """Return the options --wait and --timeout."""
    wait_flag = click.option("--wait", "waits", is_flag=True, help=text)
    return lambda command: wait_flag(timeout_option()(command))


@click.command()
@completion.name_argument
@wait_secs_option("How long the topology may drain.  [default: topology.message.timeout.secs]")
@waits_option("Return when the topology is gone.")
@cluster_options
def kill(
    cluster: ClusterOptions, name: str, wait_secs: float | None, waits: bool, timeout: float | None
) -> None:
    """Drain a topology and remove it.

    The topology's spouts stop, and tuples in flight are processed for at most SECS seconds (by default the topology's message
    timeout); then the remaining tuples fail with the reason "stopped". The name is free when the topology is gone. To change
    the deadline, repeat the command with a different -w.

    A kill is final, also for a version on trial: the version before it is removed, too, and a topology with a state path
    commits what the version on trial has processed. `squall rollback` takes that back instead.

    \b
    Examples:
      squall kill word-count
      squall kill word-count --wait --timeout 60
      squall kill word-count -w 0          # at once
    """
    from squall.api.answers import StateAnswer

    check_timeout(waits, timeout)
    with cluster.asked(name) as client:
        killed = None
        with nullcontext() if waits else suppress(SquallError):  # without --wait, only for a sentence
            killed = client.topology_or_none(name)
        _, shown = obeyed(partial(client.delete_json, StateAnswer, "topologies", name, wait_secs=wait_secs))
        if killed is not None and (text := end_of_trial(killed)):
            echo(text, err=True)
        if waits and killed is not None:
            wait_until_gone(client, name, killed.id, timeout)
    what = "is gone" if waits else "is being killed: it drains, then it is gone"
    cluster.answer({**shown, "gone": waits}, f"{name} {what}.")


def end_of_trial(status: TopologyAnswer) -> str:
    """Return what the kill of a version on trial means; "" if it was not on trial."""
    if status.stands_by is None:
        return ""
    text = f"{status.name} was on trial: the previous version ({status.stands_by.id}) does not run again"
    if status.epoch is not None:
        text += ", and what this one has processed when it has drained is committed"
    return text


def wait_until_gone(client: NimbusClient, name: str, killed: str, within: float | None) -> None:
    """Wait until the name is free, or until a different submission has the name. Raises `Overdue` after `within` seconds."""

    def check() -> tuple[bool | None, str]:
        status = client.topology_or_none(name)
        if status is None or status.id != killed:
            return True, ""
        if pending := pending_trees(status):
            return None, f"{name} drains: {plural(pending, 'tree')} pending"
        if any(worker.state not in placed.LEAVING for worker in status.workers):
            return None, f"{name} drains"
        return None, f"{name}: its workers stop"

    wait(check, within)


def pending_trees(status: TopologyAnswer) -> int:
    """Return the number of open trees of all spouts."""
    return sum(component.pending for component in status.components.values())


@click.command()
@completion.name_argument
@cluster_options
def activate(cluster: ClusterOptions, name: str) -> None:
    """Start the spouts of a topology.

    \b
    Example:
      squall activate word-count
    """
    with cluster.asked(name) as client:
        answer, shown = obeyed(partial(client.change, name, "activate", repeatable=True))
    cluster.answer(shown, f"{name} is {answer.state}.")


@click.command()
@completion.name_argument
@wait_secs_option("Wait for tuples in flight, at most this long.")
@waits_option("Return when no tree is in flight any more.")
@cluster_options
def deactivate(
    cluster: ClusterOptions, name: str, wait_secs: float | None, waits: bool, timeout: float | None
) -> None:
    """Stop the spouts of a topology; tuples in flight are processed.

    The topology's workers keep running, and its bolts keep their memory. `squall activate` starts the spouts again.

    \b
    Examples:
      squall deactivate word-count
      squall deactivate word-count --wait    # until no tree is in flight
      squall deactivate word-count -w 30     # the same; exit status 1 after 30 s
    """
    check_timeout(waits or wait_secs is not None, timeout)
    limits = [limit for limit in (wait_secs, timeout) if limit is not None]
    with cluster.asked(name) as client:
        answer, shown = obeyed(partial(client.change, name, "deactivate", repeatable=True))
        if waits or wait_secs is not None:
            wait_until_at_rest(client, name, min(limits, default=None))
    cluster.answer(shown, f"{name} is {answer.state}.")


def wait_until_at_rest(client: NimbusClient, name: str, within: float | None) -> None:
    """Wait until no spout has an open tree. Raises `Overdue` after `within` seconds, SquallError if the topology leaves
    INACTIVE."""
    pending = 0
    began = time.monotonic()
    was_inactive = False

    def check() -> tuple[bool | None, str]:
        nonlocal pending, was_inactive
        status = client.topology(name)
        if status.state != "INACTIVE":
            if status.state == "ACTIVE" and not was_inactive and time.monotonic() - began < placed.LAG_SECS:
                return None, f"waiting for Nimbus to list {name} as INACTIVE"
            raise SquallError(f"{name} is {status.state} by now, not INACTIVE: stopped waiting")
        was_inactive = True
        pending = pending_trees(status)
        spouts = [each for each in status.components.values() if each.kind == "spout"]
        if not pending and all(each.idle in AT_REST for each in spouts):
            return True, ""
        doing = f"{plural(pending, 'tree')} in flight" if pending else "its spouts stop"
        return None, f"{name} is INACTIVE: {doing}"

    try:
        wait(check, within)
    except Overdue:
        raise Overdue(
            f"{name} is INACTIVE, but {plural(pending, 'tree')} had not been acked or failed after {within:g} s; they are still"
            " processed, or fail at their message timeout"
        ) from None


@click.command()
@completion.name_argument
@click.option("-n", "--workers", metavar="N", type=Whole(1), help="The new number of worker processes.")
@click.option(
    "-e",
    "--parallelism",
    metavar="ID=N",
    multiple=True,
    callback=task_counts,
    shell_complete=completion.parallelism,
    help="A component's new number of tasks. May be repeated.",
)
@wait_secs_option("How long the topology may drain.  [default: topology.message.timeout.secs]")
@waits_option("Return when every worker of the new assignment runs.")
@cluster_options
def rebalance(
    cluster: ClusterOptions,
    name: str,
    workers: int | None,
    parallelism: dict[str, int],
    wait_secs: float | None,
    waits: bool,
    timeout: float | None,
) -> None:
    """Change the number of workers or tasks of a topology, or spread it over the current hosts.

    The topology's spouts stop, and tuples in flight are processed for at most SECS seconds; then all tasks are placed as if
    they were new. A worker keeps its process if its slot still has all of the worker's tasks. Every other worker is replaced by
    a new process: its tasks are opened or prepared again, their memory is lost, and squall logs no longer shows the old
    worker's log. If you change the number of workers, most workers are replaced, often all. If a component's number of tasks
    changes, all of its tasks are new. With topology.state.path, the topology commits first, and all tasks go on from this
    commit with their declared state.

    \b
    Examples:
      squall rebalance word-count                         # after new hosts joined
      squall rebalance word-count -n 4 --wait
      squall rebalance word-count -e count=8 -e split=2 -w 60
    """
    from msgspec import to_builtins

    check_timeout(waits, timeout)
    body = {"workers": workers, "parallelism": parallelism or None, "wait_secs": wait_secs}
    with cluster.asked(name) as client:
        _, shown = obeyed(partial(client.change, name, "rebalance", body=body))
        if waits:
            status = wait_until_placed(client, name, timeout)
            whole = to_builtins(status)
            shown = {key: whole[key] for key in ("name", "state", "workers", "workers_wanted")}
            there = client.supervisors() if placed.has_fewer_workers(status) else ()
            fewer = placed.fewer_workers(status, there)
            text = f"{name} is {status.state} again{f', with {fewer}' if fewer else ''}."
        else:
            fewer = ""
            with suppress(SquallError):  # if Nimbus does not answer: the rebalance has already begun
                fewer = placed.fewer_to_come(
                    client.topology(name), client.supervisors(), workers, parallelism
                )
            over = f", over {fewer}" if fewer else ""
            text = f"{name} is being rebalanced: it drains, then its tasks are placed again{over}."
    cluster.answer(shown, text)
    if cluster.as_json and fewer:
        echo(f"{name}: {fewer}", err=True)


def wait_until_placed(client: NimbusClient, name: str, within: float | None) -> TopologyAnswer:
    """Wait until the rebalance is finished and every worker has opened its tasks; return the status. Raises `Overdue` after
    `within` seconds."""
    began = time.monotonic()
    has_begun = False

    def check() -> tuple[TopologyAnswer | None, str]:
        nonlocal has_begun
        status = client.topology(name)
        state = status.state
        if state == "REBALANCING":
            has_begun = True
            return None, f"{name} drains: {plural(pending_trees(status), 'tree')} pending"
        if state == "FAILED":
            raise SquallError(f"{name} has FAILED: {status.error}")
        if state not in placed.PLACED:
            raise SquallError(f"{name} is {state} by now: stopped waiting for its rebalance")
        if not has_begun and time.monotonic() - began < placed.LAG_SECS:
            return None, f"{name}: waiting for Nimbus to begin"
        there = [worker for worker in status.workers if worker.state not in placed.LEAVING]
        opened = sum(worker.opened for worker in there)
        if there and opened == len(there):
            return status, ""
        return None, f"{name}: {opened} of {plural(len(there), 'worker')} ready"

    return wait(check, within)
