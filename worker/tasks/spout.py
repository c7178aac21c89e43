"""A task of a spout: calls `next_tuple`, calls `ack` and `fail` when its trees end, replays failed trees.

A run consists of final calls (`ack`, `fail`) first, then due replays, then `next_tuple` until a limit is reached. A spout task
keeps this promise: while the task lives, every emission with a message id gets exactly one final call, `ack` or `fail`.
Must not know: links, threads, other tasks.
"""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from squall.dead_letters.letter import UNDONE
from squall.reports.histogram import LatencyHistogram
from squall.transport.frames import REPORTS
from topology_api import EmitError, Failure, Replay, Spout, SquallError
from topology_api.wording import is_error
from worker.errors.reports import failure_text
from worker.tasks.acks_at_once import acks_by_many, call_ack_many
from worker.tasks.emitter import SpoutEmitter, short
from worker.tasks.final_failures import (
    fail_for_good,
    fail_left,
    keep_and_fail,
    make_room,
    may_resend,
    own_trees,
    send_again,
)
from worker.tasks.spout_letters import ForBolt, Resent, SpoutLetters
from worker.tasks.spout_verdicts import is_last_resort, most_waiting, reassess
from worker.tasks.spout_wait import SpoutWait, seconds_of
from worker.tasks.task import Task, TaskSetup
from worker.tracking.ack_batch import AckColumns
from worker.tracking.outages import Outages
from worker.tracking.tracker import Emission, Tracker

try:
    import cython
except ImportError:
    from topology_api import plain_cython as cython

#: More trees than can be pending.
_NO_LIMIT = 1 << 62


