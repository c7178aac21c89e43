"""A process's session with the store, and its possible faults.

`SimulatedSession` is a `squall.cluster.store.Store` over sessions of an `InMemoryStore`, with the features of a ZooKeeper
client: reads from a cache that gets changes a little later (or, if the event was lost, after eight seconds), calls that fail
before or after they were done, calls during which the process is suspended, a connection that can be cut, and a session that
expires when the process was out of contact for too long; the next one begins by itself.
Must not know: its users, what values mean.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from random import Random
from typing import Any, Final, TypeVar

from squall.cluster import paths
from squall.cluster.memory import InMemoryStore
from squall.cluster.store import Cancel, Guard, Unavailable, Watch, below
from tests.simulation.timeline import Actor, Killed

T = TypeVar("T")
#: The value read at a path, and how long it may be used.
Known = dict[str, tuple[T, float]]

SESSION_SECS: Final = 10.0
#: Seconds that a cache entry lives without an event.
CACHE_SECS: Final = 8.0
#: Seconds between two checks of the servers for expired sessions.
LOOK_SECS: Final = 0.5
GARBAGE: Final = b'{"kind": "Garbage"'
#: Seconds after which a client that was cut off reconnects.
RECONNECT_SECS: Final = (0.05, 1.0)
#: Seconds for which a call is retried without an answer.
CALL_SECS: Final = 3.0


@dataclass
class Chances:
    """The chances and lengths of a session's faults; 0: never."""

    #: Of each call: to fail before it is done, after it is done, to take `slow` seconds at most, to be suspended for `stall`.
    fail_before: float = 0.0
    fail_after: float = 0.0
    slow: float = 0.0
    stall: float = 0.0
    slow_secs: float = 1.5
    stall_secs: float = 25.0
    #: Of each event of a watch.
    lose_event: float = 0.0
    double_event: float = 0.0
    late_event: float = 0.0
    #: Whether any of these is not 0.
    rough: bool = False

    def calm(self) -> None:
        """No faults from now on."""
        self.__dict__.update(vars(Chances()))

    def become(self, chances: Mapping[str, float]) -> None:
        """Use these from now on."""
        self.__dict__.update(chances, rough=any(chances.values()))


class Observer:
    """Called for every write that was done; see `tests.simulation.checks`."""

    def wrote(self, actor: Actor, kind: str, path: str, guard: Guard | None) -> None:
        """An actor has changed the value at a path."""

    def damaged(self, path: str) -> None:
        """The value at a path has been damaged."""


