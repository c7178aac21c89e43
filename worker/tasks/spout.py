"""A task of a spout: calls `next_tuple`, gives the verdicts of its trees, replays what failed.

Its run: verdicts first, replays that are due, then `next_tuple` until a limit says stop. It keeps promise 1: every
emission with a message id gets exactly one final call, `ack` or `fail`, while the task lives.
Must not know: links, threads, other tasks.
"""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable
from dataclasses import replace
from numbers import Real
from typing import Any

from squall.telemetry import Histogram
from topology_api import Context, EmitError, Failure, Spout, SquallError
from topology_api.topology import DEAD_LETTERS, ComponentSpec
from worker.emitter import SpoutEmitter, short
from worker.replay import replay_delay
from worker.reports import ErrorReport, failure_line, failure_text, one_line
from worker.task import Limits, Task
from worker.tracker import Emission, Tracker
from worker.xors import XorColumns

try:
    import cython
except ImportError:
    from topology_api import plain_cython as cython

#: Waits after empty calls double up to this many seconds (an idle topology must take next to no CPU).
LONGEST_EMPTY_WAIT = 0.02
#: The wait after a `next_tuple` that raised, doubling up to the longest.
FIRST_ERROR_WAIT, LONGEST_ERROR_WAIT = 0.1, 10.0


def seconds_of(wait: object) -> float | None:
    """The seconds that next_tuple returned as its wait (numbers of numpy too), or None if they cannot be that."""
    if isinstance(wait, bool) or not isinstance(wait, Real):
        return None
    try:
        seconds = float(wait)
    except BaseException:  # an int beyond all floats, or a number of the user's own making
        return None
    return seconds if 0 <= seconds < float("inf") else None


#: More than can be pending.
_NO_LIMIT = 1 << 62


