"""The control thread of a Nimbus: stands in the elections and, while it leads, runs the master.

It is what `squall.rounds.Driver` runs. A round keeps the sign that this Nimbus is there, takes part in the election, and
lets the master do what is due. A term begins with a new master over a store whose writes carry the term's guard, and ends
when the guard is lost; nothing of the master is carried from one term into the next, because everything is in the store.

What may go wrong, and what happens then:

| what | then |
|---|---|
| the store is away | it is tried again; the term ends by this process's own clock |
| somebody else leads | the term ends, this Nimbus stands by |
| another Nimbus has keys or files that this one lacks | it steps aside, the other leads |
| another Nimbus of the same id is there: one has a copy of the other's state | it waits until that one is gone |
| an error that nobody expected | it is logged, the master is built anew in the same term |

Must not know: HTTP, files, what the master does.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import Final, Protocol, TypeVar

from nimbus.master import Nimbus
from squall.clock import Clock
from squall.cluster import paths
from squall.cluster.leadership import GuardedStore, Leadership, Presence, presence_of_process
from squall.cluster.records import NimbusRecord, SupervisorRecord, encode
from squall.cluster.store import Deposed, Guard, Store, Unavailable
from topology_api.errors import SquallError

_log = logging.getLogger(__name__)

T = TypeVar("T")

#: Seconds until something is tried again that the store did not answer, and until a master that broke is built anew.
RETRY_SECS: Final = 0.5
REBUILD_SECS: Final = 2.0


class NotLeading(SquallError):
    """This Nimbus does not lead, so it changes nothing."""


class Office(Protocol):
    """What a leader has besides the master: it is asked along with it. `nimbus.secrets.Secrets` is one."""

    def begin(self, store: Store) -> None:
        """A term begins; its writes go to `store`."""

    def look(self, now: float) -> None:
        """A round, leading or not; nothing is raised but what the store raises."""

    def end(self) -> None:
        """The term is over."""

    def next_time(self, now: float) -> float:
        """When there is something to do."""

    def close(self) -> None:
        """Nothing more is asked."""


class Control:
    """Elections, and the master while this Nimbus leads. One thread, but for what says otherwise."""

    def __init__(
        self,
        store: Store,
        me: NimbusRecord,
        clock: Clock,
        make_master: Callable[[Store], Nimbus],
        office: Office,
        why_not: Callable[[], str | None],
        wake: Callable[[], object],
        why_aside: Callable[[], str | None] = lambda: None,
        mark: str = "",
    ) -> None:
        """`why_not`: a reason not to begin to lead; `why_aside`: one to let another Nimbus lead, in office. `mark`: of the
        state directory, which tells this Nimbus from one that has a copy of that."""
        self._id = me.id
        self._store = store
        self._clock = clock
        self._make_master = make_master
        self._office = office
        self._why_aside = why_aside
        self._wake = wake
        self._process = presence_of_process(store, me.id, mark)
        #: Whether that sign stands, as far as is known.
        self._there = False
        self._presence = Presence(store, paths.nimbus(me.id), encode(me))
        self._leadership = Leadership(store, me.id, clock, self._why_not)
        self._why_not_else = why_not
        self._guard: Guard | None = None
        self._master: Nimbus | None = None
        #: A term that this process has given up, whatever its guard says.
        self._over: Guard | None = None
        self._retry_at = -math.inf
        #: Why the store did not answer, while it does not.
        self._away = ""
        # After the watches of the two above, so that who is woken finds what they have noted.
        self._unwatch = store.watch("/", self._changed)

    # From any thread

    @property
    def leading(self) -> bool:
        """Whether this Nimbus leads at this moment."""
        return self._master is not None and self._leadership.leading(self._clock.now())

    def given_up(self, supervisor_id: str) -> SupervisorRecord | None:
        """The record of a supervisor that this leader has given up for its silence."""
        master = self._master
        return None if master is None else master.given_up(supervisor_id)

    # The control thread

    def lead(self, command: Callable[[Nimbus], T]) -> T:
        """Run a command with the master; `NotLeading` when there is none."""
        master = self._master
        if master is None or not self.leading:
            raise NotLeading("this Nimbus does not lead at the moment: ask again in a few seconds")
        try:
            return command(master)
        except Deposed as error:
            self._give_up(str(error))
            raise NotLeading(f"this Nimbus does not lead any more: {error}") from error

    def round(self) -> bool:
        """Keep present, take part in the election, let the master do what is due."""
        now = self._clock.now()
        try:
            self._keep_present(now)
            guard = self._leadership.round(now)
            if self._guard is not None and guard != self._guard:
                self._end_term()
            if now >= self._retry_at:
                self._work(guard, now)
        except Deposed as error:
            self._give_up(str(error))
        except Unavailable as error:
            self._retry_at = now + RETRY_SECS
            self._tell_away(str(error))
        except Exception:
            self._retry_at = now + REBUILD_SECS
            _log.exception("an error in Nimbus itself: its master is built anew")
            self._end_term()
        return False

    def next_time(self) -> float | None:
        """When a round is due."""
        now = self._clock.now()
        times = [self._process.next_time(now), self._leadership.next_time(now)]
        if not self._process.occupied:  # else the record is not kept there, and would be due for ever
            times.append(self._presence.next_time(now))
        if now < self._retry_at:
            return min(*times, self._retry_at)
        times.append(self._office.next_time(now))
        if self._master is not None and self._master.due is not None:
            times.append(self._master.due)
        return min(times)

    def stop(self) -> None:
        """Let another one lead, and go."""
        self._unwatch()
        self._end_term()
        self._office.close()
        self._leadership.resign()
        self._presence.leave()
        self._process.leave()

    def _keep_present(self, now: float) -> None:
        """Be there, as the only one of this id."""
        self._there = self._process.keep(now)
        if not self._process.occupied:
            self._presence.keep(now)

    def _why_not(self) -> str | None:
        """A reason not to begin to lead."""
        if not self._there and not self._process.occupied:
            raise Unavailable("the store has not taken the sign of presence")
        return self._same_id() or self._why_not_else()

    def _same_id(self) -> str | None:
        if not self._process.occupied:
            return None
        return (
            f"the id {self._id} is that of another Nimbus which is there. If this state directory is a copy (of another host's,"
            " or in an image), stop this Nimbus and remove the files `id` and `key` from it. If this host was restarted a"
            " moment ago, this ends by itself with the session from before"
        )

    # Terms

    def _work(self, guard: Guard | None, now: float) -> None:
        if guard is not None and guard != self._over and self._master is None:
            self._begin_term(guard)
        self._office.look(now)
        aside = None if self._master is None else self._same_id() or self._why_aside()
        if aside is not None:
            self._end_term()
            self._leadership.step_aside(aside)
        if self._master is not None:
            self._master.tick()
        if self._away and (
            self._there or self._process.occupied
        ):  # else this round may have asked it nothing
            self._away = ""
            _log.info("the store answers again")

    def _tell_away(self, why: str) -> None:
        """Say once that the store is away, not twice a second."""
        if not self._away:
            _log.warning("the store is away, Nimbus waits for it: %s", why)
        self._away = why

    def _begin_term(self, guard: Guard) -> None:
        store = GuardedStore(self._store, guard, self._leadership.keeps_leading)
        self._guard = guard
        self._office.begin(store)
        self._master = self._make_master(store)
        # The master has a watch of its own by now: who is woken is to find what it has noted.
        self._unwatch()
        self._unwatch = self._store.watch("/", self._changed)

    def _give_up(self, why: str) -> None:
        """The guard does not hold any more, whatever the election says so far."""
        _log.warning("the term is over: %s", why)
        self._over = self._guard
        self._end_term()

    def _end_term(self) -> None:
        master, self._master, self._guard = self._master, None, None
        self._office.end()
        if master is not None:
            master.close()

    def _changed(self, path: str) -> None:
        self._wake()