class SimulatedSession:
    """`squall.cluster.store.Store`, as one process sees it."""

    session_secs = SESSION_SECS

    def __init__(self, server: Server, actor: Actor, chances: Chances, random: Random) -> None:
        self.server = server
        self.actor = actor
        self.chances = chances
        self.random = random
        #: Whether no message arrives; and since when there has been no contact.
        self.cut = False
        self.away_since: float | None = None
        self.connected = True
        #: Whether the session was ended early, and the process has not asked since whether it leads.
        self.early = False
        #: After this many further writes the process dies, before or after the last of them.
        self.dies_after: int | None = None
        self._inner = server.store.session()
        self._watches: list[tuple[str, Watch]] = []
        self._values: Known[tuple[bytes, int] | None] = {}
        self._names: Known[list[str]] = {}
        self._last_event = 0.0
        self._closed = False
        server.enter(self)
        actor.on_death.append(self.close)
        self._unwatch = server.store.watch("/", self._event)

    def close(self) -> None:
        """The process has died; the session ends when it was silent for long enough."""
        if self._closed:
            return
        self._closed = True
        self._unwatch()
        self._watches.clear()
        inner, line = self._inner, self.actor.line
        line.at(line.now + self.session_secs, self.server.actor, inner.close)
        self.server.sessions.remove(self)

    # Contact

    @property
    def reachable(self) -> bool:
        """Whether a message would arrive."""
        return not self.cut and self.server.up

    def expire(self) -> None:
        """The servers end the session, whatever its process does."""
        self._inner.close()

    def end_early(self) -> None:
        """The servers end the session though its process was in contact all the time: it cannot know until it asks."""
        self.early = True
        self.expire()

    def look(self) -> None:
        """On the servers' side: has the process been heard?"""
        line = self.actor.line
        if self.reachable and not self.actor.frozen and self.actor.alive:
            self.away_since = None
            if not self.connected or self._inner._closed:
                self._reconnect()
            return
        if not self.server.up:  # when they are back, servers give every session its whole time
            self.connected = False
            self.away_since = None
            return
        if self.away_since is None:
            self.away_since = line.now
        if self.cut:
            self.connected = False
        if line.now - self.away_since >= self.session_secs and not self._inner._closed:
            self._inner.close()

    def _reconnect(self) -> None:
        line = self.actor.line
        line.after(self.random.uniform(*RECONNECT_SECS), self.actor, self._connected)

    def _connected(self) -> None:
        if not self.reachable or self._closed or (self.connected and not self._inner._closed):
            return
        if self._inner._closed:
            self._inner = self.server.store.session()
        self.connected = True
        self._forget()
        for prefix, callback in list(self._watches):
            callback(prefix)

    # Watches

    def watch(self, prefix: str, callback: Watch) -> Cancel:
        """See `Store`."""
        entry = (prefix, callback)
        self._watches.append(entry)

        def cancel() -> None:
            if entry in self._watches:
                self._watches.remove(entry)

        return cancel

    def _event(self, path: str) -> None:
        """The store has changed; the process learns of it a moment later."""
        if not self.reachable or not self.connected or not self.actor.alive:
            return  # it reads everything again when it is back
        chances, draw, line = self.chances, self.random.random, self.actor.line
        times = 1
        if chances.rough:
            times = 0 if draw() < chances.lose_event else 2 if draw() < chances.double_event else 1
        for _ in range(times):
            late = chances.rough and draw() < chances.late_event
            delay = self.random.uniform(0.5, 5.0) if late else 0.001 + 0.02 * draw()
            self._last_event = max(self._last_event, line.now + delay)
            line.at(self._last_event, self.actor, partial(self._notified, path))

    def _notified(self, path: str) -> None:
        if not self._closed:
            self._drop(path)
            for prefix, callback in list(self._watches):
                if below(prefix, path):
                    callback(path)

    def _drop(self, path: str) -> None:
        values, names = self._values, self._names
        for above in _upwards(path):
            values.pop(above, None)
            names.pop(above, None)

    def _forget(self) -> None:
        self._values.clear()
        self._names.clear()

    # Reads

    def get(self, path: str) -> tuple[bytes, int] | None:
        """See `Store`."""
        return self._read(self._values, path, InMemoryStore.get)

    def children(self, path: str) -> list[str]:
        """See `Store`."""
        found: list[str] = self._read(self._names, path, InMemoryStore.children)
        return list(found)

    def owns(self, path: str) -> bool:
        """See `Store`. Never from the cache."""
        found: bool = self._call(lambda: self._inner.owns(path))
        if path == paths.LEADER:
            self.early = False
        return found

    def fresh(self) -> None:
        """From now on reads are at least as new as this moment."""
        self._call(lambda: self._inner.get("/"))
        self._forget()

    def _read(self, known: Known[T], path: str, read: Callable[[InMemoryStore, str], T]) -> T:
        found = known.get(path)
        if found is not None and self.actor.line.now < found[1] and self.connected:
            return found[0]
        value = self._call(lambda: read(self._inner, path))
        known[path] = value, self.actor.line.now + CACHE_SECS
        return value

    # Writes

    def put(self, path: str, data: bytes, expected: int | None = None, guard: Guard | None = None) -> int:
        """See `Store`."""
        return self._write(  # type: ignore[no-any-return]
            "put", path, guard, lambda: self._inner.put(path, data, expected, guard)
        )

    def create(self, path: str, data: bytes, ephemeral: bool = False, guard: Guard | None = None) -> int:
        """See `Store`."""
        return self._write(  # type: ignore[no-any-return]
            "create", path, guard, lambda: self._inner.create(path, data, ephemeral, guard)
        )

    def delete(self, path: str, expected: int | None = None, guard: Guard | None = None) -> None:
        """See `Store`."""
        self._write("delete", path, guard, lambda: self._inner.delete(path, expected, guard))

    def _write(self, kind: str, path: str, guard: Guard | None, do: Callable[[], Any]) -> Any:
        def done() -> Any:
            answer = do()
            self.server.observer.wrote(self.actor, kind, path, guard)
            return answer

        if self.dies_after is not None:
            self.dies_after -= 1
            if self.dies_after < 0:
                self.dies_after = None
                if self.random.random() < 0.5:
                    done()
                self.actor.die()
                raise Killed(self.actor.name)
        try:
            return self._call(done)
        finally:
            self._drop(path)

    def _call(self, do: Callable[[], T]) -> T:
        """A call to the servers, with all possible faults."""
        if not self.chances.rough and self.connected and not self.cut and self.server.up:
            self.away_since = None  # the servers have received it
            return do()
        return self._rough_call(do)

    def _rough_call(self, do: Callable[[], T]) -> T:
        actor, chances, draw = self.actor, self.chances, self.random.random
        if not self.connected or not self.reachable:
            if self.connected and not actor.line.deep:  # it does not know yet
                actor.stall(CALL_SECS * draw())
            raise Unavailable("the store is not reached")
        chance = draw()
        inner = self._inner
        if chance < chances.fail_before:
            raise Unavailable("the store did not answer (and did nothing)")
        if chance < chances.fail_before + chances.fail_after:
            do()
            raise Unavailable("the store did not answer (and did it)")
        if not actor.line.deep:
            chance = draw()
            if chance < chances.stall:
                actor.stall(chances.stall_secs * draw())
            elif chance < chances.stall + chances.slow:
                actor.stall(min(chances.slow_secs, CALL_SECS) * draw())
        if inner is not self._inner or not self.reachable:
            raise Unavailable("the session in which this was asked for is over")
        answer = do()
        self.away_since = None  # the servers have received it
        if not actor.line.deep and draw() < chances.stall:
            actor.stall(chances.stall_secs * draw())  # done, and not known yet
        return answer