class SpoutTask(Task):
    """One task of a spout."""

    emitter: SpoutEmitter

    def __init__(
        self,
        spec: ComponentSpec,
        task: int,
        instance: Any,
        context: Context,
        limits: Limits,
        now: Callable[[], float],
        emitter: SpoutEmitter,
        tracker: Tracker,
        max_pending: int | None,
        empty_wait: float,
    ) -> None:
        super().__init__(spec, task, instance, context, limits, now)
        self.emitter = emitter
        self.tracker = tracker
        self.max_pending = max_pending
        self.empty_wait = empty_wait
        self.replay = instance.replay
        self.active = True
        self.draining = False
        self.finished = False
        #: The last words are being said: nothing is emitted any more.
        self.stopping = False
        #: Trees that wait for their replay: (due, number, emission), a heap.
        self.replays: list[tuple[float, int, Emission]] = []
        self.replay_number = 0
        self.replayed = 0
        #: XORs and failures that came while a run was on.
        self.late_xors: list[XorColumns] = []
        self.late_failures: list[tuple[int, Failure]] = []
        #: No call of next_tuple before this time.
        self.not_before = 0.0
        #: The end of the wait that next_tuple last asked for.
        self.asked_until = 0.0
        self.empties = 0
        #: `wake` was called since the last run of next_tuple began.
        self.woken = False
        #: Replays and dead letters so far; whether verdicts have ever led to an emission.
        self.besides = 0
        self.verdicts_emit = False
        self.errors_in_a_row = 0
        self.latency = Histogram()
        #: Trees that failed for good, by reason; when and why the first of them did, but for those that a stop cut off.
        self.given_up: dict[str, int] = {}
        self.first_failure: tuple[float, str] | None = None
        #: In simulated time: calls of next_tuple allowed and made at this instant.
        self.calls_an_instant: int | None = None
        self.instant = -1.0
        self.instant_calls = 0
        self.attach(("emit", "emit_direct", "finish"), Spout, self)
        self.next_tuple: Callable[[], Any] = instance.next_tuple
        self.tells_acks = type(instance).ack is not Spout.ack or "ack" in vars(instance)

    # What the instance's methods are.

    def emit(self, values: Any, *, message_id: Any = None, stream: str = "default") -> None:
        """`Spout.emit`, when the user's class overrides it."""
        self.emitter.emit(values, message_id=message_id, stream=stream)

    def emit_direct(self, task: int, values: Any, *, message_id: Any = None, stream: str = "default") -> None:
        """`Spout.emit_direct`."""
        self.emitter.emit_direct(task, values, message_id=message_id, stream=stream)

    def finish(self) -> None:
        """`Spout.finish`: the source has ended."""
        if self.emitter.owner != threading.get_ident():
            self.emitter.refuse()
        self.finished = True

    # Questions of the worker.

    @property
    def pending(self) -> int:
        """Open trees, those included that wait for their replay."""
        return self.tracker.pending + len(self.replays)

    @property
    def exhausted(self) -> bool:
        """Whether the source has ended and every tree has had its verdict; while verdicts are being given they are in no list.
        "stopped" is no verdict: what a stop cut off is to come again, so whoever opens the spout next has to read it."""
        if not (self.finished and self.opened) or "stopped" in self.given_up:
            return False
        at_rest = self.closed if self.stopped else not self.busy
        return at_rest and not self.pending and not self.has_verdicts

    @property
    def has_verdicts(self) -> bool:
        """Whether verdicts wait to be given."""
        tracker = self.tracker
        return bool(tracker.completed or tracker.failed or tracker.untracked)

    def at_limit(self) -> bool:
        """Whether the pending limit stops the spout, or as many trees wait for a replay."""
        limit = self.max_pending
        return limit is not None and (self.tracker.pending >= limit or len(self.replays) >= limit)

    def wants_hurry(self) -> bool:
        """Whether the spout waits for trees, so that batch bolts should hand over what they have."""
        waits = self.at_limit() or self.finished or self.draining or not self.active
        return waits and self.tracker.pending > 0

    def may_emit(self, now: float) -> bool:
        """Whether `next_tuple` may be called now."""
        ready = self.active and not (self.draining or self.finished or self.blocked)
        return ready and now >= self.not_before and not self.at_limit()

    def replay_due(self, now: float) -> bool:
        """Whether a replay may be emitted now."""
        return bool(self.replays) and self.replays[0][0] <= now and not self.blocked and not self.full()

    def full(self) -> bool:
        """Whether as many trees are open as may be."""
        return self.max_pending is not None and self.tracker.pending >= self.max_pending

    def wants_run(self) -> bool:
        """Whether there is something to do."""
        if not self.opened:
            return False
        now = self.now()
        return self.verdicts_due() or self.may_emit(now) or self.replay_due(now)

    def next_time(self) -> float | None:
        """When there will be something to do without anything coming in."""
        times = []
        if self.replays and not self.blocked and not self.full():
            times.append(self.replays[0][0])
        if self.active and not (self.draining or self.finished or self.blocked or self.at_limit()):
            times.append(self.not_before)
        return min(times, default=None)

    def idle_reason(self) -> str:
        """Why the spout does not emit at this moment, for people; "" when it does."""
        if not self.opened:
            return "not open yet"
        if self.finished:
            return "finished" if not self.pending else "waiting for trees"
        if self.draining or not self.active:
            return "inactive"
        if self.blocked:
            return "backpressure"
        if self.at_limit():
            return "pending limit" if self.full() else "waiting for replays"
        waits = self.now() < self.not_before
        if waits and self.errors_in_a_row:
            return "waits after an error"
        if self.empties:
            return "source empty"
        return "waits as it asked" if waits and self.not_before == self.asked_until else ""

    # Running.

    def run(self) -> None:
        """Verdicts, replays that are due, then next_tuple until something says stop."""
        now = self.now()
        self.emitter.open_for(threading.get_ident())
        self.set_time(now)
        enough = self.produced + self.limits.emits
        if self.verdicts_due():
            self.give_verdicts(now, enough)
        self.emit_replays(now, enough)
        if self.produced < enough and self.may_emit(now):
            self.call_next_tuple(now, enough - self.produced)

    def call(self, name: str, *args: Any, tuple_text: str | None = None) -> bool:
        self.set_time(self.now())  # open and activate may emit
        return super().call(name, *args, tuple_text=tuple_text)

    def set_time(self, now: float) -> None:
        """It is `now`: what is emitted from here on is stamped with it."""
        self.emitter.now = now
        if self.tracker.wheel is not None:
            self.tracker.wheel.set_time(now)

    @cython.locals(
        emitter=SpoutEmitter,
        tracker=Tracker,
        calls=cython.longlong,
        most=cython.longlong,
        before=cython.longlong,
        enough=cython.longlong,
        limit=cython.longlong,
    )
    def call_next_tuple(self, now: float, most_emits: int) -> None:
        """Call next_tuple for a bounded time, until it emits nothing or a limit is reached."""
        emitter, tracker, next_tuple = self.emitter, self.tracker, self.next_tuple
        limit = _NO_LIMIT if self.max_pending is None else self.max_pending
        enough = emitter.emitted + most_emits
        most = self.pace.count
        began = 0 if tracker.wheel is None else tracker.wheel.tick
        calls = 0
        self.woken = False
        wait: Any = None
        before = -1
        while calls < most:
            before = emitter.emitted
            calls += 1
            try:
                wait = next_tuple()
            except BaseException as error:
                self.next_tuple_raised(error)
                break
            if wait is not None or self.finished or emitter.emitted == before:
                break
            if emitter.emitted >= enough or tracker.pending >= limit:
                break
        after = self.now()
        self.tracker.renew(began, after)
        self.pace.took(calls, after - now)
        if self.errors_in_a_row and before >= 0 and self.not_before <= now:
            self.errors_in_a_row = 0
        self.set_wait(wait, emitter.emitted == before, after)
        if self.woken and not self.errors_in_a_row:  # there is something new since next_tuple looked
            self.wake()
        if self.calls_an_instant is not None:
            self.pace_instant(calls, after)

    def pace_instant(self, calls: int, now: float) -> None:
        """In simulated time calls take no time: after a number of them the spout goes on a millisecond later."""
        if now != self.instant:
            self.instant, self.instant_calls = now, 0
        self.instant_calls += calls
        if self.instant_calls >= (self.calls_an_instant or 0):
            self.not_before = max(self.not_before, now + 0.001)

    def set_wait(self, wait: Any, empty: bool, now: float) -> None:
        """Decide when next_tuple is called again."""
        if wait is not None:
            seconds = seconds_of(wait)
            if seconds is None:
                text = f"next_tuple() returned {short(wait)}: it returns None or the seconds (>= 0) until its next call"
                self.report("next_tuple", SquallError(text))
                seconds = 1.0
            self.not_before = self.asked_until = now + seconds
            self.empties = 1 if seconds > 0 and empty else 0
        elif empty and not self.finished and self.not_before <= now:
            self.not_before = now + min(
                self.empty_wait * 2 ** min(self.empties // 8, 20), max(LONGEST_EMPTY_WAIT, self.empty_wait)
            )
            self.empties += 1
        elif not empty:
            self.empties = 0

    def next_tuple_raised(self, error: BaseException) -> None:
        """Report the error and wait a little before the next call, longer each time."""
        self.report("next_tuple", error)
        wait = min(LONGEST_ERROR_WAIT, FIRST_ERROR_WAIT * 2 ** min(self.errors_in_a_row, 20))
        self.errors_in_a_row += 1
        self.not_before = self.now() + wait

    def wake(self) -> None:
        """`Context.wake`: call next_tuple at the next opportunity. From any thread, so in this order: a run that is just
        ending either sees the flag, or has set its wait already."""
        self.woken = True
        self.not_before = 0.0
        self.empties = 0

    # Verdicts.

    def verdicts_due(self) -> bool:
        """Whether verdicts are to be given now: where their calls emit, they need room as any emission does."""
        return self.has_verdicts and not (self.blocked and self.verdicts_emit)

    def give_verdicts(self, now: float, enough: float) -> None:
        """Tell the user of trees that were completed, and decide on those that failed; until `enough` was produced."""
        tracker = self.tracker
        before = self.produced
        if tracker.completed:
            completed, tracker.completed = tracker.completed, []
            left = self.tell_acks(completed, enough)
            if left:
                tracker.completed[:0] = left
                del completed[-len(left) :]
            self.add_latencies(completed, now)
        if tracker.untracked and self.produced < enough:
            untracked, tracker.untracked = tracker.untracked, []
            tracker.untracked[:0] = self.tell_acks(untracked, enough)
        if tracker.failed and self.produced < enough:
            failed, tracker.failed = tracker.failed, []
            for number, (emission, failure) in enumerate(failed, 1):
                self.decide(emission, failure, now)
                if self.produced >= enough:
                    tracker.failed[:0] = failed[number:]
                    break
        if self.produced > before:
            self.verdicts_emit = True

    @cython.locals(emitter=SpoutEmitter, told=cython.Py_ssize_t, tells=cython.bint, most=cython.double)
    def tell_acks(self, emissions: list[Emission], enough: float) -> list[Emission]:
        """The last word on these: acked. Gives back those that are left when `enough` was produced."""
        emitter, instance, observer = self.emitter, self.instance, self.observer
        tells = self.tells_acks
        if not tells and observer is None:
            self.acked += len(emissions)
            return []
        most = enough - self.besides
        told = 0
        try:
            for emission in emissions:
                told += 1
                if tells:
                    try:
                        instance.ack(emission[0])
                    except BaseException as error:
                        self.verdict_raised("ack", error, emission[0])
                if observer is not None:
                    observer.spout_acked(emission[0])
                if emitter.emitted >= most:
                    return emissions[told:]
        finally:
            self.acked += told
        return []

    @property
    def produced(self) -> int:
        """Rows for outboxes so far: emissions, and what went out besides."""
        return self.emitter.emitted + self.besides

    def count_besides(self) -> None:
        """A replay or a dead letter went into the outboxes: no emission, but they are to be looked at as often."""
        self.besides += 1
        self.flushed_at -= 1

    @cython.locals(since=cython.double, at=cython.double, count=cython.longlong)
    def add_latencies(self, completed: list[Emission], now: float) -> None:
        """Count the complete latencies: those emitted in one run, which have one time, at once."""
        since, count = completed[0][5], 0
        for emission in completed:
            at = emission[5]
            if at != since:
                self.latency.add(now - since, count)
                since, count = at, 0
            count += 1
        self.latency.add(now - since, count)

    def decide(self, emission: Emission, failure: Failure, now: float) -> None:
        """A tree failed: emit it again later, or say the last word."""
        delay = None if failure.reason == "stopped" else replay_delay(self.replay, emission[4])
        if delay is None:
            self.give_up(emission, failure)
            return
        self.replay_number += 1
        heapq.heappush(self.replays, (now + delay, self.replay_number, emission))

    def give_up(self, emission: Emission, failure: Failure) -> None:
        """The last word on an emission: failed. It goes to the dead letters when its replays are spent."""
        failure = replace(failure, attempts=emission[4])
        message_id, row, output, _, _, _ = emission
        self.failed += 1
        self.given_up[failure.reason] = self.given_up.get(failure.reason, 0) + 1
        why = failure_line(failure)
        if self.first_failure is None and failure.reason != "stopped":
            self.first_failure = self.now(), f"message id {short(message_id)}: {why}"
        if failure.reason != "stopped" and self.replay is not None:
            letters = self.emitter.outputs.get(DEAD_LETTERS)
            if letters is not None:
                letter = (message_id, row, output.source.stream, failure)
                for box in letters.choose(letter):
                    self.emitter.put(box, letter, [])
                self.count_besides()
            else:
                text = f"message id {short(message_id)}, values {short(row)}"
                self.report_drop(f"tuple dropped: {why}", text)
        self.tell_fail(message_id, failure)
        if self.observer is not None:
            self.observer.spout_failed(message_id, failure)

    def tell_fail(self, message_id: Any, failure: Failure) -> None:
        """Call `fail`; it may emit."""
        self.set_time(self.now())
        try:
            self.instance.fail(message_id, failure)
        except BaseException as error:
            self.verdict_raised("fail", error, message_id)

    def verdict_raised(self, name: str, error: BaseException, message_id: Any) -> None:
        """`ack` or `fail` raised. That a task which is being stopped refuses what they emit is no error of the user's."""
        if not (self.stopping and isinstance(error, EmitError)):
            self.report(name, error, f"message id {short(message_id)}")

    def report_drop(self, why: str, what: str) -> None:
        """Report a tuple whose replays are spent and that no dead-letter bolt takes: it is nobody's call that failed now."""
        topology, now = self.context.topology, self.now()
        report = ErrorReport(topology, self.spec.id, self.id, "", one_line(why), "", (), one_line(what), now)
        self.reports.append(report)

    def emit_replays(self, now: float, enough: int) -> None:
        """Emit the trees whose delay has passed again, while there is room and until `enough` was produced."""
        while self.produced < enough and self.replay_due(now):
            _, _, emission = heapq.heappop(self.replays)
            message_id, row, output, task, attempt, since = emission
            again = (message_id, row, output, task, attempt + 1, since)
            try:
                self.emitter.track(again)
            except BaseException as error:  # of a custom grouping, or of a key that was changed meanwhile
                text = str(error) if isinstance(error, EmitError) else failure_text(error)
                self.give_up(again, Failure("failed", self.spec.id, self.id, text, attempt + 1))
                continue
            self.replayed += 1
            self.count_besides()

    def fail_all(self, reason: str) -> None:
        """Give every tree that is left its last word: failed, for this reason. Verdicts that are known come first.

        What these verdicts have the user emit is still taken, and fails too; then nothing more is, since `fail` may emit anew
        each time it is called, and every emission that was taken gets its last word.
        """
        self.emitter.open_for(threading.get_ident())
        self.give_verdicts(self.now(), float("inf"))
        self.stopping = True
        self.emitter.close_for("its task is being stopped")
        while self.has_verdicts:
            self.give_verdicts(self.now(), float("inf"))
        failure = Failure(reason, None, None, None, 0)
        for root in self.tracker.open_roots():
            self.tracker.fail(root, failure)
        failed, self.tracker.failed = self.tracker.failed, []
        for emission, verdict in failed:
            self.give_up(emission, verdict)
        replays, self.replays = sorted(self.replays), []
        for _, _, emission in replays:
            self.give_up(emission, failure)

    def close(self) -> None:
        """Everything that is left gets its last word, then `close` is called."""
        self.take_late()
        if self.opened and not self.closed:
            self.fail_all("stopped")
        super().close()

    def take_late(self) -> None:
        """Verdicts that came while a run was under way."""
        columns, self.late_xors = self.late_xors, []
        for roots, xors in columns:
            self.tracker.merge(roots, xors)
        failures, self.late_failures = self.late_failures, []
        for root, failure in failures:
            self.tracker.fail(root, failure)
