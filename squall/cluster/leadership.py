"""Leadership and presence: an election among the Nimbuses, writes that are reserved for the leader, ephemeral presence nodes.

The Nimbus that creates the ephemeral `/leadership/leader` leads. It then writes `/leadership/epoch`; the new version of this
value guards every write of the leader's term, so the store refuses all writes of a superseded leader, however late they arrive.
A leader stops even earlier, by its own clock. It asks the store repeatedly whether the session is alive, and leads until 0.6 of
the session's length have passed since it *sent* the last question that was answered with yes. No other process can win before
the whole length has passed. Long work calls `keeps_leading` between its writes; that method asks the store again when it is
time.

Promises: no two terms have the same epoch; a leader that gets no answer from the store stops before the store could end its
session; a write that ended in `Unavailable` does not harm an election, whether it was done or not.
Must not know: what a leader does, and in which thread.
"""

from __future__ import annotations

import logging
import math
import os
import secrets
from collections.abc import Callable
from typing import Final

from squall.clock import Clock
from squall.cluster import paths
from squall.cluster.store import Cached, Conflict, Deposed, Exists, Guard, Store, StoreError, Unavailable

_log = logging.getLogger(__name__)

#: The fraction of a session's length for which one answer is valid. The rest allows for uneven clocks, and for work that began
#: in time.
TERM_PART: Final = 0.6
#: How many times per session length a leader confirms its session, so that a lost answer or two do not end the term.
ROUNDS_PER_SESSION: Final = 6
#: How many times per session length a daemon checks that its presence node still exists. The watch reports a lost session at
#: once; these checks are for the case that the watch itself is lost.
LOOKS_PER_SESSION: Final = 2
#: Used as the length of a session that never ends, where an interval is needed.
ENDLESS_SECS: Final = 10.0


class _Rounds:
    """Looks after an ephemeral value in rounds: at intervals, and at once when something below a path has changed."""

    def __init__(self, store: Store, path: str, watched: str) -> None:
        self._store = store
        self._path = path
        self._next = -math.inf
        self._look = True  # set by the watch
        self._over = False
        self._cancel = store.watch(watched, self._changed)

    def next_time(self, now: float) -> float:
        """Return the time at which a round is due; it may be called earlier."""
        if self._over:
            return math.inf
        return now if self._look else max(now, self._next)

    def leave(self) -> None:
        """Leave: remove the value at once if the store answers; otherwise it disappears with the session."""
        self._over = True
        self._cancel()
        try:
            self._let_go()
        except StoreError as error:
            _log.info("%s will disappear when its session has ended: %s", self._path, error)

    def _let_go(self) -> None:
        if self._store.owns(self._path):
            self._store.delete(self._path)

    def _changed(self, path: str) -> None:
        self._look = True

    def _part_of_session(self, times: int) -> float:
        """Return the seconds between two rounds, for this number of rounds in a session."""
        secs = self._store.session_secs
        return (ENDLESS_SECS if math.isinf(secs) else secs) / times


