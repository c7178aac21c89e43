"""`squall supervisors`: the hosts of a cluster, their slots, and the workers in them. `squall drain`: move all work away from a
host, or allow work there again."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import click

from squall.api.cluster_answers import DrainAnswer, SupervisorEntry, SupervisorsAnswer
from squall_cli.cluster.cluster_client import ClusterOptions, check_timeout, cluster_options, timeout_option
from squall_cli.cluster.placed import LAG_SECS
from squall_cli.cluster.waiting import obeyed, wait
from squall_cli.commands import completion
from squall_cli.terminal.formats import plural, to_type
from squall_cli.terminal.lines import echo
from squall_cli.terminal.tables import Cell, TableColumn, show, table_of
from topology_api.errors import SquallError
from topology_api.wording import listed, nearest

if TYPE_CHECKING:
    from squall_cli.cluster.nimbus_client import NimbusClient


NOTHING: Final = "There are no supervisors; `squall supervisor` starts one on its host."
COLUMNS: Final[tuple[TableColumn[SupervisorEntry], ...]] = (
    TableColumn("HOST", lambda each: each.host, elastic=True),
    TableColumn("STATE", lambda each: state_of(each)),
    TableColumn("USED", lambda each: str(each.used), number=True),
    TableColumn("SLOTS", lambda each: str(each.slots), number=True),
    TableColumn("CPUS", lambda each: resource(each, "cpus", 1, "{:g}"), number=True, rank=4),
    TableColumn("MEMORY", lambda each: resource(each, "memory_bytes", 2**30, "{:.1f}G"), number=True, rank=5),
    TableColumn("SQUALL", lambda each: each.versions.get("squall", "-"), rank=3),
    TableColumn("PYTHON", lambda each: each.versions.get("python", "-"), rank=3),
    TableColumn("ID", lambda each: each.id, rank=2),
    TableColumn("WORKERS OF", lambda each: workers_of(each), elastic=True, rank=1),
)


@click.command()
@cluster_options
def supervisors(cluster: ClusterOptions) -> None:
    """List the supervisors of a cluster with their hosts, slots and workers.

    \b
    Examples:
      squall supervisors
      squall supervisors --json | jq '.supervisors[] | select(.drained) | .host'
    """

    with cluster.asked() as client:
        answer, shown = client.read_json(SupervisorsAnswer, "supervisors")
    if not cluster.answer_list(shown, answer.supervisors, NOTHING):
        return
    there = sorted(answer.supervisors, key=lambda each: (each.host, each.id))
    show(table_of(COLUMNS, there), sys.stdout)
    if sys.stdout.isatty():
        echo(f"\n{summary(there)}")
    else:
        echo(summary(there), err=True)  # stdout has only the table, for pipes
    for each in there:
        if each.cannot_start:
            echo(f"{each.host} cannot start workers: {each.cannot_start}", err=not sys.stdout.isatty())


def resource(supervisor: SupervisorEntry, name: str, unit: int, form: str) -> str:
    """Return a resource of a host in a unit; a dash if it is not known."""
    amount = supervisor.resources.get(name)
    return "-" if amount is None else form.format(amount / unit)


def workers_of(supervisor: SupervisorEntry) -> str:
    """Return the names of the topologies that have workers on a supervisor, each with the number of these workers."""
    workers = Counter(worker.topology for worker in supervisor.workers)
    return ", ".join(f"{name} {number}" for name, number in sorted(workers.items()))


def state_of(supervisor: SupervisorEntry) -> Cell:
    """Return a supervisor's state. `away`: the supervisor sends no heartbeats; its workers run until their lease ends, and
    after that the workers' tasks move. `cannot start`: its host cannot start workers; those that run continue."""
    if not supervisor.connected:
        return "away", "bad"
    if supervisor.cannot_start:
        return "cannot start", "bad"
    if supervisor.drained:
        return ("draining" if supervisor.used else "drained"), "warn"
    return "ready", "good"


def summary(there: Sequence[SupervisorEntry]) -> str:
    """Return the number of supervisors, and of used and free slots."""
    total = sum(each.slots for each in there)
    used = sum(each.used for each in there)
    return f"{plural(len(there), 'supervisor')}; {used} of {plural(total, 'slot')} used, {free_slots(there)} free"


def free_slots(there: Sequence[SupervisorEntry]) -> int:
    """Return the number of slots that can get a worker."""
    return sum(max(0, each.slots - each.used) for each in there if each.connected and each.takes_workers)


@click.command()
@click.argument("supervisor", metavar="SUPERVISOR", shell_complete=completion.supervisors)
@click.option("--undo", is_flag=True, help="Allow work on the host again.")
@click.option("--wait", "waits", is_flag=True, help="Return when the host has no workers.")
@timeout_option()
@cluster_options
def drain(cluster: ClusterOptions, supervisor: str, undo: bool, waits: bool, timeout: float | None) -> None:
    """Move all work away from a host, to take it out of service.

    SUPERVISOR is a host's name, the id of one supervisor, or the beginning of an id. The host gets no new work while another
    host has a free slot. The topologies that have workers there are rebalanced one after the other, without failing a tuple.

    \b
    Examples:
      squall drain host-3 --wait      # afterwards you may stop its supervisor
      squall drain host-3 --undo      # a rebalance may place work there again
    """
    if undo and waits:
        raise click.UsageError("--undo takes effect at once: leave out --wait")
    check_timeout(waits, timeout)
    from msgspec import to_builtins

    with cluster.asked() as client:
        meant = [each.id for each in meant_by(supervisor, client.supervisors())]
        for each in meant:
            change = "undrain" if undo else "drain"
            obeyed(partial(client.post_json, DrainAnswer, "supervisors", each, change, repeatable=True))
        if waits:
            wait_until_empty(client, supervisor, meant, timeout)
        there = client.supervisors()
    found = [each for each in there if each.id in meant]
    used = sum(each.used for each in found)
    full = "" if undo or not used else no_room(there, meant)
    if undo:
        text = f"Work may be placed on {supervisor} again; `squall rebalance NAME` also uses this host again."
    elif used:
        but = f", but {full}" if full else ""
        text = f"{supervisor} is being drained: {plural(used, 'worker')} to move{but}."
    else:
        text = f"{supervisor} is drained: no worker is left there."
    cluster.answer({"supervisors": to_builtins(found)}, text)
    if cluster.as_json and full:
        echo(f"{supervisor}: {full}", err=True)


def meant_by(text: str, there: Sequence[SupervisorEntry]) -> list[SupervisorEntry]:
    """Return the supervisors that a text names. The text is a host's name, an id, or the beginning of an id. Raises SquallError
    if there is no such supervisor, or if the text is ambiguous."""
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
    """Return the known supervisors that may get work, except those in `meant`."""
    return [each for each in there if each.id not in meant and each.takes_workers]


def no_room(there: Sequence[SupervisorEntry], meant: Sequence[str]) -> str:
    """Return why the workers of these supervisors cannot move now; "" if the workers can move."""
    others = others_of(there, meant)
    if not others:
        return "there is no other host for these workers: they stay until a supervisor is started on another host"
    if not free_slots(others):
        return "no slot is free on another host: the workers stay until a slot is free, or until a new supervisor is started"
    return ""


def wait_until_empty(client: NimbusClient, name: str, meant: Sequence[str], within: float | None) -> None:
    """Wait until these supervisors have no workers. Raises `Overdue` after `within` seconds, and SquallError if there is no
    other supervisor or the drain was undone."""
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

    wait(check, within)
