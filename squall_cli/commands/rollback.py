"""`squall rollback`: an earlier version of a topology is submitted again, and replaces the present one.

Must not know: which version is chosen, when a topology has come up (see the imported modules).
"""

from __future__ import annotations

import sys
import uuid
from typing import TYPE_CHECKING, Any

import click

from squall_cli.cluster import cluster_client
from squall_cli.cluster.waiting import Interrupted
from squall_cli.commands import completion
from squall_cli.commands.lifecycle import waits_option
from squall_cli.options.state_start import state_option, what_comes_again
from squall_cli.terminal.formats import to_type
from squall_cli.terminal.interrupts import all_as_ctrl_c
from squall_cli.terminal.lines import write, write_json
from topology_api.errors import SquallError

if TYPE_CHECKING:
    from squall.api.answers import SubmittedAnswer


@click.command()
@completion.name_argument
@click.argument("version", required=False)
@cluster_client.wait_secs_option("How long the present version may drain.  [default: its message timeout]")
@state_option
@waits_option("Show how the version comes up; return when a tree is acked.")
@cluster_client.cluster_options
def rollback(
    cluster: cluster_client.ClusterOptions,
    name: str,
    version: str | None,
    wait_secs: float | None,
    state_start: str,
    waits: bool,
    timeout: float | None,
) -> None:
    """Replace the present version of a topology by an earlier one.

    VERSION is an id that `squall history` shows, or the number in it. Without VERSION, the version that was replaced last
    returns. It is submitted again, as a new version with the code, files and settings that it had, and is on trial like any new
    version: if it fails, the present version runs again. A present version that is on trial itself ends at
    once, and the version before it returns.

    A topology with a state path goes on from its last commit, if the version that returns can read its state; else name an
    epoch that the version can read by --state.

    \b
    Examples:
      squall rollback word-count --wait
      squall rollback word-count word-count-3-1795264156
      squall rollback word-count 3 -w 60 --wait --timeout 300
      squall rollback word-count 3 --state @1417
    """
    cluster_client.check_timeout(waits, timeout)
    with all_as_ctrl_c():
        go(cluster, name, version, wait_secs, state_start, waits, timeout)


def go(
    cluster: cluster_client.ClusterOptions,
    name: str,
    version: str | None,
    wait_secs: float | None,
    state_start: str,
    waits: bool,
    timeout: float | None,
) -> None:
    """Ask for the rollback, watch it, and print the outcome to stdout. Raise `SquallError` for a failure."""
    from squall_cli.packing.submission import OutgoingSubmission, post
    from squall_cli.packing.watching import Steps, differences, watch, watch_begin

    body: dict[str, object] = {"submission": uuid.uuid4().hex, "version": version, "wait_secs": wait_secs}
    if state_start:
        body["state"] = state_start
    accepted: SubmittedAnswer | None = None
    try:
        with Steps() as steps:
            with cluster.asked(name) as client:
                place = ("topologies", name, "rollback")
                accepted = post(client, OutgoingSubmission(name, body, place=place), steps.show)
            steps.done(f"rolling back: {how_it_returns(accepted)}")
            for line in differences(accepted):
                steps.done(line)
            result: dict[str, Any] = {"name": name, "id": accepted.id, "state": accepted.state}
            result |= {"repeats": accepted.repeats, "changed": accepted.changed}
            result |= {"rolled_back": accepted.rolled_back}
            failure, begins = None, what_comes_again(state_start, None) if state_start else ""
            if waits:
                failure = watch(client, accepted, steps, result, timeout)
                steps.done(begins if failure is None and accepted.rolled_back is None else "")
            elif begins:
                failure = watch_begin(client, accepted, steps, result, True, begins)
    except KeyboardInterrupt:
        if accepted is None:  # if the request may have arrived, `post` has raised a different error
            raise Interrupted("interrupted: nothing was changed") from None
        raise Interrupted(
            f"stopped waiting; the rollback of {name} continues: {to_type('status', name)}"
        ) from None
    if cluster.as_json:
        write_json(sys.stdout, {**result, "failure": failure})
    elif failure is None and accepted.rolled_back is not None and not waits:
        stopped = f"when the workers of {accepted.rolled_back} have stopped"
        write(sys.stdout, f"{accepted.id} returns {stopped}: {to_type('status', name)}")
    elif failure is None:
        write(sys.stdout, f"{name} is {result['state']}: {to_type('status', name)}")
    if failure is not None:
        raise SquallError(failure)


def how_it_returns(accepted: SubmittedAnswer) -> str:
    """Return which version returns, and how."""
    if accepted.rolled_back is not None:
        return f"{accepted.rolled_back} is on trial and ends, {accepted.id} returns"
    return f"{accepted.repeats} returns as {accepted.id}"