class Leadership(_Rounds):
    """One candidate. One thread calls `round`; any thread may call `leading` and `leader`.

    why_not: returns a reason not to lead at present, or None. It is called before each attempt; a new reason is logged.
    wall_clock: gives seconds since 1970, for people who ask when the term began.
    """

    def __init__(
        self,
        store: Store,
        id: str,
        clock: Clock,
        why_not: Callable[[], str | None] = lambda: None,
        wall_clock: Callable[[], float] | None = None,
    ) -> None:
        super().__init__(store, paths.LEADER, paths.LEADERSHIP)
        self._wall_clock = wall_clock
        self._id = id
        self._clock = clock
        self._why_not = why_not
        self._guard: Guard | None = None
        self._until = -math.inf
        self._first = True
        #: What `why_not` returned when this Nimbus last could have led.
        self.reason: str | None = None

    def round(self, now: float) -> Guard | None:
        """If a round is due, try to lead or to keep leading. Return the guard of this term's writes, None while not leading. If
        the guard differs from the last one, a new term has begun, and the caller must start over."""
        if self._over:
            return None
        if self._guard is not None and not self.leading(now):
            self._end("the store has not answered in time")
        if self._look or now >= self._next:
            self._look = False  # before anything is read, so that later changes are noticed
            self._take_part(now, candidate=True)
        return self._guard if self.leading(self._clock.now()) else None

    def _take_part(self, now: float, candidate: bool) -> None:
        """Confirm this term, if there is one; without one, a candidate tries to begin the next term."""
        self._next = now + self._part_of_session(ROUNDS_PER_SESSION)
        try:
            if self._guard is not None:
                self._renew(self._guard)
            if self._guard is None and candidate:
                self._try()
        except Unavailable as error:
            _log.debug("Nimbus %s: no round of the election: %s", self._id, error)

    def leading(self, now: float) -> bool:
        """Return whether this Nimbus leads, by its own clock alone."""
        return self._guard is not None and now < self._until

    def keeps_leading(self) -> bool:
        """Return whether this Nimbus still leads, during work that may take long. Only for the thread of `round`."""
        now = self._clock.now()
        if self.leading(now) and now >= self._next:
            self._take_part(now, candidate=False)
        return self.leading(self._clock.now())

    def leader(self) -> str | None:
        """Return the id of the leading Nimbus, None if there is none; raise `Unavailable` if the store does not answer."""
        return None if (found := self._store.get(paths.LEADER)) is None else found[0].decode(errors="replace")

    def step_aside(self, why: str) -> None:
        """End this term so that another Nimbus may lead. `why_not` decides whether this Nimbus is a candidate again."""
        if self._guard is not None:
            self._end(why)
        self._next = self._clock.now() + self._part_of_session(ROUNDS_PER_SESSION)
        self._look = False
        self._let_go()

    def resign(self) -> None:
        """Stop leading and take part in no further election, so that another Nimbus may lead at once."""
        self._guard = None
        self.leave()

    def _end(self, why: str) -> None:
        self._guard = None
        _log.warning("Nimbus %s leads no more: %s", self._id, why)

    def _renew(self, guard: Guard) -> None:
        asked = self._clock.now()
        if not self._store.owns(paths.LEADER):
            self._end("its session has ended")
            return
        self._until = self._end_of(asked)
        if (found := self._store.get(paths.LEADER)) is not None and found[0] != self._id.encode():
            _log.error("%s held %r, not this Nimbus's id: writing it again", paths.LEADER, found[0][:80])
            self._store.put(paths.LEADER, self._id.encode(), guard=guard)
        if (found := self._store.get(paths.EPOCH)) is None or found[1] != guard.version:
            self._end(f"another process has written {paths.EPOCH}")

    def _try(self) -> None:
        reason = self._why_not()
        if reason != self.reason and reason is not None:
            _log.warning("Nimbus %s does not lead: %s", self._id, reason)
        self.reason = reason
        if reason is not None:
            self._let_go()  # an unanswered call, or a call before there was a reason, may have won it
            return
        # Read the epoch before creating the node: if another process leads in between, it has written the epoch, and the write
        # of this process is refused.
        epoch = self._store.get(paths.EPOCH)
        if (asked := self._take_place()) is None:
            return
        try:
            if epoch is None:
                version = self._store.create(paths.EPOCH, self._term())
            else:
                version = self._store.put(paths.EPOCH, self._term(), epoch[1])
        except (Conflict, Exists):
            self._look = True  # this Nimbus has the place, but has not written the epoch yet
            return
        if isinstance(self._store, Cached):
            self._store.fresh()  # read the last writes of the previous leader, not cached values
        self._first = False
        self._until = self._end_of(asked)
        self._guard = Guard(paths.EPOCH, version)
        _log.info("Nimbus %s leads (epoch %d)", self._id, version)

    def _term(self) -> bytes:
        """Return the value of the epoch: who leads, and since when. Only its version decides anything."""
        since = "" if self._wall_clock is None else f" {self._wall_clock():.3f}"
        return f"{self._id}{since}".encode()

    def _take_place(self) -> float | None:
        """Return the time of the request if this Nimbus got the place, else None."""
        for _ in range(2):
            asked = self._clock.now()
            try:
                self._store.create(paths.LEADER, self._id.encode(), ephemeral=True)
                return asked
            except Exists:
                asked = self._clock.now()
                if self._store.owns(paths.LEADER):  # an unanswered call won the place
                    return asked
            first, self._first = self._first, False
            if not first or self.leader() != self._id:
                return None
            # This process was restarted, and the session of the earlier process has not expired yet.
            self._store.delete(paths.LEADER)
        return None

    def _end_of(self, asked: float) -> float:
        return asked + TERM_PART * self._store.session_secs


def leads_since(epoch: bytes, leader: str) -> float | None:
    """Return when the term of the leading Nimbus began, in seconds since 1970, by the value of `/leadership/epoch`; None if
    the value does not say so."""
    name, _, since = epoch.decode(errors="replace").partition(" ")
    if name != leader:
        return None
    try:
        return float(since) if math.isfinite(float(since)) else None
    except ValueError:
        return None


