"""Gives the tasks of a worker their part in epochs.

Must not know: links, coordinators.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from topology_api import RewindableSpout
from topology_api.packing import dumps_by_value
from worker.epochs.alignment import Alignment
from worker.epochs.emissions import Emissions
from worker.epochs.in_memory import InMemory, NothingToUndo
from worker.epochs.messages import Rows
from worker.epochs.parking import Parking
from worker.epochs.participant import Participant
from worker.loop.build import TaskEnvironment
from worker.loop.plan import WorkerPlan
from worker.loop.rescale import files_for
from worker.loop.row_fields import streams_of
from worker.state.history import StateHistory
from worker.tasks.epoch_bolt import EpochBoltTask, EpochSetup
from worker.tasks.epoch_spout import EpochSpoutTask, PickledEmissions
from worker.tracking.replay_policy import Replays

#: The most parked tuples of a task; at the limit it takes no input.
MOST_PARKED: Final = 1000

EpochTask = EpochBoltTask | EpochSpoutTask


def join_epochs(
    task: EpochTask, environment: TaskEnvironment, known: Participant | None, id_of: Callable[[int], Any]
) -> Participant:
    """Give a new task its part in epochs, and return its participant: `known`, that of the object before it in this process, or
    a new one. `id_of`: see `EpochSetup`.
    """
    plan, now, time_of = environment.plan, environment.now, environment.time_of
    conf: Any = task.context.conf
    give_up = conf["topology.outage.give.up.secs"]
    sources = plan.end_sources(task.spec.id) if isinstance(task, EpochBoltTask) else []
    participant = known or new_participant(task, plan)
    participant.emissions.forget_ids()  # the new object has emitted none of them
    participant.submission = plan.topology_id
    barriers, closing = [], []
    if isinstance(task, EpochBoltTask):
        barriers, closing = plan.barrier_sources(task.spec.id), plan.closing_sources(task.spec.id)
    participant.alignment = Alignment(
        [plan.names[source] for source in barriers], [plan.names[source] for source in closing]
    )
    own = plan.range_of(task.spec.id, task.context.index)
    participant.choose_files = partial(
        files_for, participant.task, count=len(plan.tasks_of[task.spec.id]), own=own
    )
    participant.chain.groups = own
    task.join_epochs(
        EpochSetup(
            to_wall=time_of,
            from_wall=lambda time: time - (time_of(now()) - now()),
            names=plan.names,
            replays=replays_of(plan, task.spec.id),
            alignment=participant.alignment,
            parking=participant.parking,
            emissions=participant.emissions,
            give_up_secs=None if give_up is None else float(give_up),
            most_uncommitted=int(conf["topology.epoch.uncommitted"]),
            chain=participant.chain,
            history=history_of(participant),
            id_of=id_of,
        )
    )
    streams = streams_of(plan.topology, task.spec.id)
    participant.row_fields = [(*key, list(names)) for key, names in streams.items()]
    if isinstance(task, EpochBoltTask):
        task.sources = frozenset(sources)
        task.fields_of = {
            (each.source, each.stream): streams[each.source, each.stream] for each in task.spec.inputs
        }
    return participant


def new_participant(task: EpochTask, plan: WorkerPlan) -> Participant:
    """Return the participant of a task."""
    name = plan.names[task.id]
    rewindable = isinstance(task.instance, RewindableSpout)
    emissions = PickledEmissions(rewindable) if isinstance(task, EpochSpoutTask) else Emissions(True)
    restart = plan.incarnation.restart
    memory = InMemory(NothingToUndo() if isinstance(task, EpochSpoutTask) else StateHistory(), task.spec.id)
    memory.numbers = plan.numbers
    made = Participant(name, restart, Alignment(()), Parking(name, MOST_PARKED), emissions, dict, memory)
    made.pack_recorded = pack_recorded
    return made


def history_of(participant: Participant) -> StateHistory:
    """Return what the states of a bolt's task were at its last markers."""
    undo = participant.in_memory.undo
    return undo if isinstance(undo, StateHistory) else StateHistory()


def pack_recorded(rows: Rows) -> list[Any]:
    """Return what came over an edge that closes a cycle, as snapshots keep it: like what a task had in its hands."""
    [batch] = rows.rows
    source = batch.source
    values = [tuple(batch.rows[at]) for at in range(len(batch.rows))]
    return [source.component, source.task, source.stream, True, dumps_by_value(values, 5)]


def replays_of(plan: WorkerPlan, component: str) -> Replays:
    """Return the policies for what fails in a component: those of the spouts before it."""
    return Replays.of({spec.id: plan.topology.load(spec.id).replay for spec in plan.spouts_before(component)})
