"""The work of one task of an HttpSpout: it serves, emits what is stored, deletes what is settled, and waits for a file system.

Must not know: HTTP, how segments are named and chosen, how bodies are decoded.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from squall.stores.files import AbsentFile, FilesError, FilesRefused, FilesUnavailable
from squall_io.http.admitting import Admittance, RateLimit
from squall_io.http.grouping import WAITING_BYTES, GroupCommit
from squall_io.http.header_secrets import header_secret
from squall_io.http.log_files import LogFiles, NoLog, is_host_local
from squall_io.http.segments import LostRequests, Places, Segment, SegmentReader
from squall_io.http.serving import PortTaken, RefusedPort, WebhookServer
from squall_io.http.settling import SettledByAcks, SettledByCommits, SettledLog
from squall_io.http.stored_requests import (
    StoredRequest,
    UnreadableSegment,
    id_of,
    unpacked,
    values_of,
)
from squall_io.http.webhooks import BodiesUnderWay, WebhookApp
from squall_io.kit.codecs import UnreadableMessage, decoder
from squall_io.kit.waiting import Waiting
from topology_api.epoch_rules import state_path

if TYPE_CHECKING:
    from squall_io.http.spout import HttpSpout
    from topology_api import Context

#: Seconds between two looks for segments of other writers.
LOOK_SECONDS: Final = 5.0
#: Seconds between two looks while it is in doubt what comes next.
DOUBT_SECONDS: Final = 0.05
#: Seconds between two looks for what may be deleted, and the most files of one.
CLEAN_SECONDS: Final = 0.5
CLEAN_FILES: Final = 200
#: Seconds between two looks for what was stored by halves, and the age of what is.
SWEEP_SECONDS: Final = 300.0
HALVES_SECONDS: Final = 3600.0
#: Seconds after which what was refused is tried again.
RETRY_SECONDS: Final = 5.0
#: The most requests that a call emits.
AT_ONCE: Final = 500
#: The most bytes of this task's own segments that are kept in memory until they are emitted, and that are kept until this task
#: looks at them.
CACHE_BYTES: Final = 16 << 20
#: The stream of requests that were stored and can be read no more.
UNREADABLE: Final = "unreadable"

#: Emits values with a message id.
Emit = Callable[..., object]


class ReceivingTask:
    """One task. All methods are called in its own thread, except those that the server calls."""

    def __init__(self, spout: HttpSpout, context: Context) -> None:
        self._spout, self._context = spout, context
        self._epochs = state_path(context.conf) is not None
        self._values = values_of(spout.fields, spout.decode)
        self._token = None if spout.token is None else header_secret("token", spout.token)
        self._files = LogFiles(spout.directory, spout.webhdfs, spout.s3_endpoint)
        what = f"the directory {self._files.root}"
        self._waiting = Waiting(what, context.log, self._show_away, context.now)
        self._port_waits = Waiting("the port", context.log, self._show_port, context.now)
        self._reader: SegmentReader | None = None
        self._log: SettledLog = (
            SettledByCommits(int(str(context.conf["topology.epoch.keep"])))
            if self._epochs
            else SettledByAcks()
        )
        self._commits: GroupCommit | None = None
        self._server: WebhookServer | None = None
        self._coming = BodiesUnderWay()
        #: A position that was rewound to before the file system answered: (position,).
        self._rewound: tuple[Mapping[str, Sequence[int]] | None] | None = None
        #: What the server has stored and this thread has not seen yet, with the requests while they fit; then the requests of
        #: such segments, while they fit.
        self._notices: deque[tuple[int, int, list[StoredRequest] | None]] = deque()
        self._noticed_bytes = 0
        self._cache: dict[tuple[str, int], tuple[int, list[StoredRequest]]] = {}
        self._cached_bytes = self._backlog = 0
        self._errors: deque[Exception] = deque()
        self._reported = -RETRY_SECONDS
        self._look_at = self._clean_at = self._serve_at = self._emit_at = self._begin_at = 0.0
        self._sweep_at = 0.0
        self._away = self._port_text = self._shown = ""
        self._left_out = context.counter("requests left out")
        self._answers = {status: context.counter(f"answers {status}") for status in _COUNTED}
        context.gauge("backlog bytes", lambda: self._backlog)

    # What the runtime calls.

    def rewind(self, position: Mapping[str, Sequence[int]] | None) -> None:
        """Continue at a position. Raises LostRequests if requests behind it are gone, and the file system answers now."""
        self._rewound = (position,)
        try:
            self._begun()
            self._look()
            if self._opened.in_doubt:
                self._look()
        except FilesUnavailable as error:
            self._waiting.failed(str(error))
        except (FilesError, NoLog) as error:
            self._context.log.warning("%s", error)  # the next call raises it again
            self._begin_at = self._look_at = 0.0

    def position(self) -> Places:
        """Return where the reading of each writer is."""
        if self._rewound is not None or self._reader is None:
            known = (self._rewound or (None,))[0] or {}
            return {writer: list(place) for writer, place in known.items()}
        position = self._reader.position()
        self._log.asked(position)
        return position

    def settle(self, message_id: tuple[int, str, int]) -> None:
        """Record that a request is acked, or has failed for good."""
        number, writer, segment = message_id
        self._log.settle(number, Segment(writer, segment))

    def next(self, emit: Emit) -> float | None:
        """Emit the next requests; return the seconds until the next call (None: soon)."""
        now = self._context.now()
        if now < self._begin_at:
            return self._begin_at - now
        try:
            self._begin_at = now + RETRY_SECONDS  # for what is raised now
            self._begun()
            self._begin_at = 0.0
            self._serve(now)
            self._heed_server()
            if self._errors:
                raise self._errors.popleft()
            if now >= self._look_at:
                self._look_at = now + RETRY_SECONDS
                self._look()
                self._look_at = now + (DOUBT_SECONDS if self._opened.in_doubt else LOOK_SECONDS)
            self._clean(now)
            emitted = self._emit_some(emit) if now >= self._emit_at else 0
        except FilesUnavailable as error:
            self._begin_at = 0.0
            return self._waiting.failed(str(error))
        self._waiting.succeeded()
        if emitted:
            return None
        return max(0.01, min(self._look_at, self._next_serve, self._clean_at) - now)

    def close(self) -> None:
        """Answer what is under way, end the server, and delete what is settled."""
        if self._server is not None:
            self._server.stop()
        if self._commits is not None:
            self._commits.close()
        try:
            if self._reader is not None:
                self._heed_server()
                self._clean_at = 0.0
                self._clean(self._context.now())
        except FilesError as error:
            self._context.log.info("what is settled could not be deleted: %s", error)
        finally:
            self._files.close()

    # The server.

    @property
    def _next_serve(self) -> float:
        return self._serve_at if self._server is None else self._look_at

    def _serve(self, now: float) -> None:
        """See to it that the server runs."""
        server = self._server
        if server is not None and not server.alive:
            self._errors.append(RefusedPort(f"the server has ended: {server.error or 'without an error'}"))
            server.stop()
            self._server, self._serve_at = None, now + RETRY_SECONDS
        if self._server is not None or now < self._serve_at:
            return
        spout, context = self._spout, self._context
        port = spout.port and spout.port + context.index
        try:
            self._server = WebhookServer(self._app(), spout.host, port, spout.certificate, spout.key)
        except PortTaken as error:
            self._serve_at = now + self._port_waits.failed(str(error))
        except RefusedPort:
            self._serve_at = now + RETRY_SECONDS
            raise
        else:
            self._port_waits.succeeded()
            where = self._server.url + (spout.path or "")
            context.log.info("takes POSTs at %s and stores them in %s", where, self._files.root)
            self._port_text = f"listens at {where}"
            self._show()

    def _app(self) -> WebhookApp:
        spout = self._spout
        rate = RateLimit(spout.rate, self._context.now)
        admittance = Admittance(spout.path, self._token, spout.token_header, spout.max_body, rate, self._full)
        assert self._commits is not None
        read = decoder(spout.decode)
        return WebhookApp(admittance, read, self._commits, self._coming, self._full, self._count)

    def _full(self) -> str:
        """Return why no request is taken now. Called by the server."""
        commits, most = self._commits, self._spout.max_backlog
        assert commits is not None
        if commits.trouble:
            return "the directory of requests does not answer"
        waiting = commits.waiting_bytes + self._coming.bytes
        if waiting > WAITING_BYTES or self._backlog + waiting > most:
            return f"there are {self._backlog + waiting} bytes of requests that are not processed yet"
        return ""

    def _count(self, status: int) -> None:
        if (counter := self._answers.get(status)) is not None:
            counter.add()

    def _stored(self, number: int, size: int, requests: list[StoredRequest]) -> None:
        """Called by the server when a segment is on disk."""
        self._backlog += size
        if not self._notices:
            self._noticed_bytes = 0
        self._noticed_bytes += size
        fits = self._noticed_bytes <= CACHE_BYTES  # while the spout does not read, its file keeps the rest
        self._notices.append((number, size, requests if fits else None))
        self._context.wake()

    def _refused(self, error: Exception) -> None:
        """Called by the server with an error that waiting does not help; the same is reported now and then."""
        now = self._context.now()
        if now >= self._reported + RETRY_SECONDS:
            self._reported = now
            self._errors.append(error)
            self._context.wake()

    def _heed_server(self) -> None:
        """See what the server has stored."""
        reader, commits = self._opened, self._commits
        assert commits is not None
        while self._notices:
            number, size, requests = self._notices.popleft()
            reader.stored(number, size)
            if requests is not None and self._cached_bytes + size <= CACHE_BYTES:
                self._cached_bytes += size
                self._cache[commits.writer, number] = (size, requests)
        self._backlog = self._log.backlog(reader) + sum(size for _, size, _ in list(self._notices))
        if commits.trouble and not self._away:
            self._show_away(commits.trouble)
        elif not commits.trouble and not self._waiting.reason and self._away:
            self._show_away("")

    # The log.

    def _begun(self) -> None:
        """Make the writer, once the file system answers; carry out a rewind that waited for it."""
        if self._reader is None:
            context = self._context
            writer = self._files.begin(context.index, int(time.time()))
            self._reader = SegmentReader(context.index, context.parallelism, writer, self._epochs)
            self._commits = GroupCommit(
                writer,
                self._files.put,
                self._stored,
                self._refused,
                f"the directory {self._files.root}",
                context.log,
                context.now,
            )
        if self._rewound is not None:
            self._heed_server()
            position = self._rewound[0]
            self._reader.rewind(position)
            self._heed_elsewhere(self._reader.elsewhere)
            self._rewound = None
            self._log.restart(self._reader.position())
            self._look_at = 0.0

    def _heed_elsewhere(self, writers: int) -> None:
        """Heed that writers of the last commit have stored elsewhere. Raises LostRequests unless that can be another host."""
        root = self._files.root
        if not writers:
            return
        if not is_host_local(self._spout.directory):
            raise LostRequests(
                f"{root} is not the directory in which {writers} writer(s) of the last commit have stored requests: its files"
                " were deleted, or the spout had another directory. Restore the files, or give the former directory, or set"
                " another topology.state.path, with which reading begins at the earliest segment of each writer"
            )
        self._context.log.warning(
            "%d writer(s) of the last commit have stored requests in another directory than %s of this host: what is left of"
            " them is emitted when a task runs there",
            writers,
            root,
        )

    @property
    def _opened(self) -> SegmentReader:
        assert self._reader is not None
        return self._reader

    def _look(self) -> None:
        """Look for segments of other writers. Raises LostRequests."""
        self._opened.listed(self._files.list())
        self._backlog = self._log.backlog(self._opened)

    def _clean(self, now: float) -> None:
        """Delete what is settled."""
        if now < self._clean_at:
            return
        self._clean_at = now + CLEAN_SECONDS
        reader = self._opened
        for segment in self._log.deletable(reader)[:CLEAN_FILES]:
            self._files.delete(segment)
            self._log.deleted(segment)
            reader.deleted(segment)
            self._forget(segment)
        self._backlog = self._log.backlog(reader)
        if now >= self._sweep_at:
            self._sweep_at = now + SWEEP_SECONDS
            self._files.sweep(reader.is_mine, time.time() - HALVES_SECONDS)

    def _emit_some(self, emit: Emit) -> int:
        """Emit the next requests; return how many."""
        reader, count = self._opened, 0
        while count < AT_ONCE and (segment := reader.ready()) is not None:
            requests = self._requests(segment)
            for row in range(segment.row, min(len(requests), segment.row + AT_ONCE - count)):
                self._emit_one(emit, segment, row, requests[row])
                reader.emitted(segment)
                count += 1
                segment = segment._replace(row=row + 1)
            if segment.row >= len(requests):
                self._log.finished(segment)
                reader.finished(segment)
                self._forget(segment)
                if not requests:
                    self._log.deleted(segment)
        return count

    def _emit_one(self, emit: Emit, segment: Segment, row: int, request: StoredRequest) -> None:
        id = id_of(segment, row)
        try:
            values, stream = self._values(request, id), "default"
        except UnreadableMessage as error:
            self._left_out.add()
            self._context.log.warning("request %s can be read no more: %s", id, error)
            values, stream = (id, request.body, str(error)), UNREADABLE
        number = self._log.emitted(segment)
        emit(values, message_id=(number, segment.writer, segment.number), stream=stream)

    def _requests(self, segment: Segment) -> list[StoredRequest]:
        """Return the requests of a segment; none if another process of this task has settled it."""
        if (known := self._cache.get(segment[:2])) is not None:
            return known[1]
        try:
            data = self._files.read(segment)
        except FilesRefused:
            self._emit_at = self._context.now() + RETRY_SECONDS
            raise
        except AbsentFile:
            if self._epochs:
                self._emit_at = self._context.now() + RETRY_SECONDS
                raise LostRequests(
                    f"the segment {segment.number} of {segment.writer} is gone from {self._files.root}: restore it"
                ) from None
            self._opened.deleted(segment)
            return []
        try:
            found = unpacked(data, f"{self._files.root}: segment {segment.number} of {segment.writer}")
        except UnreadableSegment:
            self._emit_at = self._context.now() + RETRY_SECONDS
            raise
        self._cached_bytes += len(data)
        self._cache[segment[:2]] = (len(data), found)
        return found

    def _forget(self, segment: Segment) -> None:
        if (known := self._cache.pop(segment[:2], None)) is not None:
            self._cached_bytes -= known[0]

    # What `squall status` shows.

    def _show_away(self, text: str) -> None:
        self._away = text
        self._show()

    def _show_port(self, text: str) -> None:
        self._port_text = text
        self._show()

    def _show(self) -> None:
        if (text := self._away or self._port_text) != self._shown:
            self._shown = text
            self._context.progress(text)


#: The answers that are counted.
_COUNTED: Final = (202, 400, 401, 404, 405, 408, 413, 415, 429, 503)