class SpoutTask(Task):
    """One task of a spout."""

    emitter: SpoutEmitter

    def __init__(self, setup: TaskSetup, emitter: SpoutEmitter) -> None:
        super().__init__(setup)
        self.emitter = emitter
        self.tracker = emitter.tracker
        conf, instance = self.context.conf, self.instance
        limit = conf["topology.max.spout.pending"]
        self.max_pending = None if limit is None else int(limit)  # type: ignore[call-overload]
        #: How much `max_pending` has been raised, so that dead letters on their way to bolts take no place.
        self.letter_places = 0
        self.wait = SpoutWait(float(conf["topology.sleep.spout.wait.strategy.time.ms"]) / 1000)  # type: ignore[arg-type]
        self.replay: Replay | None = instance.replay
        give_up_secs = conf["topology.outage.give.up.secs"]
        self.outages = Outages(
            conf["topology.on.outage"] == "wait",
            None if give_up_secs is None else float(give_up_secs),  # type: ignore[arg-type]
        )
        #: Bolt tasks that have just failed a tuple: they are to hear what this task knows of their failures.
        self.to_tell: list[int] = []
        #: While failed trees are handled: how many of them are left.
        self.undecided = 0
        self.letters = SpoutLetters(self.context)
        self.active = True
        self.draining = False
        self.finished = False
        #: Whether the task is being stopped, and makes its last calls of `ack` and `fail`: emitting is no longer allowed.
        self.stopping = False
        #: Whether acks are given that must not emit; they may call `finish`.
        self.acking = False
        #: Trees that wait for their replay: (due, number, emission), a heap.
        self.replays: list[tuple[float, int, Emission]] = []
        self.replay_number = 0
        self.replayed = 0
        #: XORs that came during a run.
        self.late_xors: list[AckColumns] = []
        #: Failures that came during a run: (root, failure).
        self.late_failures: list[tuple[int, Failure]] = []
        #: The number of replays and dead letters so far.
        self.besides = 0
        #: Whether calls of `ack` or `fail` have ever emitted, or there was a dead letter.
        self.final_calls_emit = False
        self.latency = LatencyHistogram()
        #: The time from which complete latencies are counted: see loop/coming_up.py.
        self.measured_from = 0.0
        #: The number of trees that failed for good, by reason.
        self.given_up: dict[str, int] = {}
        #: When and why the first of these trees failed. Trees that failed because the task was stopped are left out.
        self.first_failure: tuple[float, str] | None = None
        #: The reading of a moment ago: its time, the count of emissions, and whether the task had emitted before it.
        self.reading: tuple[float, int, bool] | None = None
        self.attach(("emit", "emit_direct", "emit_many", "finish"), Spout, self)
        self.next_tuple: Callable[[], Any] = instance.next_tuple
        #: `ack_many`; None: `ack` is called for each tree.
        self.ack_many: Callable[[list[Any]], Any] | None = acks_by_many(instance)
        own_ack = type(instance).ack is not Spout.ack or "ack" in vars(instance)
        self.has_ack = own_ack or self.ack_many is not None

    # Methods that the user's instance gets.

    @property
    def emit_many(self) -> Callable[..., None]:
        """Like `emit`, for several tuples."""
        return self.emitter.emit_many if self.calls is None else self.calls.emit_many

    def finish(self) -> None:
        """Implement `Spout.finish`: the source has ended."""
        if self.emitter.owner != threading.get_ident() and not self.acking:
            self.emitter.refuse()
        self.finished = True

    # State.

    @property
    def pending(self) -> int:
        """The number of open trees, including those that wait for their replay, or as dead letters for their final call."""
        return self.tracker.pending + len(self.replays) + self.letters.undone

    @property
    def exhausted(self) -> bool:
        """Whether the source has ended and every tree has had its final call.

        During a run, finished trees may be in no list, so the answer is False. After a tree has failed as "stopped", or was
        handed over, the answer is False, too: the tree's tuple is still to be processed.
        """
        if not (self.finished and self.opened) or not self.given_up.keys().isdisjoint(UNDONE):
            return False
        at_rest = self.closed if self.stopped else not (self.busy or self.yielded)
        return at_rest and not self.pending and not self.has_final_calls

    @property
    def has_final_calls(self) -> bool:
        """Whether trees wait for their calls of `ack` or `fail`."""
        tracker = self.tracker
        return bool(tracker.completed or tracker.failed or tracker.untracked or self.letters.due)

    def at_limit(self) -> bool:
        """Return whether the pending limit stops the spout, or the limit of trees that wait for a replay."""
        limit = self.max_pending
        if limit is None or self.tracker.pending >= limit:
            return limit is not None
        waiting = len(self.replays) + self.letter_places
        return waiting >= limit and waiting >= most_waiting(self, limit)

    def wants_flush(self) -> bool:
        """Return whether the spout waits for trees, so that batch bolts should execute their gathered tuples."""
        waits = self.at_limit() or self.finished or self.draining or not self.active
        return waits and self.tracker.pending > 0

    def may_emit(self, now: float) -> bool:
        """Return whether `next_tuple` may be called now."""
        finished = self.finished and not self.yielded
        ready = self.active and not (self.draining or finished or self.blocked)
        return ready and now >= self.wait.not_before and self.letters.waits is None and not self.at_limit()

    def may_go_on(self) -> bool:
        """Return whether a call of `next_tuple` that has waited may emit more."""
        return self.active and not self.draining and self.letters.waits is None and not self.at_limit()

    def replay_due(self, now: float) -> bool:
        """Return whether a replay may be emitted now."""
        return bool(self.replays) and self.replays[0][0] <= now and not self.blocked and not self.full()

    def full(self) -> bool:
        """Return whether as many trees are open as the pending limit allows."""
        return self.max_pending is not None and self.tracker.pending >= self.max_pending

    def wants_run(self) -> bool:
        """Return whether there is something to do."""
        if not self.opened:
            return False
        now = self.now()
        due = self.final_calls_due() or self.may_emit(now) or self.replay_due(now)
        return due or bool(self.letters.to_resend and may_resend(self))

    def next_time(self) -> float | None:
        """Return the time at which the spout is due if nothing arrives earlier."""
        times = []
        if self.yielded and self.has_final_calls and self.now() < self.calls.long_from:
            times.append(self.calls.long_from)
        if self.replays and not self.blocked and not self.full():
            times.append(self.replays[0][0])
        letters = self.letters
        if letters.batch and not (self.blocked and self.final_calls_emit):
            times.append(letters.retry_at)
        waits = letters.waits is not None or self.draining or self.finished or self.blocked
        if self.active and not (waits or self.at_limit()):
            times.append(self.wait.not_before)
        return min(times, default=None)

    # Running.

    def run(self) -> None:
        """Make final calls, emit due replays, then call next_tuple until a limit is reached, or let a waiting call go on."""
        now = self.now()
        self.emitter.open_for(threading.get_ident())
        if self.notices:
            self.heed()
        self.set_time(now)
        enough = self.produced + self.limits.emits
        if self.final_calls_due():
            self.make_final_calls(now, enough)
        self.emit_replays(now, enough)
        if self.letters.to_resend:
            send_again(self, now, enough)
        if self.produced >= enough or not self.may_emit(now):
            return
        if self.yielded:
            self.calls.resumes = True
        else:
            mark = self.mark
            if mark is not None:
                mark.enter_other()
            self.call_next_tuple(now, enough - self.produced)
            if mark is not None:
                mark.leave_other()

    def call(self, name: str, *args: Any, tuple_text: str | None = None) -> bool:
        self.set_time(self.now())  # open and activate may emit
        return super().call(name, *args, tuple_text=tuple_text)

    def set_time(self, now: float) -> None:
        """Set the time with which emissions are stamped."""
        self.emitter.now = now
        if self.tracker.wheel is not None:
            self.tracker.wheel.set_time(now)

    @cython.locals(
        emitter=SpoutEmitter,
        tracker=Tracker,
        pause=SpoutWait,
        calls=cython.longlong,
        most=cython.longlong,
        before=cython.longlong,
        enough=cython.longlong,
        limit=cython.longlong,
    )
    def call_next_tuple(self, now: float, most_emits: int) -> None:
        """Call next_tuple for a bounded time, until it emits nothing or a limit is reached."""
        emitter, tracker, next_tuple, pause = self.emitter, self.tracker, self.next_tuple, self.wait
        limit = _NO_LIMIT if self.max_pending is None else self.max_pending
        enough = emitter.emitted + most_emits
        most = self.pace.count
        began = 0 if tracker.wheel is None else tracker.wheel.tick
        calls = 0
        pause.woken = False
        wait: Any = None
        before = -1
        while calls < most:
            before = emitter.emitted
            calls += 1
            try:
                wait = next_tuple()
            except BaseException as error:
                self.report("next_tuple", error)
                self.wait.fail(self.now())
                break
            if wait is not None or self.finished or emitter.emitted == before:
                break
            if emitter.emitted >= enough or tracker.pending >= limit:
                break
        after = self.now()
        self.tracker.renew(began, after)
        self.pace.took(calls, after - now)
        self.work.seconds += after - now
        if pause.errors_in_a_row and before >= 0 and pause.not_before <= now:
            pause.errors_in_a_row = 0
        if wait is None:
            pause.emitted(emitter.emitted == before, self.finished, after)
        else:
            seconds = seconds_of(wait)
            if seconds is None:
                text = f"next_tuple() returned {short(wait)}: it returns None or the seconds (>= 0) until its next call"
                self.report("next_tuple", SquallError(text))
                seconds = 1.0
            pause.ask(seconds, emitter.emitted == before, after)
        if pause.woken and not pause.errors_in_a_row:  # `wake` was called since this run of next_tuple began
            pause.wake()
        if pause.calls_an_instant is not None:
            pause.count_calls(calls, after)

    # Final calls.

    def final_calls_due(self) -> bool:
        """Return whether final calls are due. If `ack` or `fail` emit, they need room in the outboxes, as any emission does."""
        # Inside a short call of next_tuple they would surprise the user: it may hold a lock that they need.
        if self.yielded and self.now() < self.calls.long_from:
            return False
        due = self.has_final_calls or (self.letters.batch and self.letters.are_due(self.now()))
        return bool(due) and not (self.blocked and self.final_calls_emit)

    def make_final_calls(self, now: float, enough: float) -> None:
        """Call `ack` for completed trees, and replay or fail the failed trees, until `produced` reaches `enough`."""
        tracker = self.tracker
        before = self.produced
        if tracker.completed:
            completed, tracker.completed = own_trees(self, tracker.completed), []
            left = self.give_acks(completed, enough)
            if left:
                tracker.completed[:0] = left
                del completed[-len(left) :]
            if completed:
                add_latencies(self.latency, completed, now, self.measured_from)
            if self.outages.alive:
                for emission in completed:
                    if emission[6] is not None:
                        self.outages.end(emission[6])
        if tracker.untracked and self.produced < enough:
            untracked, tracker.untracked = own_trees(self, tracker.untracked), []
            tracker.untracked[:0] = self.give_acks(untracked, enough)
        if tracker.failed and self.produced < enough:
            failed, tracker.failed = tracker.failed, []
            for number, (failed_one, failure) in enumerate(failed, 1):
                self.undecided = len(failed) - number
                if failure.reason in REPORTS:
                    reassess(self, failed_one, failure, now)
                elif failed_one is not None:
                    self.decide(failed_one, failure, now)
                if self.produced >= enough:
                    tracker.failed[:0] = failed[number:]
                    break
        if self.letters.batch or self.letters.due:
            keep_and_fail(self, now, enough)
        if self.produced > before:
            self.final_calls_emit = True

    @cython.locals(emitter=SpoutEmitter, given=cython.Py_ssize_t, has_ack=cython.bint, most=cython.double)
    def give_acks(self, emissions: list[Emission], enough: float) -> list[Emission]:
        """Call `ack` for these emissions; return the emissions that are left when `produced` reaches `enough`."""
        emitter, instance, observer = self.emitter, self.instance, self.observer
        has_ack = self.has_ack
        if not emissions or (not has_ack and observer is None):  # all may have been trees of dead letters
            self.acked += len(emissions)
            return []
        if self.ack_many is not None and observer is None:
            call_ack_many(self, [emission[0] for emission in emissions])
            return []
        most = enough - self.besides
        given = 0
        try:
            for emission in emissions:
                given += 1
                if has_ack:
                    try:
                        instance.ack(emission[0])
                    except BaseException as error:
                        self.final_call_raised("ack", error, emission[0])
                if observer is not None:
                    observer.spout_acked(emission[0])
                if emitter.emitted >= most:
                    return emissions[given:]
        finally:
            self.acked += given
        return []

    @property
    def produced(self) -> int:
        """The number of rows for outboxes so far: emissions, replays and dead letters."""
        return self.emitter.emitted + self.besides

    def count_besides(self) -> None:
        """Count a replay or a dead letter. It is not counted as an emission, but the outboxes are flushed as if it were one."""
        self.besides += 1
        self.flushed_at -= 1

    def decide(self, emission: Emission, failure: Failure, now: float) -> None:
        """Handle a failed tree: emit it again later, or fail it for good."""
        replay = self.replay
        if type(emission[0]) is ForBolt or failure.reason == "stopped" or replay is None:
            self.outages.attempts_failed += failure.reason != "stopped"
            self.give_up(emission, failure)
            return
        outages = self.outages
        history = emission[6]
        if history is None:
            history = outages.begin()
            emission = (*emission[:6], history)
        outages.failed(history, failure, now)
        if failure.task is not None:
            self.to_tell.append(failure.task)
        if outages.spent(history, replay.max_attempts, now) or is_last_resort(self, emission, failure, now):
            self.give_up(emission, history.last or failure)
            return
        self.replay_number += 1
        delay = outages.delay(replay, emission[4], history)
        heapq.heappush(self.replays, (now + delay, self.replay_number, emission))

    def give_up(self, emission: Emission, failure: Failure) -> None:
        """Fail an emission for good. If its replays are used up, it becomes a dead letter first."""
        message_id, history = emission[0], emission[6]
        if type(message_id) is ForBolt:
            self.letters.ended_at_bolts(message_id, acked=False)
            make_room(self, -1)
            return
        if history is not None:
            self.outages.end(history)
        failure = replace(failure, attempts=emission[4])
        if failure.reason == "stopped" or (self.replay is None and type(message_id) is not Resent):
            fail_for_good(self, emission, failure)
        else:
            self.letters.batch.append((emission, failure))
            if not self.letters.keeper.gathers:
                keep_and_fail(self, self.now(), _NO_LIMIT)

    def final_call_raised(self, name: str, error: BaseException, message_id: Any) -> None:
        """Report an error of `ack` or `fail`, except an EmitError while the task is being stopped."""
        if not (self.stopping and is_error(error, EmitError)):
            self.report(name, error, f"message id {short(message_id)}")

    def emit_replays(self, now: float, enough: int) -> None:
        """Replay the trees whose delay has passed, while there is room, until `produced` reaches `enough`."""
        while self.produced < enough and self.replay_due(now):
            _, _, emission = heapq.heappop(self.replays)
            message_id, row, source, task, attempt, since, history = emission
            again = (message_id, row, source, task, attempt + 1, since, history)
            try:
                self.emitter.track(again)
            except BaseException as error:  # raised by a custom grouping, or for a key that was mutated
                text = str(error) if is_error(error, EmitError) else failure_text(error)
                failure = Failure("failed", self.spec.id, self.id, text, attempt + 1)
                if self.outages.on_trial:
                    self.decide(again, failure, now)
                else:
                    self.give_up(again, failure)
                continue
            self.replayed += 1
            self.count_besides()

    def fail_all(self, reason: str) -> None:
        """Fail every open tree for this reason. Trees that have already ended get their final calls first.

        Emissions of those calls are still accepted, and fail too. Later emissions are refused: every accepted emission gets
        its final call, so there would be no end if `fail` emitted at each call.
        """
        self.emitter.open_for(threading.get_ident())
        self.make_final_calls(self.now(), float("inf"))
        self.stopping = True
        self.emitter.close_for("its task is being stopped")
        while self.has_final_calls:
            self.make_final_calls(self.now(), float("inf"))
        fail_left(self, Failure(reason, None, None, None, 0))

    def close(self) -> None:
        """Make the final call for every open tree, then call `close`."""
        self.take_late()
        if self.opened and not self.closed:
            self.fail_all("stopped")
        super().close()

    def take_late(self) -> None:
        """Pass the XORs and failures that came during a run to the tracker."""
        columns, self.late_xors = self.late_xors, []
        for roots, xors in columns:
            self.tracker.merge(roots, xors)
        failures, self.late_failures = self.late_failures, []
        for root, failure in failures:
            self.tracker.fail(root, failure)


@cython.locals(since=cython.double, at=cython.double, count=cython.longlong)
def add_latencies(latency: LatencyHistogram, completed: list[Emission], now: float, start: float) -> None:
    """Record the complete latencies, from `start` at the earliest. Emissions of one run have the same time, and are recorded
    together."""
    since, count = completed[0][5], 0
    for emission in completed:
        at = emission[5]
        if at != since:
            latency.add(now - max(since, start), count)
            since, count = at, 0
        count += 1
    latency.add(now - max(since, start), count)
