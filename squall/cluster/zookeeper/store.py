"""A store in ZooKeeper, which caches reads until the values change.

One watch at the root reports every change. Changed values are dropped from the cache before any watch is called, and before any
later answer of the server is returned. Each time the client connects, everything is read again, and every watch is called with
its prefix. Calls never wait for a connection: without a connection they raise `Unavailable` at once. With a connection, they
wait at most `call_secs` for an answer. Once an answer is overdue, further calls fail at once until it arrives, so that a frozen
server delays no caller twice. A lost session is followed by a new session; the owners of ephemeral values must create them
again.
Must not know: how requests are sent (`client`), how values are stored in nodes (`squall.cluster.znodes`).
"""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

from squall.clock import RealClock
from squall.cluster import store, znodes
from squall.cluster.read_cache import ReadCache
from squall.cluster.store import Guard
from squall.cluster.zookeeper.client import NoAccess, TimedCall, ZooKeeperClient
from squall.security.zookeeper_tls import ClientFiles

#: The most seconds for which an answer is cached. A change without a notification is seen after this time.
MEMORY_SECS: Final = 8.0
#: How many nodes a page of `walk_access` has, all of them asked for at once: some 10 ms of work.
PAGE: Final = 100
#: Seconds between two checks of a connection that works, by the thread that calls the watches.
_IDLE_SECS: Final = 2.0
#: Seconds between two such checks while the connection does not work.
_HURRY_SECS: Final = 0.25
#: How long the end of a session may take when this process closes it.
_CLOSE_SECS: Final = 1.0

_log = logging.getLogger(__name__)


