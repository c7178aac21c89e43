"""The work of one task of a KafkaSpout: finds its partitions, emits their messages, and stores how far they are settled.

While no broker answers it waits, and says so. What does not pass by itself (credentials, rights, a missing topic) is raised, so
that it is reported, and tried again, since it may be put right meanwhile.
Must not know: settings of clients, the protocol, how values are decoded.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final

from squall_io.kafka.assignment import (
    Gap,
    LostMessages,
    Offsets,
    Partition,
    PartitionProgress,
    TaskPartitions,
    by_place,
    checked_position,
    gap_at,
    is_pattern,
    shown_partition,
)
from squall_io.kafka.client import ClientEvents, addresses_of, is_away, refusal
from squall_io.kafka.consuming import NO_TOPIC, KafkaAway, KafkaReader, KafkaRefused
from squall_io.kafka.rows import row_makers, runs_of
from squall_io.kit.codecs import CodecAway, UnreadableMessage
from squall_io.kit.waiting import FIRST_WAIT, Waiting
from topology_api import EmitError, FailTuple, SquallError
from topology_api.fields import DEFAULT_STREAM
from topology_api.wording import class_name, listed, message_of

if TYPE_CHECKING:
    from squall_io.kafka.spout import KafkaSpout
    from topology_api import Context

#: Seconds between two looks for new partitions, unless the spout says so.
LOOK_SECONDS: Final = 30.0
#: Seconds between commits of offsets to the group.
SAVE_SECONDS: Final = 1.0
#: Seconds after which what Kafka has refused is tried again.
RETRY_SECONDS: Final = 5.0
#: Seconds until a second look for partitions that seem to be gone.
AGAIN_SECONDS: Final = 1.0
#: Seconds after which offsets are stored again that have not changed: Kafka forgets them after days.
RENEW_SECONDS: Final = 3600.0
#: The most messages of a call of `next_tuple`. A call of a threaded spout costs as much as three emissions.
AT_ONCE: Final = 500
#: The longest wait within a call for the next message, while acks wait.
WAIT_SECONDS: Final = 0.05
#: The stream of messages that cannot be decoded.
UNREADABLE: Final = "unreadable"
#: What `emit_many` raises where a row is refused.
REFUSED: Final = (EmitError, FailTuple)

#: `Spout.emit_many`.
Emit = Callable[..., object]


class KafkaTask:
    """The partitions of one task. All methods are called in the task's own thread.

    epochs: positions are kept in the commits of the topology, so what is settled does not matter.
    """

    def __init__(self, spout: KafkaSpout, context: Context, epochs: bool) -> None:
        self._context = context
        self._epochs = epochs
        self._group = spout.group
        self._look_interval = spout.look_interval
        self._assignment = TaskPartitions(
            spout.topics, context.index, context.parallelism, spout.start, spout.max_gap, not epochs
        )
        self._row, self._rows = row_makers(spout.fields, spout.decode, spout.decode_key, spout.schema)
        self._events = ClientEvents(context.log, context.now)
        self._reader = KafkaReader(spout.servers, spout.group, spout.settings, self._events)
        what = f"Kafka at {addresses_of(spout.servers)}"
        self._waiting = Waiting(what, context.log, self._show, context.now)
        self._codec_waits = Waiting("what the codec needs", context.log, self._show, context.now)
        #: Messages that came and are not emitted yet: see `runs_of`.
        self._runs: deque[list[Any]] = deque()
        #: What is to be reported: one error a call.
        self._errors: deque[SquallError] = deque()
        #: What was reported lately, and when.
        self._reported: dict[tuple[str, Partition], float] = {}
        #: Partitions whose offsets are gone, and where they go on is to be found.
        self._out_of_range: set[Partition] = set()
        #: The ends of partitions when they began, for the lag before the first answer.
        self._ends: dict[Partition, int] = {}
        self._look_at = self._save_at = self._probe_at = 0.0
        self._why = self._shown = self._waiting_text = ""
        #: What the group was last asked to store, and when.
        self._saving: dict[Partition, int] = {}
        self._saving_at = 0.0
        self._renew_at = context.now() + RENEW_SECONDS
        #: What `position` said last; only with epochs.
        self._asked: dict[Partition, int] = {}
        self._left_out = context.counter("messages left out")
        self._lost = context.counter("messages lost")
        context.gauge("lag", self.lag)
        context.gauge("partitions", lambda: len(self._assignment.partitions))

    def rewind(self, position: Offsets | None) -> None:
        """Go on at a position of a commit. Raises LostMessages if a partition does not reach back so far."""
        self._assignment.rewind(None if position is None else checked_position(position))
        try:
            self._look(self._context.now())
        except KafkaRefused:
            self._look_at = 0.0  # the next call raises it again

    def position(self) -> dict[str, dict[int, int]]:
        """Return where each partition goes on."""
        self._asked = self._assignment.settled()
        return self._assignment.position()

    def next(self, emit_many: Emit) -> float | None:
        """Emit the next messages; return the seconds until the next call (None: soon)."""
        try:
            return self._next(emit_many)
        except CodecAway as error:
            return self._codec_waits.failed(str(error))

    def _next(self, emit_many: Emit) -> float | None:
        now = self._context.now()
        if now >= self._look_at:
            self._look(now)
        if self._out_of_range and now >= self._probe_at:
            self._find_ends(now)
        self._save_if_due(now)
        if self._errors:
            raise self._errors.popleft()
        if self._emit_left(emit_many):
            return None
        if not self._assignment.partitions:
            self._reader.receive(1, WAIT_SECONDS)  # lets the client say why
            return max(0.0, min(self._look_at - now, 1.0))
        messages = self._reader.receive(AT_ONCE, WAIT_SECONDS)
        if messages:
            self._runs = runs_of(messages, self._assignment.several_topics)
            self._emit_left(emit_many)
        if self._events.last is not None:
            self._probe(now)
        # What was all that there is leaves now: further calls in the same run would hold it back, as each of them waits.
        return 0.0 if 0 < len(messages) < AT_ONCE else None

    def settle_many(self, message_ids: list[Any]) -> None:
        """Note that the trees of messages are done, or failed for good. All are noted before anything is called that can fail:
        it is not said again."""
        if not self._epochs and message_ids:
            settled = [self._assignment.settle(*each) for each in by_place(message_ids).items()]
            for resumed in filter(None, settled):
                self._reader.resume(resumed.partition)
                self._explain()
        now = self._context.now()
        if now >= self._save_at:  # `next` is not called at the limit of pending trees
            self._save_if_due(now)

    def save(self) -> None:
        """Have the group store how far messages are settled, if there is one and something has changed."""
        if self._group is None:
            return
        offsets = self._asked if self._epochs else self._assignment.settled()
        stored = self._reader.stored
        changed = {place: offset for place, offset in offsets.items() if stored.get(place) != offset}
        now = self._context.now()
        if changed and (changed != self._saving or now - self._saving_at >= RETRY_SECONDS):
            self._reader.commit(changed)
            self._saving, self._saving_at = changed, now

    def close(self) -> None:
        """Store how far the task has read, and end the client."""
        self.save()
        self._reader.close()

    def lag(self) -> float:
        """Return how many offsets are behind those that are settled (with epochs: emitted). Called in another thread."""
        behind = 0
        for place, progress in list(self._assignment.partitions.items()):
            end = max(self._reader.end_of(place), self._ends.get(place, 0))
            behind += max(0, end - progress.items.position)
        return behind

    def _emit_left(self, emit_many: Emit) -> bool:
        """Emit the messages that are here; return whether there were some. After an error, the next call goes on behind it."""
        came = False
        while self._runs:
            run = self._runs.popleft()
            if run[0].error() is not None:
                self._take_event(run[0])
            else:
                came |= self._emit_run(run, emit_many)
        if came:
            self._codec_waits.succeeded()
        return came

    def _emit_run(self, run: list[Any], emit_many: Emit) -> bool:
        """Emit messages of one partition, up to one that cannot be decoded; return whether any of them is new."""
        progress = self._assignment.partitions[run[0].topic(), run[0].partition()]
        offsets = list(map(type(run[0]).offset, run))
        if offsets[0] < progress.items.next:  # some come once more, since their partition was paused
            again = bisect_left(offsets, progress.items.next)
            run, offsets = run[again:], offsets[again:]
            if not run:
                return False
        rows, fault = self._decoded(run)
        good = len(rows)
        unreadable = fault if isinstance(fault, UnreadableMessage) else None
        done = good if unreadable is None else good + 1
        try:
            if rows:
                self._emit(rows, offsets[:good], progress, emit_many)
        except BaseException as error:
            done = getattr(error, "emitted", 0) + isinstance(error, REFUSED)
            raise
        finally:
            if run[done:]:
                self._runs.appendleft(run[done:])
        if unreadable is not None:
            try:
                self._leave_out(run[good], progress, unreadable, emit_many)
            except BaseException as error:
                if not isinstance(error, REFUSED):
                    self._runs.appendleft([run[good]])
                raise
        elif fault is not None:  # it is about the codec, not about the message, which is decoded again
            raise fault
        return True

    def _decoded(self, run: list[Any]) -> tuple[list[tuple[object, ...]], SquallError | None]:
        """Return the values of messages up to one that cannot be decoded, and why it cannot."""
        rows: list[tuple[object, ...]] = []
        while len(rows) < len(run):
            try:
                rows.extend(self._rows(run[len(rows) :]))  # keeps what comes before an error
            except Exception as error:
                if isinstance(error, SquallError) and not isinstance(error, UnreadableMessage):
                    return rows, error
            if len(rows) == len(run):
                break
            # An error, or a StopIteration of a codec, with which `extend` ends as it does after the last message.
            try:
                rows.append(self._row(run[len(rows)]))
            except SquallError as fault:
                return rows, fault
            except Exception as fault:  # a codec of the user, or a library under one
                return rows, UnreadableMessage(f"{class_name(fault)}: {message_of(fault)}")
        return rows, None

    def _emit(
        self,
        rows: list[tuple[object, ...]],
        offsets: list[int],
        progress: PartitionProgress,
        emit_many: Emit,
        stream: str = DEFAULT_STREAM,
    ) -> None:
        """Emit the values of messages of one partition. One that is refused would be refused for ever: it counts as settled.
        After any other error, such as a lack of memory, the message is still to be emitted."""
        items = progress.items
        if self._epochs:
            items.next = offsets[-1] + 1
        else:
            items.taken_many(offsets, offsets[-1] + 1)
        try:
            emit_many(rows, message_ids=list(zip(repeat(progress.place), offsets)), stream=stream)
        except BaseException as error:
            refused = offsets[getattr(error, "emitted", 0)]
            items.take_back(refused)
            if isinstance(error, REFUSED):
                items.next = refused + 1
            raise
        finally:
            if self._assignment.is_full(progress):
                self._pause(progress)

    def _leave_out(
        self, message: Any, progress: PartitionProgress, error: UnreadableMessage, emit_many: Emit
    ) -> None:
        """Count a message that cannot be decoded, and emit it as it is, for who wants to keep it."""
        offset = message.offset()
        self._left_out.add()
        if not progress.left_out:
            name = shown_partition(progress.partition)
            self._errors.append(
                UnreadableMessage(
                    f"{name}@{offset} cannot be decoded: {error}. It is counted as `messages left out` and emitted on the"
                    f" stream {UNREADABLE!r}, as are further ones of this partition without a report"
                )
            )
        progress.left_out += 1
        values = (*progress.partition, offset, message.key(), message.value(), str(error))
        self._emit([values], [offset], progress, emit_many, UNREADABLE)

    def _take_event(self, message: Any) -> None:
        error, partition = message.error(), (message.topic(), message.partition())
        progress = self._assignment.partitions.get(partition)
        if progress is None and self._group is None and error.name() == "GROUP_AUTHORIZATION_FAILED":
            return  # the client asks for the group of its settings, which is never used
        if progress is None:
            self._report(refusal(error, "Kafka reports an error"), error.name(), ("", 0))
        elif error.name() == "_PARTITION_EOF":
            self._assignment.ended(progress, message.offset())
        elif error.name() == "_AUTO_OFFSET_RESET":
            self._out_of_range.add(partition)
        elif error.name() in NO_TOPIC:
            self._look_at = min(self._look_at, self._context.now() + FIRST_WAIT)  # which says what is missing
        elif not is_away(error):
            self._report(
                refusal(error, f"{shown_partition(partition)} cannot be read"), error.name(), partition
            )

    def _report(self, error: SquallError, kind: str, partition: Partition) -> None:
        """Report an error, unless the same was reported lately: a client repeats them."""
        now = self._context.now()
        if now - self._reported.get((kind, partition), -LOOK_SECONDS) >= LOOK_SECONDS:
            self._reported[kind, partition] = now
            self._errors.append(error)

    def _pause(self, progress: PartitionProgress) -> None:
        progress.paused = True
        self._reader.pause(progress.partition)
        self._explain()
        self._context.log.warning("%s", self._why)

    def _explain(self) -> None:
        self._why = self._assignment.waits()
        self._show(self._waiting_text)

    def _show(self, text: str) -> None:
        """Show why nothing comes: no broker answers, or a partition is paused."""
        self._waiting_text = text
        if (shown := text or self._why) != self._shown:
            self._shown = shown
            self._context.progress(shown)

    def _look(self, now: float) -> None:
        """Find the partitions, and begin those that are new. Raises KafkaRefused and LostMessages."""
        self._look_at = now + RETRY_SECONDS
        try:
            found, refused = self._reader.find(self._assignment.topics)
            if self._assignment.gone(
                found, refused
            ):  # a broker that has just started may not know its topics yet
                self._reader.receive(1, AGAIN_SECONDS)
                found, refused = self._reader.find(self._assignment.topics)
            self._errors.extend(refused.values())
            self._begin(found, refused)
        except KafkaAway as error:
            self._look_at = self._context.now() + self._waiting.failed(str(error))  # the call took its time
            return
        self._answered()
        missing = sorted(topic for topic, numbers in found.items() if not numbers)
        if missing:
            raise KafkaRefused(
                f"{self._waiting.what} has no topic {listed(missing)}: create it, or correct `topics`; the spout reads it as"
                " soon as it is there"
            )
        if not refused:
            self._look_at = now + self._look_interval
        if not self._assignment.partitions:
            self._explain_idle(found)
        elif self._why and not self._assignment.waits():
            self._explain()

    def _explain_idle(self, found: Mapping[str, list[int]]) -> None:
        total = sum(map(len, found.values()))
        if total:
            self._why = f"has no partition: there are {total} for {self._context.parallelism} tasks"
        elif patterns := [each for each in self._assignment.topics if is_pattern(each)]:
            self._why = f"no topic matches {listed(patterns)} yet"
        self._show(self._waiting_text)

    def _begin(self, found: Mapping[str, list[int]], refused: Collection[str]) -> None:
        assignment, reader = self._assignment, self._reader
        if gone := assignment.gone(found, refused):
            raise LostMessages(
                f"{', '.join(map(shown_partition, gone[:3]))}: {len(gone)} partition(s) of which the topology has committed a"
                " position do not exist any more: restore them, or set another topology.state.path, with which reading"
                " begins at `start`"
            )
        if new := assignment.new(found):
            every = [(topic, number) for topic, numbers in found.items() for number in numbers]
            committed = {} if self._epochs else reader.committed(every)
            begins = {place: assignment.begin(place, committed) for place in new}
            named: dict[Partition, str | datetime] = {
                place: at for place, at in begins.items() if not isinstance(at, int)
            }
            offsets = {place: at for place, at in begins.items() if isinstance(at, int)}
            offsets |= reader.offsets_at(named) if named else {}
            bounds = reader.bounds(new)
            gaps = [
                gap for place in new if (gap := gap_at(place, offsets[place], *bounds[place])) is not None
            ]
            if strict := [gap for gap in gaps if assignment.must_go_on(gap.partition)]:
                raise LostMessages(
                    f"the position of the topology's commit is gone: {'; '.join(map(str, strict[:3]))}. Set another"
                    " topology.state.path, with which reading begins at `start`"
                )
            for gap in gaps:
                offsets[gap.partition] = gap.low
                self._lose(gap)
            for place, offset in offsets.items():
                assignment.begun(place, offset)
                self._ends[place] = bounds[place][1]
            self._reader.stored.update(
                {place: at for place, at in committed.items() if offsets.get(place) == at}
            )
            reader.add(offsets)
            self._why = ""
            names = ", ".join(
                f"{shown_partition(place)} from {at}" for place, at in sorted(offsets.items())[:20]
            )
            self._context.log.info("reads %d partition(s) more: %s", len(offsets), names)
        assignment.looked(topic for topic in found)

    def _lose(self, gap: Gap) -> None:
        self._lost.add(gap.lost or 0)
        self._errors.append(
            LostMessages(f"{gap}; reads on there" if gap.lost else f"{gap}; reads it from {gap.low}")
        )

    def _find_ends(self, now: float) -> None:
        """Go on at the earliest message of partitions whose next offset is gone."""
        self._probe_at = now + RETRY_SECONDS
        try:
            bounds = self._reader.bounds(self._out_of_range)
        except KafkaRefused as error:
            self._errors.append(error)
            return
        except KafkaAway as error:
            self._probe_at = self._context.now() + self._waiting.failed(str(error))
            return
        for place, (low, high) in bounds.items():
            wanted = self._assignment.partitions[place].items.next
            if (gap := gap_at(place, wanted, low, high)) is not None:
                self._lose(gap)
                self._assignment.jumped(place, low)
            self._reader.move(place, self._assignment.partitions[place].items.next)
            self._out_of_range.discard(place)

    def _probe(self, now: float) -> None:
        """Find out whether all brokers of the task's partitions answer, since the client has said that something is wrong."""
        if now < self._probe_at:
            self._waiting.shown()
            return
        self._probe_at = now + RETRY_SECONDS
        try:
            self._reader.bounds(self._assignment.partitions)
        except KafkaAway as error:
            self._probe_at = self._context.now() + self._waiting.failed(str(error))
        else:
            self._answered()

    def _answered(self) -> None:
        self._events.cleared()
        self._waiting.succeeded()

    def _save_if_due(self, now: float) -> None:
        if now < self._save_at:
            return
        self._save_at = now + SAVE_SECONDS
        if now >= self._renew_at:
            self._renew_at = now + RENEW_SECONDS
            self._reader.stored.clear()
        if (error := self._reader.commit_error) is not None:
            self._reader.commit_error = None
            if not is_away(error):
                what = f"the offsets of group {self._group!r} cannot be stored"
                self._report(refusal(error, what), error.name(), ("", 0))
        self.save()
