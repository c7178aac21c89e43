"""The report on a worker's epochs: worker -> `EpochReport`. It says which tasks hold up an epoch or a rewind, and why.

Any thread may read while the worker runs, also while its loop is inside a long call: what other threads change is copied as a
whole. Nothing is changed but the own earlier readings.
Must not know: how reports travel, who shows them.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import TYPE_CHECKING, Final

from squall.epoch_status import (
    LONG_WAIT,
    MOST_TASKS,
    EpochReport,
    EpochWait,
    LeadReport,
    SlowTask,
    WaitsFor,
    waits_of_step,
)
from worker.epochs.coordinator import EpochPhase
from worker.epochs.participant import Participant, TaskPhase
from worker.epochs.records import component_of
from worker.errors.reports import short_line
from worker.loop.epoch_lead import EpochLead
from worker.tasks.epoch_spout import EpochSpoutTask
from worker.tasks.special_batches import MarkerBatch

if TYPE_CHECKING:
    from worker.loop.epoch_tasks import EpochTask
    from worker.loop.epoch_worker import EpochWorker

_log = logging.getLogger(__name__)

#: Phases in which a coordinator has read the log, and no other is known to lead.
TELLING: Final = frozenset(EpochPhase) - {EpochPhase.READING, EpochPhase.CLAIMING, EpochPhase.DEPOSED}
#: Seconds between two looks of the loop at what it has to log, and after which a wait is logged.
LOOK_SECONDS: Final = 1.0
LONG_END: Final = 10.0
LOGGED: Final[dict[WaitsFor, str]] = {
    "store": "the topology has waited for the store of its state",
    "commit": "a spout has emitted nothing",
    "alignment": "an epoch has not ended",
    "rewind": "not all tasks have returned to the last commit",
}
#: The most inputs of a task that a text lists.
MOST_INPUTS: Final = 3


class EpochTelling:
    """What one worker tells."""

    def __init__(self, worker: EpochWorker) -> None:
        self.worker = worker
        #: Since when a spout task was found at the limit of uncommitted tuples.
        self.full_since: dict[int, float] = {}
        #: What the log has said of what is still waited for, and when to look again.
        self.logged: frozenset[tuple[WaitsFor, float]] = frozenset()
        self.next_look = 0.0

    def report(self) -> EpochReport:
        """Return what there is to tell now."""
        worker, now = self.worker, self.worker.now()
        lead = worker.lead
        waits = [*self.of_store(now), *self.of_spouts(now), *self.of_tasks(now)]
        return EpochReport(None if lead is None else self.of_lead(lead, now), tuple(waits))

    # The coordinator.

    def of_lead(self, lead: EpochLead, now: float) -> LeadReport | None:
        """Return what the coordinator knows; None if it does not lead yet, or no longer."""
        coordinator = lead.coordinator
        view, facts, phase = coordinator.view, coordinator.facts, coordinator.phase
        if phase not in TELLING:
            return None
        step: WaitsFor | None = None
        since, waiting = facts.asked_at, sorted(self.rows_of(list(coordinator.waiting)))
        if since is not None and phase in (EpochPhase.ALIGNING, EpochPhase.RESTORING):
            step = "alignment" if phase is EpochPhase.ALIGNING else "rewind"
        elif phase is EpochPhase.OPEN and (running := self.long_call(now)) is not None:
            # The loop is inside this call, so the end of the epoch, which may be due, cannot begin.
            step, since, waiting = "alignment", coordinator.next_begin, [running]
        durations = list(facts.durations)
        slowest = None
        if facts.slowest is not None:
            row = next(iter(self.rows_of([facts.slowest[0]])), None)
            slowest = None if row is None else SlowTask(*row, round(facts.slowest[1], 6))
        return LeadReport(
            rewind=view.rewind,
            number=view.epoch,
            committed=facts.committed_at,
            duration=round(durations[-1], 6) if durations else None,
            longest=round(max(durations), 6) if durations else None,
            bytes=facts.bytes,
            slowest=slowest,
            quiet=lead.quiet,
            rewinds=view.rewinds,
            rewound=facts.rewound_at if view.rewinds else None,
            rewind_reason=short_line(facts.rewind_reason) if view.rewinds else "",
            step="" if step is None else step,  # type: ignore[arg-type]
            since=None if step is None else since,
            waiting=() if step is None else tuple(waiting[:MOST_TASKS]),
            more=0 if step is None else max(0, len(waiting) - MOST_TASKS),
            began=facts.began,
            on_trial=coordinator.on_trial,
        )

    def rows_of(self, names: Collection[str]) -> list[tuple[str, int]]:
        """Return (component, task) of the tasks of these names."""
        wanted = frozenset(names)
        rows = self.worker.plan.names.items()
        return [(component_of(name), task) for task, name in rows if name in wanted]

    # The worker.

    def of_store(self, now: float) -> list[EpochWait]:
        """Return what the store keeps waiting."""
        calls = self.worker.calls
        error, running = calls.waits_for, calls.call_since
        if error:
            return [EpochWait("store", calls.waits_since, short_line(error))]
        if running is not None and now - running >= LONG_WAIT:
            why = f"{self.worker.files.doing} has not ended"
            return [EpochWait("store", running, short_line(why))]
        return []

    def of_spouts(self, now: float) -> list[EpochWait]:
        """Return the spouts that may not emit before the next commit, or until a cycle has drained."""
        found = []
        for task in list(self.worker.spouts):
            if (
                not isinstance(task, EpochSpoutTask)
                or not task.opened
                or not (task.held or task.waits_for_commit)
            ):
                self.full_since.pop(task.id, None)
                continue
            since = self.full_since.setdefault(task.id, now)
            if now - since >= LONG_WAIT:
                uncommitted = f"{task.emissions.uncommitted:,} tuples wait for their commit (topology.epoch.uncommitted)"
                why = short_line(task.held) if task.held else uncommitted
                found.append(EpochWait("commit", since, why, task.spec.id, task.id))
        return found

    def of_tasks(self, now: float) -> list[EpochWait]:
        """Return what the tasks here wait for, as far as the running step needs them."""
        epochs, ending = self.worker.epochs, self.worker.epochs.ending
        found: list[EpochWait] = []
        running = self.long_call(now)
        for task in list(epochs.tasks.values()):
            participant = epochs.participants.get(task.id)
            if participant is None or len(found) >= MOST_TASKS:
                continue
            row = task.spec.id, task.id
            what: WaitsFor = "alignment"
            if running is not None and not task.threaded:
                # The loop hears of nothing: neither which epoch ends, nor of a rewind.
                why = (
                    "a call of it does not return"
                    if running == row
                    else f"it waits for a call of {named(running)}"
                )
                follows = running != row
                found += [
                    EpochWait("alignment", task.busy_since, why, *row, follows),
                    EpochWait("rewind", task.busy_since, why, *row, follows),
                ]
                continue
            if participant.phase in (TaskPhase.RESTORING, TaskPhase.SHOWING):
                what, since = "rewind", epochs.rewinding.since
                why = (
                    "its snapshot is being read"
                    if participant.phase is TaskPhase.RESTORING
                    else "what is committed is being shown outside"
                )
            elif ending is not None:
                since, why = ending[1], self.why_not_ended(task, participant, ending[0], now)
            else:
                continue
            if why and now - since >= LONG_WAIT:
                follows = what == "alignment" and self.waits_for_barriers(task, participant, ending)
                found.append(EpochWait(what, since, why, *row, follows))
        return found

    def why_not_ended(self, task: EpochTask, participant: Participant, epoch: int, now: float) -> str:
        """Return why there is no snapshot of a task of the epoch that ends; "": there is one."""
        ending, alignment = participant.ending, participant.alignment
        if ending is not None:
            if not ending.prepared:
                return "its rows are being staged"
            if not ending.data.whole:
                return "its snapshot is being encoded"
            return "its snapshot is being written" if ending.written else "barriers of a cycle are missing"
        if task.id in self.worker.epochs.marked:
            calls = "a call of it does not return" if task.jobs and now - task.busy_since >= LONG_WAIT else ""
            waiting = tuples_before_marker(task)
            tuples = f"{waiting:,} tuples are before the barrier" if waiting else ""
            return ", and ".join(filter(None, (tuples, calls))) or "it has not reached the barrier"
        if alignment.marked >= epoch:
            return ""
        sources = self.missing_sources(participant)
        if not sources:
            return "it has not reached the barrier"
        more = f" and {len(sources) - MOST_INPUTS} more tasks" if len(sources) > MOST_INPUTS else ""
        return f"no barrier from {', '.join(map(named, sources[:MOST_INPUTS]))}{more}"

    def missing_sources(self, participant: Participant) -> list[tuple[str, int]]:
        """Return (component, task) of the inputs whose barrier a task does not have."""
        alignment = participant.alignment
        missing = alignment.inputs - frozenset(alignment.ended) - frozenset(alignment.behind)
        return sorted(self.rows_of(missing))

    def waits_for_barriers(
        self, task: EpochTask, participant: Participant, ending: tuple[int, float] | None
    ) -> bool:
        """Return whether a task has no snapshot of the epoch that ends because of its inputs."""
        if ending is None or participant.ending is not None or task.id in self.worker.epochs.marked:
            return False
        return participant.alignment.marked < ending[0] and bool(self.missing_sources(participant))

    # The log.

    def log_waits(self, now: float) -> None:
        """Log, once, what has been waited for here for long. Called by the loop, from time to time."""
        self.next_look = now + LOOK_SECONDS
        store = [] if self.worker.calls.waits_for else self.of_store(now)  # an error was logged when it came
        waits = [*store, *self.of_spouts(now), *self.of_tasks(now)]
        lead = None if self.worker.lead is None else self.of_lead(self.worker.lead, now)
        if lead is not None and lead.step and lead.since is not None:  # it knows the tasks of all workers
            waits = [wait for wait in waits if wait.what not in ("alignment", "rewind")]
            waits += waits_of_step(lead, self.of_tasks(now))
        found: dict[tuple[WaitsFor, float], list[str]] = {}
        for wait in waits:
            if now - wait.since >= LONG_END:
                who = named((wait.component, wait.task)) if wait.task is not None else ""
                text = ": ".join(filter(None, (who, wait.why)))
                found.setdefault((wait.what, wait.since), []).append(text)
        for (what, since), texts in found.items():
            if (what, since) not in self.logged:
                _log.warning("%s for %.0f s: %s", LOGGED[what], now - since, "; ".join(texts))
        self.logged = frozenset(found)

    def long_call(self, now: float) -> tuple[str, int] | None:
        """Return (component, task) of the call in which the worker's loop has been for seconds; None: there is none."""
        running = self.worker.running
        if running is None or now - running.busy_since < LONG_WAIT:
            return None
        return running.spec.id, running.id


def tuples_before_marker(task: EpochTask) -> int:
    """Return how many tuples a task will execute before it reaches its marker."""
    found = 0
    for batch in list(task.inbox):
        if isinstance(batch, MarkerBatch):
            break
        found += len(batch) - batch.position
    return found


def named(row: tuple[str, int]) -> str:
    """Return a task's name."""
    return f"{row[0]}[{row[1]}]"
