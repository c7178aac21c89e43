"""The work of one task of a RedisStreamSpout: emits the entries of its streams, and stores how far they are settled.

While Redis does not answer it waits, and says so. What does not pass by itself is raised, so that it is reported, and tried
again, since it may be put right meanwhile.
Must not know: how values are decoded, settings of clients.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from squall_io.kit.codecs import CodecAway, UnreadableMessage
from squall_io.kit.waiting import Waiting
from squall_io.redis.connection import RedisAway, RedisConnection, RedisRefused
from squall_io.redis.entries import StreamEntry, values_maker
from squall_io.redis.ids import NO_ID, id_of, id_text
from squall_io.redis.progress import (
    Loss,
    LostEntries,
    Positions,
    StreamProgress,
    beginning,
    checked_positions,
    counted_up_to,
    own_streams,
)
from squall_io.redis.reading import RedisStreamReader
from topology_api import EmitError, SquallError
from topology_api.wording import class_name, message_of

if TYPE_CHECKING:
    from squall_io.redis.spout import RedisStreamSpout
    from topology_api import Context

#: Seconds between two looks at streams that have nothing new.
LOOK_SECONDS: Final = 1.0
#: Seconds between two calls that store how far entries are settled.
SAVE_SECONDS: Final = 1.0
#: Seconds after which what Redis has refused is tried again, and after which the same is reported again.
RETRY_SECONDS, REPORT_SECONDS = 5.0, 30.0
#: The most entries that are read at once, of all streams together; before their size is known; and their bytes, about.
AT_ONCE, FIRST_ENTRIES, MOST_BYTES = 500, 50, 8 * 1024 * 1024
#: Seconds between two questions for further entries. (A server ends XREAD BLOCK up to 0.1 s too late, and acks wait meanwhile.)
IDLE_SECONDS: Final = 0.02
#: The stream of entries that cannot be decoded.
UNREADABLE: Final = "unreadable"

#: Emits values with a message id.
Emit = Callable[..., object]
#: A stream, and how often it was made again: as message ids name it.
Place = tuple[str, int]
#: An entry that was read: its stream, its id, its fields.
Read = tuple[StreamProgress, bytes, list[bytes]]


class RedisStreamTask:
    """The streams of one task. All methods are called in the task's own thread.

    epochs: positions are kept in the commits of the topology, so what is settled does not matter.
    """

    def __init__(self, spout: RedisStreamSpout, context: Context, epochs: bool) -> None:
        self._context = context
        self._tracked = not epochs
        self._start, self._max_gap = spout.start, spout.max_gap
        self._all = spout.streams
        self._own = own_streams(spout.streams, context.index, context.parallelism)
        self._values = values_maker(spout.fields, spout.field, spout.decode, spout.schema)
        connection = RedisConnection(spout.url, spout.password, "RedisStreamSpout")
        self._reader = RedisStreamReader(connection, spout.group)
        self._waiting = Waiting(connection.where, context.log, self._show, context.now)
        self._codec_waits = Waiting("what the codec needs", context.log, self._show, context.now)
        #: The positions that the topology's commit has, of all tasks.
        self._known: dict[str, tuple[int, int | None]] = {}
        self._streams: dict[str, StreamProgress] = {}
        self._entries: Iterator[Read] = iter(())
        #: What is to be reported: one error a call.
        self._errors: deque[SquallError] = deque()
        #: What was reported lately, and when.
        self._reported: dict[str, float] = {}
        self._idle = False
        #: How many entries are read at once now.
        self._most = FIRST_ENTRIES
        self._look_at = self._save_at = self._retry_at = self._begin_at = 0.0
        self._why = self._shown = self._waiting_text = ""
        #: What `position` said, from the last one on that acks have shown to be committed; only with epochs.
        self._asked: deque[dict[Place, tuple[int, int | None]]] = deque()
        self._emitted_since = True
        #: The last commit, as far as it is known; only with epochs.
        self._committed: dict[str, tuple[int, int | None]] = {}
        self._left_out = context.counter("entries left out")
        self._lost = context.counter("entries lost")
        context.gauge("lag", self.lag)
        context.gauge("streams", lambda: len(self._streams))

    def rewind(self, position: Positions | None) -> None:
        """Go on at a position of a commit. Raises LostEntries if a stream does not reach back so far."""
        self._known = {} if position is None else checked_positions(position)
        self._asked.clear()
        try:
            self._begin()
        except RedisAway as error:
            self._away(error)
        except RedisRefused:
            self._retry_at = 0.0  # the next call raises it again

    def position(self) -> dict[str, list[Any]]:
        """Return where each stream goes on."""
        kept = {name: self._known[name] for name in self._own if name in self._known}
        if not self._emitted_since and self._asked:
            self._asked.pop()  # there will be no ack between the two
        self._asked.append({each.place: (each.id, each.count) for each in self._streams.values()})
        self._emitted_since = False
        now = {name: (each.id, each.count) for name, each in self._streams.items()}
        return {name: [id_text(id), count] for name, (id, count) in {**kept, **now}.items()}

    def next(self, emit: Emit) -> float | None:
        """Emit the next entries; return the seconds until the next call (None: soon)."""
        now = self._context.now()
        if now < self._retry_at:
            self._waiting.shown()
            return min(self._retry_at - now, LOOK_SECONDS)
        try:
            return self._next(emit, now)
        except CodecAway as error:
            return self._codec_waits.failed(str(error))
        except RedisAway as error:
            return self._away(error)
        except RedisRefused:
            self._retry_at = self._context.now() + RETRY_SECONDS
            raise

    def settle_many(self, message_ids: list[Any]) -> None:
        """Note that the trees of entries are done, or failed for good; with epochs, that entries are committed."""
        if not self._tracked:
            self._note_commit(message_ids)
            return
        for place, before in message_ids:
            progress = self._streams.get(place[0])
            if progress is None or progress.place != tuple(place):
                continue
            progress.items.settle(before)
            if progress.paused and 2 * progress.items.waiting <= self._max_gap:
                progress.paused = False
                self._explain()
        now = self._context.now()
        if now >= self._save_at:  # `next` is not called at the limit of pending trees
            self._save_at = now + SAVE_SECONDS
            self.save()

    def save(self) -> None:
        """Have the group store how far entries are settled, if there is one and something has changed."""
        if self._reader.group is None:
            return
        places = (
            {name: each.settled() for name, each in self._streams.items()}
            if self._tracked
            else self._committed
        )
        try:
            for error in self._reader.save(places):
                self._report(error)
        except RedisAway as error:
            self._away(error)
        except SquallError as error:
            self._report(error)

    def close(self) -> None:
        """Store how far entries are settled, and close the connection."""
        self.save()
        self._reader.close()

    def lag(self) -> float:
        """Return how many entries are behind those that are settled (with epochs: emitted). Called in another thread."""
        return sum(each.behind() for each in list(self._streams.values()))

    def _next(self, emit: Emit, now: float) -> float | None:
        if len(self._streams) < len(self._own) and now >= self._begin_at:
            self._begin()
        if now >= self._save_at:
            self._save_at = now + SAVE_SECONDS
            self.save()
        if self._errors:
            raise self._errors.popleft()
        if self._emit_left(emit):
            return None
        streams = [each for each in self._streams.values() if not each.paused]
        if not streams:
            return IDLE_SECONDS if self._own else self._has_none()
        if self._idle and now < self._look_at and not self._reader.has_more(streams):
            self._waiting.succeeded()
            return IDLE_SECONDS
        self._read(streams, now)
        self._idle = not self._emit_left(emit)
        return IDLE_SECONDS if self._idle else None

    def _has_none(self) -> float:
        self._why = f"has no stream: there are {len(self._all)} for {self._context.parallelism} tasks"
        self._show(self._waiting_text)
        return LOOK_SECONDS

    def _away(self, error: RedisAway) -> float:
        seconds = self._waiting.failed(str(error))
        self._retry_at = self._context.now() + seconds
        return seconds

    def _note_commit(self, message_ids: list[Any]) -> None:
        """Note which position is committed: the first one that was asked for behind these entries."""
        last: dict[Place, int] = {}
        for place, before in message_ids:
            key = (place[0], place[1])
            last[key] = max(before, last.get(key, NO_ID))
        for number, asked in enumerate(self._asked):
            if all(place not in asked or asked[place][0] > before for place, before in last.items()):
                self._committed.update({name: at for (name, _), at in asked.items()})
                for _ in range(number):  # this one stays: its other entries may be acked by further calls
                    self._asked.popleft()
                return

    # Reading.

    def _begin(self) -> None:
        """Find where each stream begins. Raises LostEntries if a commit of the topology cannot be kept."""
        refused = []
        for name in [each for each in self._own if each not in self._streams]:
            try:
                self._begin_stream(name)
            except RedisRefused as error:
                refused.append(error)
        if refused and not self._streams:
            raise refused[0]
        self._begin_at = self._context.now() + RETRY_SECONDS
        for each in refused:
            self._report(each)
        self._waiting.succeeded()

    def _begin_stream(self, name: str) -> None:
        state = self._reader.state(name)
        known = self._known.get(name)
        stored = self._reader.stored_place(name)  # also with epochs: a group with consumers is refused
        if known is not None or not self._tracked:
            stored = None
        if stored is not None and stored[1] is None and stored[0] in (NO_ID, state.last):
            stored = (stored[0], counted_up_to(stored[0], state))  # a group that was made by hand
        id, count = known or stored or beginning(self._start, state)
        # A position of `start` may be behind all entries: nothing was read then.
        was_read = (known or stored) is not None and id not in (NO_ID, self._start)
        progress = StreamProgress(name, id, count, was_read=was_read)
        if (loss := progress.seen(state)) is not None:
            if known is not None and loss.strict:
                raise LostEntries(
                    f"the position of the topology's commit is gone: {loss.why}. Set another topology.state.path, with which"
                    " reading begins at `start`"
                )
            progress = self._lose(progress, loss)
        self._streams[name] = progress
        if known is not None:
            self._committed[name] = known
        self._context.log.info("reads stream %s behind %s", name, id_text(progress.id))

    def _lose(self, progress: StreamProgress, loss: Loss) -> StreamProgress:
        """Report what is gone; return how far the stream is now."""
        self._lost.add(loss.count)
        self._errors.append(LostEntries(f"{loss.why}; reads on there"))
        return progress.again() if loss.is_new else progress

    def _read(self, streams: list[StreamProgress], now: float) -> None:
        found: list[Read] = []
        looks = self._reader.read(streams, max(1, self._most // len(streams)))
        self._waiting.succeeded()
        self._look_at = now + LOOK_SECONDS
        for progress, look in zip(streams, looks):
            if isinstance(look, RedisRefused):
                self._report(look)
                continue
            state, entries = look
            if (loss := progress.seen(state)) is not None:
                again = self._lose(progress, loss)
                if again is not progress:
                    self._streams[progress.name] = again
                    continue  # it is read by the next call
            if not entries:
                progress.ended()
            found += [(progress, id, pairs) for id, pairs in entries]
        self._entries = iter(found)
        if found:
            bytes_of_each = sum(map(len, (part for _, _, pairs in found for part in pairs))) // len(found) + 1
            self._most = min(AT_ONCE, max(1, MOST_BYTES // bytes_of_each))

    def _emit_left(self, emit: Emit) -> bool:
        """Emit the entries that are here; return whether there were some. After an error, the next call goes on behind it."""
        settles, emitted = 0, False
        touched: dict[str, StreamProgress] = {}
        progress: StreamProgress | None = None
        try:
            for each in self._entries:
                progress, id, pairs = each
                entry = StreamEntry(progress.name, id.decode(), list(zip(pairs[::2], pairs[1::2])))
                fault = None
                try:
                    values = self._values(entry)
                except UnreadableMessage as error:
                    fault = error
                except SquallError:  # it is about the codec, not about the entry, which is decoded again
                    self._entries = iter([each, *self._entries])
                    raise
                except Exception as error:  # a codec of the user, or a library under one
                    fault = UnreadableMessage(f"{class_name(error)}: {message_of(error)}")
                touched[progress.name] = progress
                settles, emitted = progress.emitted(id_of(id), self._tracked), True
                if fault is not None:
                    self._leave_out(emit, entry, progress, settles, fault)
                    continue
                emit(values, message_id=(progress.place, settles))
        except EmitError:
            if self._tracked and progress is not None:
                progress.items.settle(settles)  # it would be refused for ever
            raise
        finally:
            self._emitted_since = self._emitted_since or bool(touched)
            for progress in touched.values():
                self._pause_if_full(progress)
        if emitted:
            self._codec_waits.succeeded()
        return emitted

    def _leave_out(
        self, emit: Emit, entry: StreamEntry, progress: StreamProgress, settles: int, error: UnreadableMessage
    ) -> None:
        """Count an entry that cannot be decoded, and emit it as it is, for who wants to keep it."""
        self._left_out.add()
        if not progress.left_out:
            self._errors.append(
                UnreadableMessage(
                    f"entry {entry.id} of stream {entry.stream!r} cannot be decoded: {error}. It is counted as `entries left"
                    f" out` and emitted on the stream {UNREADABLE!r}, as are further ones of this stream without a report"
                )
            )
        progress.left_out += 1
        values = (entry.stream, entry.id, entry.pairs, str(error))
        emit(values, message_id=(progress.place, settles), stream=UNREADABLE)

    # What is said.

    def _report(self, error: SquallError) -> None:
        """Report an error, unless the same was reported lately."""
        now, text = self._context.now(), str(error)
        if now - self._reported.get(text, -REPORT_SECONDS) >= REPORT_SECONDS:
            self._reported[text] = now
            self._errors.append(error)

    def _pause_if_full(self, progress: StreamProgress) -> None:
        if self._tracked and not progress.paused and progress.items.waiting >= self._max_gap:
            progress.paused = True
            self._explain()
            self._context.log.warning("%s", self._why)

    def _explain(self) -> None:
        paused = [each for each in self._streams.values() if each.paused]
        self._why = ""
        if paused:
            items = paused[0].items
            more = f"; {len(paused) - 1} more stream(s) are paused" if len(paused) > 1 else ""
            self._why = (
                f"stream {paused[0].name!r} is paused: the entry behind {id_text(items.position)} is neither acked nor failed,"
                f" and {items.waiting} entries from it on are emitted{more}"
            )
        self._show(self._waiting_text)

    def _show(self, text: str) -> None:
        """Show why nothing comes: Redis does not answer, or a stream is paused."""
        self._waiting_text = text
        if (shown := text or self._why) != self._shown:
            self._shown = shown
            self._context.progress(shown)
