"""The control thread of a Nimbus: takes part in the election and, while it leads, runs the master.

`squall.daemon.command_loop.Driver` runs the thread's rounds. A round keeps this Nimbus present in the store, takes part in the
election, and lets the master do the work that is due. A term begins with a new master over a store whose writes carry the
term's guard, and ends when the guard is lost. The master's state is not carried from one term into the next, because all of its
state is in the store.

Faults:

| fault | reaction |
|---|---|
| the store is away | the request is tried again; the term ends according to this process's own clock |
| another Nimbus leads | the term ends, and this Nimbus is a standby |
| strangers have access to the store | this Nimbus seals no secret, and does not lead until a check finds nothing |
| another Nimbus has keys or files that this Nimbus lacks | this Nimbus steps aside, and the other leads |
| another Nimbus has the same id (one runs on a copy of the other's state directory) | this Nimbus waits until the other is gone
|
| an unexpected error | the error is logged, and the master is rebuilt in the same term |

Must not know: HTTP, files, the work of the master.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from nimbus.leader.master import Nimbus
from nimbus.security.access import StoreAccess
from squall.clock import Clock
from squall.cluster import paths
from squall.cluster.leadership import GuardedStore, Leadership, Presence, presence_of_process
from squall.cluster.records import NimbusRecord, SupervisorRecord, encode
from squall.cluster.store import Deposed, Guard, Store, Unavailable
from topology_api.errors import SquallError

if TYPE_CHECKING:
    from nimbus.security.secrets import Secrets

_log = logging.getLogger(__name__)

T = TypeVar("T")

#: Seconds until a request that the store did not answer is repeated.
RETRY_SECS: Final = 0.5
#: Seconds until a broken master is rebuilt.
REBUILD_SECS: Final = 2.0


class NotLeading(SquallError):
    """This Nimbus does not lead, so it changes nothing."""


@dataclass(eq=False, repr=False)
class LeaderLoop:
    """Elections, and the master while this Nimbus leads. Used by one thread; only the methods under "From any thread" may be
    called by other threads.

    `why_not`: returns a reason not to begin to lead; `why_aside`: returns a reason to step aside while leading. `mark`:
    identifies the state directory, so that a Nimbus with a copy of the directory is recognised. `wall_clock`: gives seconds
    since 1970, for the time at which a term began.
    """

    store: Store
    me: NimbusRecord
    clock: Clock
    make_master: Callable[[Store], Nimbus]
    secrets: Secrets
    why_not: Callable[[], str | None]
    wake: Callable[[], object]
    why_aside: Callable[[], str | None] = lambda: None
    mark: str = ""
    wall_clock: Callable[[], float] | None = None

    def __post_init__(self) -> None:
        self._process = presence_of_process(self.store, self.me.id, self.mark)
        #: Whether this process is present in the store, as far as is known.
        self._present = False
        self._presence = Presence(self.store, paths.nimbus(self.me.id), encode(self.me))
        self._leadership = Leadership(self.store, self.me.id, self.clock, self._why_not, self.wall_clock)
        self._access = StoreAccess(self.store)
        self._guard: Guard | None = None
        self._master: Nimbus | None = None
        #: A term that this process has given up, even if its guard is still valid.
        self._over: Guard | None = None
        self._retry_at = -math.inf
        #: Why the store does not answer; "" when it answers.
        self._away = ""
        # Registered after the watches of `_presence` and `_leadership`, so that these see a change before the thread wakes.
        self._unwatch = self.store.watch("/", self._changed)

    # From any thread

    @property
    def leading(self) -> bool:
        """Whether this Nimbus leads at this moment."""
        return self._master is not None and self._leadership.leading(self.clock.now())

    @property
    def why_not_leading(self) -> str | None:
        """Why this Nimbus did not try to lead when it last could; None if there was no reason."""
        return self._leadership.reason

    def given_up(self, supervisor_id: str) -> SupervisorRecord | None:
        """Return the record of a supervisor that this leader has given up because the supervisor was silent."""
        master = self._master
        return None if master is None else master.supervisors.given_up.get(supervisor_id)

    # The control thread

    def lead(self, command: Callable[[Nimbus], T]) -> T:
        """Run a command on the master and return its result. Raises `NotLeading` if there is no master."""
        master = self._master
        if master is None or not self.leading:
            raise NotLeading("this Nimbus does not lead at the moment: ask again in a few seconds")
        try:
            return command(master)
        except Deposed as error:
            self._give_up(str(error))
            raise NotLeading(f"this Nimbus does not lead any more: {error}") from error

    def round(self) -> bool:
        """Stay present, take part in the election, and let the master do the work that is due."""
        now = self.clock.now()
        try:
            self._present = self._process.keep(now)  # present as the only Nimbus with this id
            if not self._process.occupied:
                self._presence.keep(now)
            guard = self._leadership.round(now)
            if self._guard is not None and guard != self._guard:
                self._end_term()
            if now >= self._retry_at:
                self._work(guard, now)
        except Deposed as error:
            self._give_up(str(error))
        except Unavailable as error:
            self._retry_at = now + RETRY_SECS
            if not self._away:  # log this once, not twice a second
                _log.warning("the store is away, Nimbus waits for it: %s", error)
            self._away = str(error)
        except Exception:
            self._retry_at = now + REBUILD_SECS
            _log.exception("an error in Nimbus itself: its master is rebuilt")
            self._end_term()
        return False

    def next_time(self) -> float | None:
        """Return the time at which a round is due."""
        now = self.clock.now()
        times = [self._process.next_time(now), self._leadership.next_time(now)]
        if not self._process.occupied:  # if occupied, the record is not written, so it would stay due
            times.append(self._presence.next_time(now))
        if now < self._retry_at:
            return min(*times, self._retry_at)
        times.append(self.secrets.next_time(now))
        if self._master is not None:
            times.append(self._access.next_time(now))
            if self._master.due is not None:
                times.append(self._master.due)
        return min(times)

    def stop(self) -> None:
        """Resign and leave."""
        self._unwatch()
        self._end_term()
        self.secrets.close()
        self._leadership.resign()
        self._presence.leave()
        self._process.leave()

    def _why_not(self) -> str | None:
        """Return why this Nimbus should not begin to lead; None if it may."""
        if not self._present and not self._process.occupied:
            raise Unavailable("the store has not accepted this Nimbus's presence")
        return self._same_id() or self._access.why_not(self.clock.now()) or self.why_not()

    def _same_id(self) -> str | None:
        if not self._process.occupied:
            return None
        return (
            f"the id {self.me.id} is that of another running Nimbus. If this state directory was copied (from another host"
            " or an image), stop this Nimbus and remove the files `id` and `key` from it. If this host was restarted a moment"
            " ago, wait: the conflict ends when the store session of the previous process expires"
        )

    # Terms

    def _work(self, guard: Guard | None, now: float) -> None:
        if guard is not None and guard != self._over and self._master is None:
            self._begin_term(guard)
        if self._master is not None:
            self._access.tick(now)
            self._step_aside_if(self._access.problem)
        self.secrets.tick(now)
        if self._master is not None:
            self._step_aside_if(self._same_id() or self.why_aside())
        if self._master is not None:
            self._master.tick()
        # If this Nimbus is neither present nor kept out by another one with its id, this round may have sent no request, so the
        # round shows nothing about the store.
        if self._away and (self._present or self._process.occupied):
            self._away = ""
            _log.info("the store answers again")

    def _step_aside_if(self, why: str | None) -> None:
        if why is not None:
            self._end_term()
            self._leadership.step_aside(why)

    def _begin_term(self, guard: Guard) -> None:
        self._access.check_all(self.clock.now(), self._leadership.keeps_leading)
        if self._access.problem is not None:
            self._leadership.step_aside(self._access.problem)
            return
        store = GuardedStore(self.store, guard, self._leadership.keeps_leading)
        self._guard = guard
        self.secrets.begin(store)
        self._master = self.make_master(store)
        # Registered again, after the master's own watch, so that the master marks a change before the thread wakes.
        self._unwatch()
        self._unwatch = self.store.watch("/", self._changed)

    def _give_up(self, why: str) -> None:
        """End a term whose guard is lost, even if the election still names this Nimbus as the leader."""
        _log.warning("the term is over: %s", why)
        self._over = self._guard
        self._end_term()

    def _end_term(self) -> None:
        master, self._master, self._guard = self._master, None, None
        self.secrets.end()
        if master is not None:
            master.close()

    def _changed(self, path: str) -> None:
        self.wake()
