"""`squall drain`: move all work away from a host, or let work return."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import click

from squall.api.answers import DrainAnswer, SupervisorEntry
from squall_cli.cluster import cluster_client
from squall_cli.cluster.cluster_client import ClusterOptions
from squall_cli.cluster.placed import LAG_SECS
from squall_cli.cluster.waiting import obeyed, wait
from squall_cli.commands import completion
from squall_cli.commands.supervisors import free_slots
from squall_cli.terminal.formats import plural, to_type
from topology_api.errors import SquallError
from topology_api.wording import listed, nearest

if TYPE_CHECKING:
    from squall_cli.cluster.nimbus_client import NimbusClient


@click.command()
@click.argument("supervisor", metavar="SUPERVISOR", shell_complete=completion.supervisors)
@click.option("--undo", is_flag=True, help="Allow work on the host again.")
@click.option("--wait", "waits", is_flag=True, help="Return when the host has no workers.")
@cluster_client.options
def drain(cluster: ClusterOptions, supervisor: str, undo: bool, waits: bool) -> None:
    """Move all work away from a host, to take it out of service.

    SUPERVISOR is a host's name, the id of one supervisor, or the beginning of an id. The host gets no new work while another
    host has a free slot. The topologies that have workers there are rebalanced one after the other, without failing a tuple.

    \b
    Examples:
      squall drain host-3 --wait      # then its supervisor may be stopped
      squall drain host-3 --undo      # a rebalance may place work there again
    """
    if undo and waits:
        raise click.UsageError("--undo takes effect at once: leave out --wait")
    from msgspec import to_builtins

    with cluster.asked() as client:
        meant = [each.id for each in meant_by(supervisor, client.supervisors())]
        for each in meant:
            change = "undrain" if undo else "drain"
            obeyed(partial(client.post_json, DrainAnswer, "supervisors", each, change, repeatable=True))
        if waits:
            wait_until_empty(client, supervisor, meant)
        there = client.supervisors()
    found = [each for each in there if each.id in meant]
    used = sum(each.used for each in found)
    full = "" if undo or not used else no_room(there, meant)
    if undo:
        text = f"Work may be placed on {supervisor} again; `squall rebalance NAME` spreads a topology over it, too."
    elif used:
        but = f", but {full}" if full else ""
        text = f"{supervisor} is being drained: {plural(used, 'worker')} to move{but}."
    else:
        text = f"{supervisor} is drained: no worker is left there."
    cluster.answer({"supervisors": to_builtins(found)}, text)
    if cluster.as_json and full:
        click.echo(f"{supervisor}: {full}", err=True)


def meant_by(text: str, there: Sequence[SupervisorEntry]) -> list[SupervisorEntry]:
    """Return the supervisors that a host's name, an id or its beginning names; SquallError if none, or if ambiguous."""
    found = [each for each in there if text in (each.id, each.host)]
    if found:
        return found
    found = [each for each in there if each.id.startswith(text)] if text else []
    if len(found) == 1:
        return found
    if found:
        ids = listed(sorted(each.id for each in found))
        raise SquallError(f"{text!r} is the beginning of {len(found)} ids, give more characters: {ids}")

    hosts = sorted({each.host for each in there})
    raise SquallError(
        f"there is no supervisor {text!r}{nearest(text, hosts) or f'; there are: {listed(hosts)}'}"
    )


def others_of(there: Sequence[SupervisorEntry], meant: Sequence[str]) -> list[SupervisorEntry]:
    """Return the known supervisors that may get work, without those in `meant`."""
    return [each for each in there if each.id not in meant and not each.drained]


def no_room(there: Sequence[SupervisorEntry], meant: Sequence[str]) -> str:
    """Return why the workers of these supervisors cannot move now; "" if they can."""
    others = others_of(there, meant)
    if not others:
        return "there is no other host to move them to: they run on until a supervisor is started on one"
    if not free_slots(others):
        return "no slot is free on another host: they run on until one is, or a supervisor is started there"
    return ""


def wait_until_empty(client: NimbusClient, name: str, meant: Sequence[str]) -> None:
    """Wait until these supervisors have no workers; SquallError if there is no other supervisor, or the drain was undone."""
    began = time.monotonic()
    was_drained = False

    def check() -> tuple[bool | None, str]:
        nonlocal was_drained
        there = client.supervisors()
        mine = [each for each in there if each.id in meant]
        used = sum(each.used for each in mine)
        if not used:
            return True, ""
        is_drained = all(each.drained for each in mine)
        if not is_drained and (was_drained or time.monotonic() - began > LAG_SECS):
            raise SquallError(f"{name} is no longer drained: another command has undone it")
        was_drained = is_drained
        waiting = ", ".join(sorted({worker.topology for each in mine for worker in each.workers}))
        to_move = f"{plural(used, 'worker')} to move, of {waiting}"
        full = no_room(there, meant)
        if not others_of(there, meant):
            raise SquallError(
                f"{name} gets no more work, but has {to_move}, and {full};"
                f" {to_type('drain', name, '--undo')} takes it back"
            )
        return None, f"{name}: {full.partition(':')[0]}; {to_move}" if full else f"{name}: {to_move}"

    wait(check)