class Server:
    """The store's servers: their values, whether they answer, and all their sessions."""

    def __init__(self, actor: Actor) -> None:
        #: An actor that is never frozen or killed.
        self.actor = actor
        self.store = InMemoryStore()
        self.up = True
        self.observer = Observer()
        self.sessions: list[SimulatedSession] = []
        #: Whether they have come back without their values.
        self.empty = False
        #: How many values were damaged so far.
        self.damages = 0
        self._kept: Any = None
        self._look()

    def enter(self, session: SimulatedSession) -> None:
        """Begin a session."""
        self.sessions.append(session)
        session.look()

    def _look(self) -> None:
        self.actor.line.after(LOOK_SECS, self.actor, self._look)
        for session in list(self.sessions):
            session.look()

    def damage(self, path: str) -> Callable[[], None]:
        """Replace the value at a path with garbage; return a function that repairs it, if it is still there."""
        found = self.store.get(path)
        assert found is not None
        self.observer.damaged(path)
        self.damages += 1
        garbage = b"%b %d" % (GARBAGE, self.damages)
        self.store.put(path, garbage)

        def repair() -> None:
            now = self.store.get(path)
            if now is not None and now[0] == garbage:
                self.store.put(path, found[0])

        return repair

    def lose_everything(self) -> None:
        """The servers come back empty: no session and no value is left."""
        tree = self.store._tree
        for session in list(self.sessions):
            session.end_early()
            session.connected = False
        self.empty = True
        self._kept = (dict(tree.values), {path: dict(names) for path, names in tree.names.items()})
        with tree.lock:
            tree.values.clear()
            tree.names.clear()
            tree.owners.clear()

    def find_everything(self) -> None:
        """The old servers are back with their values, except for ephemeral ones: those sessions have ended."""
        if not self.empty:
            return
        self.empty = False
        tree = self.store._tree
        for session in list(self.sessions):
            session.end_early()
            session.connected = False
        with tree.lock:
            tree.values, tree.names = self._kept
            tree.owners.clear()


@lru_cache(8192)
def _upwards(path: str) -> tuple[str, ...]:
    """A path and all paths above it."""
    found = [path]
    while path != "/":
        path = path.rpartition("/")[0] or "/"
        found.append(path)
    return tuple(found)