class ZooKeeperStore:
    """`squall.cluster.store.Store` in ZooKeeper, below `root`. Begins with `start`, ends with `close`.

    servers: HOST:PORT separated by commas. credentials: user and password of ZooKeeper's digest scheme; a value that is written
    with credentials can be read and changed only with the same credentials. tls: the files for TLS; None: no TLS. Any number of
    threads may call the methods.
    """

    def __init__(
        self,
        servers: str,
        *,
        root: str = "/squall",
        session_secs: float = 10.0,
        credentials: tuple[str, str] | None = None,
        tls: ClientFiles | None = None,
        call_secs: float = 3.0,
    ) -> None:
        self.servers = servers
        self._root = store.checked_path(root).rstrip("/")
        self._wanted_secs = session_secs
        self._credentials = credentials
        self._tls = tls
        self._call_secs = call_secs
        self._client: ZooKeeperClient | None = None
        self._cache = ReadCache(RealClock(), MEMORY_SECS)
        self._overdue: Any = None
        self._lock = threading.Lock()
        self._watches = store.Watches()
        #: The next tasks of the thread that calls the watches; None: end.
        self._notes: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._ready = threading.Event()
        self._refusal: NoAccess | None = None
        self._settled = False
        #: The troubles with TLS that were logged since the client was connected last.
        self._told: set[str] = set()

    # Life

    def start(self, wait_secs: float = 10.0) -> None:
        """Connect; raise `Unavailable` if no server has answered within `wait_secs`, `NoAccess` if a server refuses access."""
        if self._thread is not None:
            raise ValueError("this store has been started already")
        self._ready.clear()
        self._refusal = None
        self._notes = queue.SimpleQueue()
        self._client = self._new_client()
        self._thread = threading.Thread(target=self._watch_over, name="squall-zookeeper-watches", daemon=True)
        self._thread.start()
        if self._ready.wait(wait_secs) and self._refusal is None:
            return
        client = self._client
        why = None if client is None or self._refusal is not None else client.find_trouble()
        self.close()
        raise self._refusal or store.Unavailable(
            f"no ZooKeeper answered at {self.servers} within {wait_secs:g} seconds:"
            f" {why or 'is it running, and is this its address?'}"
        )

    def close(self) -> None:
        """End the session, and with it its ephemeral values. This takes a second or two at most."""
        with self._lock:
            client, self._client = self._client, None
        thread, self._thread = self._thread, None
        if thread is not None:
            self._notes.put(None)
            if thread is not threading.current_thread():
                thread.join(_CLOSE_SECS)
        if client is not None:
            ending = threading.Thread(target=client.end, name="squall-zookeeper-end", daemon=True)
            ending.start()
            ending.join(_CLOSE_SECS)
        self._cache.close()

    @property
    def connected(self) -> bool:
        """Whether a server answers, as far as is known."""
        return (client := self._client) is not None and client.connected and self._overdue is None

    @property
    def session_secs(self) -> float:
        """The session length that the server has granted."""
        return self._wanted_secs if (client := self._client) is None else client.session_secs

    # The store

    def get(self, path: str) -> tuple[bytes, int] | None:
        """Return the value and its version, or None if there is no value."""
        call = self._call(store.checked_path(path))
        if (known := self._cache.find(ReadCache.VALUE, path)) is not None:
            answer: tuple[bytes, int] | None = known.answer
            return answer
        asked = self._cache.begin(ReadCache.VALUE, path)
        found = call.read(path)
        self._cache.keep(asked, found, 0 if found is None else len(found[0]))
        return found

    def put(self, path: str, data: bytes, expected: int | None = None, guard: Guard | None = None) -> int:
        """Write a value, over any earlier one or only over version `expected`; return the new version."""
        store.check_value(path, data)
        known = self._known_version(path)
        with self._writing(path, guard) as call:
            return znodes.put(call, path, bytes(data), expected, guard, known)

    def create(self, path: str, data: bytes, ephemeral: bool = False, guard: Guard | None = None) -> int:
        """Write a value where there is none, and return its version; raise `Exists` if there is one."""
        store.check_value(path, data)
        with self._writing(path, guard) as call:
            return znodes.create(call, path, bytes(data), ephemeral, guard)

    def delete(self, path: str, expected: int | None = None, guard: Guard | None = None) -> None:
        """Remove a value (values below it stay). A missing value is an error only if a version is expected."""
        store.checked_path(path)
        known = self._known_version(path)
        with self._writing(path, guard) as call:
            znodes.delete(call, path, expected, guard, known)

    def owns(self, path: str) -> bool:
        """Return whether there is an ephemeral value that belongs to this session, according to the leading server."""
        return self._call(store.checked_path(path)).owns(path)

    def children(self, path: str) -> list[str]:
        """Return the names directly below `path` that hold a value or have values below them, sorted."""
        call = self._call(store.checked_path(path))
        if (known := self._cache.find(ReadCache.CHILDREN, path)) is not None:
            return list(known.answer)
        asked = self._cache.begin(ReadCache.CHILDREN, path)
        names = call.names(path)
        self._cache.keep(asked, tuple(names), sum(map(len, names)))
        return names

    def watch(self, prefix: str, callback: store.Watch) -> store.Cancel:
        """Call `callback(path)` after each change at or below `prefix`; return a function that ends the watch."""
        return self._watches.add(prefix, callback)

    def fresh(self) -> None:
        """Make later reads at least as new as this call, whichever server answers."""
        self._call("/").sync()
        self._cache.drop_all()

    def walk_access(self) -> Iterator[int]:
        """Check who has access to each node; yield the number of nodes of each page. Raises `OpenToStrangers`. Without
        credentials every node is open, so there is nothing to check.
        """
        left = [] if self._credentials is None else ["/"]
        while left and self._credentials is not None:
            page, left = left[-PAGE:], left[:-PAGE]  # the deepest first, so that the list stays short
            left += self._call("/").check_closed(page, self._credentials)
            yield len(page)

    # Calls

    def _call(self, path: str) -> TimedCall:
        if (client := self._client) is None:
            raise store.Unavailable(f"{path}: the store is closed")
        if not client.connected or self._overdue is not None:
            raise store.Unavailable(f"{path}: ZooKeeper at {self.servers} does not answer")
        return TimedCall(client, self._root, path, self._call_secs, self._is_overdue)

    @contextlib.contextmanager
    def _writing(self, path: str, guard: Guard | None) -> Iterator[TimedCall]:
        """Yield the call of a write; whether it succeeds or not, cached values of its path are dropped."""
        try:
            yield self._call(path)
        except store.StoreError:
            if guard is not None:
                self._cache.changed(guard.path)
            raise
        finally:
            self._cache.wrote(path)

    def _known_version(self, path: str) -> int | None:
        known = self._cache.find(ReadCache.VALUE, path)
        return None if known is None or known.answer is None else int(known.answer[1])

    def _is_overdue(self, result: Any) -> None:
        self._overdue = result
        result.rawlink(self._has_come)

    def _has_come(self, result: Any) -> None:
        if self._overdue is result:
            self._overdue = None

    # Called by the client's threads; these methods only take notes

    def _new_client(self) -> ZooKeeperClient:
        self._settled = False
        self._overdue = None
        return ZooKeeperClient(
            self.servers,
            self._wanted_secs,
            self._credentials,
            self._node_changed,
            self._state_changed,
            self._tls,
        )

    def _node_changed(self, full: str, data: bool) -> None:
        path = full[len(self._root) :] or "/"
        self._cache.changed(path)
        if data:
            self._notes.put(partial(self._tell_watches, path))

    def _state_changed(self, state: str) -> None:
        self._settled = False  # before the cache is closed: see the end of _settle
        self._cache.close()
        self._overdue = None
        self._notes.put(partial(_log.info, "ZooKeeper at %s: %s", self.servers, state))
        self._notes.put(self._look_after)

    # The thread that calls the watches

    def _watch_over(self) -> None:
        notes = self._notes
        while True:
            note: Callable[[], None] | None = self._look_after
            with contextlib.suppress(queue.Empty):
                note = notes.get(timeout=_IDLE_SECS if self._settled else _HURRY_SECS)
            if note is None:
                return
            try:
                note()
            except Exception:  # otherwise no thread would call the watches
                _log.exception(
                    "the thread that looks after ZooKeeper at %s had an error, and continues", self.servers
                )
                self._settled = False

    def _look_after(self) -> None:
        self._cache.purge()
        if (client := self._client) is None:
            return
        if (trouble := client.trouble) is None:
            self._told.clear()
        elif trouble not in self._told and self._ready.is_set():  # before that, `start` reports it
            self._told.add(trouble)
            _log.warning("no connection to ZooKeeper: %s", trouble)
        if client.dead:
            _log.warning("the connection to ZooKeeper at %s is opened again", self.servers)
            client.end()
            with self._lock:
                if self._client is client:  # the store was not closed meanwhile
                    self._client = self._new_client()
        elif client.connected and not self._settled:
            self._settle(client)

    def _settle(self, client: ZooKeeperClient) -> None:
        """Set the watch, open the cache, and make callers read everything again. Called each time the client has connected."""
        call = TimedCall(client, self._root, "/", self._call_secs, self._is_overdue)
        self._settled = True  # until the state changes, which may happen at any moment
        try:
            call.watch_changes()
            call.check_access(self._credentials)
            call.sync()  # the server of this connection may be behind the previous server
        except NoAccess as error:
            _log.error("%s", error)
            self._refusal = error
            self._ready.set()
            return
        except store.StoreError as error:
            _log.debug("ZooKeeper is connected and does not answer yet: %s", error)
            self._settled = False
            return
        self._cache.open()
        if not self._settled:  # the connection was lost just now: changes are no longer reported
            self._cache.close()
        self._ready.set()
        self._tell_watches(None)

    def _tell_watches(self, path: str | None) -> None:
        """Report one path to its watches; None: report to each watch its own prefix."""
        for callback, changed in self._watches.at(path):
            try:
                callback(changed)
            except Exception:
                _log.exception("a watch of the store failed at %s; the others are still called", changed)