class GuardedStore:
    """A store for one term: its writes carry the guard, and are not even attempted once `leading` returns false."""

    def __init__(self, store: Store, guard: Guard, leading: Callable[[], bool]) -> None:
        self._store = store
        self._guard = guard
        self._leading = leading
        # Reads are the store's own methods.
        self.get, self.owns, self.children, self.watch = store.get, store.owns, store.children, store.watch

    @property
    def session_secs(self) -> float:
        """The session length of the underlying store."""
        return self._store.session_secs

    def put(self, path: str, data: bytes, expected: int | None = None, guard: Guard | None = None) -> int:
        """Write a value while this term lasts; raise `Deposed` afterwards."""
        return self._store.put(path, data, expected, self._checked(path, guard))

    def create(self, path: str, data: bytes, ephemeral: bool = False, guard: Guard | None = None) -> int:
        """Create a value while this term lasts; raise `Deposed` afterwards."""
        return self._store.create(path, data, ephemeral, self._checked(path, guard))

    def delete(self, path: str, expected: int | None = None, guard: Guard | None = None) -> None:
        """Remove a value while this term lasts; raise `Deposed` afterwards."""
        self._store.delete(path, expected, self._checked(path, guard))

    def _checked(self, path: str, guard: Guard | None) -> Guard:
        if guard is not None:
            raise ValueError(f"{path}: writes of a leader carry the guard of its term, not {guard}")
        if not self._leading():
            raise Deposed(f"{path} is not written: this Nimbus does not lead any more")
        return self._guard


class Occupied(StoreError):
    """The presence node is owned by another live session."""


class Presence(_Rounds):
    """An ephemeral value that exists as long as its owner keeps it. If the value does not belong to this session, it is created
    again.

    A value of a different session is assumed to belong to an earlier process, and is replaced, but only a few times per session
    length: if two processes share a name by mistake, this limit keeps them from fighting over the node. `ours` decides whether
    a value may be replaced at all. While there is a value that may not be replaced, `occupied` is true.
    """

    def __init__(
        self, store: Store, path: str, data: bytes, ours: Callable[[bytes], bool] = lambda data: True
    ) -> None:
        super().__init__(store, path, path)
        self._data = data
        self._ours = ours
        self._next_replacement = -math.inf
        self._there = False
        self._problem = ""
        #: Whether another session owns the value.
        self.occupied = False

    def keep(self, now: float) -> bool:
        """Keep the value in the store, if a check is due; return whether it is there, as far as is known. If the store cannot
        be reached or refuses, this raises nothing, and the next round tries again.
        """
        if self._over:
            return False
        if not self._look and now < self._next:
            return self._there
        self._look = False  # before the store is asked, so that later changes are noticed
        self._there = self.occupied = False
        self._next = now + self._part_of_session(ROUNDS_PER_SESSION)
        try:
            self._stand(now)
        except (Unavailable, Exists) as error:
            # The node exists: an earlier call of this process, or another process of this name, created the value between the
            # removal and the creation.
            _log.debug("%s is not there yet: %s", self._path, error)
        except StoreError as error:  # the rest of the round goes on
            self.occupied = isinstance(error, Occupied)
            if str(error) != self._problem:
                self._problem = str(error)
                _log.warning("%s is not there: %s", self._path, error)
        else:
            self._there = True
            self._problem = ""
            self._next = now + self._part_of_session(LOOKS_PER_SESSION)
        return self._there

    def change(self, data: bytes) -> None:
        """Change the value; `keep` writes it."""
        if data != self._data:
            self._data = data
            self._look = True

    def _stand(self, now: float) -> None:
        if self._store.owns(self._path):
            if (found := self._store.get(self._path)) is None or found[0] != self._data:
                self._store.put(self._path, self._data)
            return
        try:
            self._store.create(self._path, self._data, ephemeral=True)
        except Exists:
            # The value is from a session of this owner that has not expired yet, or from an earlier process.
            found = self._store.get(self._path)
            if found is not None and (now < self._next_replacement or not self._ours(found[0])):
                raise Occupied(f"another process of this name is registered: {found[0]!r:.200}") from None
            self._next_replacement = now + self._part_of_session(ROUNDS_PER_SESSION)
            _log.info("%s was there from an earlier session: it is created again", self._path)
            self._store.delete(self._path)
            self._store.create(self._path, self._data, ephemeral=True)


def presence_of_process(store: Store, daemon_id: str, mark: str) -> Presence:
    """Return the presence node of this process, the only one with this id. `mark`: the mark of its state directory; a daemon
    with a copy of the directory has the same id, but a different mark.

    Only one process at a time holds a state directory. So an earlier process with this mark has ended, and its session will
    expire.
    """
    before = f"{mark} ".encode()
    data = before + f"{os.getpid()}-{secrets.token_hex(4)}".encode()
    return Presence(store, paths.presence(daemon_id), data, lambda found: found.startswith(before))
