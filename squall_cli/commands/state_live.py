"""`squall state get NAME`: asks the running tasks of a component, through Nimbus, what they have for a key.

The task to which a key belongs has it; so all workers that run the component are asked, several at a time.
Must not know: how tasks keep state.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final

import msgspec

from squall.api.answers import ConfigurationsAnswer, LiveStateAnswer, WorkerEntry, WorkersAnswer
from squall.reports.live_state import LiveRow
from squall.values import TopologyState
from squall_cli.cluster.cluster_client import ClusterOptions, echo_json
from squall_cli.commands.state_drop import folder_in
from squall_cli.terminal.lines import echo
from topology_api.epoch_rules import STATE_PATH, state_path
from topology_api.errors import SquallError
from topology_api.wording import listed, nearest
from worker.state.saved_rows import SavedRow

if TYPE_CHECKING:
    from squall_cli.cluster.nimbus_client import NimbusClient

#: The states of a topology without workers.
OVER: Final = tuple(state for state in TopologyState if state.asks == "stop")
#: How many workers are asked at a time.
AT_ONCE: Final = 8
NO_ANSWER: Final = (
    "{worker} on {host} does not answer: it is starting, its process is stopped, or a call holds Python's own lock (the GIL);"
    " `squall status {name}` says which if the worker stays silent"
)


class Asked(msgspec.Struct, frozen=True):
    """What a worker has answered. `why`: why it has not, as a sentence; "": it has."""

    worker: WorkerEntry
    answer: LiveStateAnswer | None
    why: str = ""


def show_live(cluster: ClusterOptions, name: str, component: str, wanted: Any, only: str) -> None:
    """Print what the running task of a key has. Raises `SquallError` if it has nothing, or could not be asked."""
    from squall_cli.commands.state import StateRow, show_rows

    with cluster.asked(name) as client:
        workers = workers_of(client, name, component)
        found = answers_of(
            cluster, client, name, workers, {"component": component, "key": json.dumps(wanted), "state": only}
        )
    for asked in found:
        if asked.answer is not None and asked.answer.refusal:
            raise SquallError(asked.answer.refusal)
    tasks = [task for asked in found if asked.answer is not None for task in asked.answer.tasks]
    having = [task for task in tasks if task.rows]
    silent = [asked.why for asked in found if asked.why] + [task.why for task in tasks if task.why]
    if not having:
        raise SquallError(nothing_found(found, silent, component, wanted, only))
    rows = [StateRow(component, task.index, saved(row)) for task in having for row in task.rows]
    omitted = [row.omitted for task in having for row in task.rows]
    epoch = having[0].epoch
    if cluster.as_json:
        shown = [{**row.shown, "omitted": rest} for row, rest in zip(rows, omitted)]
        echo_json({"live": True, "epoch": epoch, "rows": shown})
        return
    echo(f"{json.dumps(wanted, ensure_ascii=False)} in {component}, {when(epoch)}:")
    show_rows(rows)
    for row, rest in zip(rows, omitted):
        if rest:
            echo(f"{row.row.state}: without {rest}; --epoch N shows all of a commit", err=True)


def when(epoch: int | None) -> str:
    """Return how a value of a running task relates to commits."""
    if epoch is None:
        return "live (the topology has no topology.state.path, so nothing is committed)"
    return f"live, after commit {epoch}" if epoch else "live, before the first commit"


def saved(row: LiveRow) -> SavedRow:
    """Return a row as those of an epoch are."""
    key, value = json.loads(row.key), json.loads(row.value)
    return SavedRow(row.state, row.kind, key, value, row.written, row.expires)


def workers_of(client: NimbusClient, name: str, component: str) -> list[WorkerEntry]:
    """Return the workers that run tasks of a component. Raises `SquallError` if there is none."""
    topology = client.topology(name)
    if component not in topology.components:
        known = sorted(topology.components)
        advice = nearest(component, known) or f"; there are: {listed(known)}"
        raise SquallError(f"{name} has no component {component!r}{advice}")
    there = client.read(WorkersAnswer, "topologies", name, "workers").workers
    found = [each for each in there if any(row.component == component for row in each.tasks)]
    if topology.state in OVER or not found:
        raise SquallError(
            f"{name} is {topology.state} and no task of {component} runs, so nothing can be asked; {committed_at(client, name)}"
        )
    return found


def committed_at(client: NimbusClient, name: str) -> str:
    """Return where committed state can be read, as a part of a sentence."""
    conf = client.read(ConfigurationsAnswer, "topologies", name, "configuration").conf
    if state_path(conf) is None:
        return f"it commits nothing, since {STATE_PATH} is null"
    folder = folder_in(conf, name)
    return f"--epoch N shows what was committed (`squall state list {folder}` lists the epochs)"


def answers_of(
    cluster: ClusterOptions,
    client: NimbusClient,
    name: str,
    workers: Sequence[WorkerEntry],
    question: dict[str, str],
) -> list[Asked]:
    """Ask workers, several at a time."""
    if len(workers) == 1:
        return [ask(client, name, workers[0], question)]

    def alone(worker: WorkerEntry) -> Asked:
        with closing(cluster.connected()) as own:
            return ask(own, name, worker, question)

    with ThreadPoolExecutor(min(AT_ONCE, len(workers))) as pool:
        return list(pool.map(alone, workers))


def ask(client: NimbusClient, name: str, worker: WorkerEntry, question: dict[str, str]) -> Asked:
    """Ask one worker."""
    from squall.http.client import Refused

    place = "topologies", name, "workers", worker.worker, "state"
    try:
        answer, _ = client.post_json(LiveStateAnswer, *place, body=question, repeatable=True)
    except Refused as refused:
        if refused.kind == "NoSuchTopology" or refused.status in (400, 401):
            raise
        return Asked(worker, None, f"{worker.worker} on {worker.host} could not be asked: {refused}")
    if not answer.answered:
        return Asked(worker, None, NO_ANSWER.format(worker=worker.worker, host=worker.host, name=name))
    return Asked(worker, answer)


def nothing_found(
    found: Iterable[Asked], silent: Sequence[str], component: str, wanted: Any, only: str
) -> str:
    """Return the error for a key of which no task has shown anything."""
    key = json.dumps(wanted, ensure_ascii=False)
    if silent:
        return "; ".join([f"the task that has the key {key} of {component} was not reached", *silent])
    states = next((asked.answer.states for asked in found if asked.answer is not None), ())
    if only and only not in states:
        there = nearest(only, states) or f"; its states are: {listed(states)}"
        return f"{component} has no state {only!r}, and the key {key} no timer of this name{there}"
    what = f"state {only!r}" if only else "state"
    hint = '7 and "7" are two keys: write keys as `squall state export` writes them'
    return f"{component} has no {what} for the key {key} at the moment ({hint})"
