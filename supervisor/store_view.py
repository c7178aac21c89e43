"""A supervisor's view of the store: the topologies, the desired state of its workers, and its own registration.

`refresh` reads the store when something may have changed, and at least once a second. While the store cannot be reached, is
empty or belongs to another cluster, the last view stays valid, and no worker is ended for that reason. Before the first read
nothing is known. While another supervisor with the same id is present, this supervisor only waits until the other supervisor is
gone. A worker is started only if the view is current: after a freeze, or while its connection is cut, a supervisor may not know
yet that its workers were assigned to other supervisors.
Must not know: processes, directories, Nimbus.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from msgspec.structs import replace

from squall.cluster import paths
from squall.cluster.leadership import presence_of_process
from squall.cluster.records import Placement, SupervisorRecord, TopologyRecord, encode
from squall.cluster.registry import Registry
from supervisor.desired_state import Reading, TopologyView, desired_states, places_of, read_topologies
from supervisor.plan import DesiredState, Key
from supervisor.rare_warnings import RareWarnings
from topology_api.errors import SquallError

_log = logging.getLogger(__name__)

#: The most seconds between two reads.
EVERY: Final = 1.0
#: The least seconds between two records of closed connections.
CLOSED_SECS: Final = 10.0
#: Seconds before a failed read is retried.
AGAIN: Final = 0.2
#: If the store has not answered for this many seconds, workers are started according to the last view. Reconnecting after a
#: freeze takes less time.
PATIENCE: Final = 5.0

#: The paths that concern every supervisor. Reports concern only supervisors with workers of the topology.
_OF_ALL: Final = (paths.CLUSTER, paths.TOPOLOGIES, paths.ASSIGNMENTS, paths.LEAVING, paths.REPLACEMENTS)


class SameId(SquallError):
    """Another supervisor with this id is present."""


@dataclass(eq=False, repr=False)
class FailureStreak:
    """How long calls have been failing, in seconds. A gap of PATIENCE or more between two failures restarts the count, since
    this process may have been frozen."""

    #: The most seconds that a gap between two failures adds.
    most: float = EVERY
    seconds: float = field(default=0.0, init=False)
    _last: float | None = field(default=None, init=False)

    def failed(self, now: float) -> None:
        """Record a failure."""
        since = 0.0 if self._last is None else max(now - self._last, 0.0)
        self.seconds = self.seconds + min(since, self.most) if since < PATIENCE else 0.0
        self._last = now

    def over(self) -> None:
        """Record a success."""
        self.seconds, self._last = 0.0, None


@dataclass(eq=False, repr=False)
class StoreView:
    """The view of one supervisor. It is used by one thread; only watches call it from other threads.

    `admit` raises when the store belongs to another cluster. `mark`: the mark of the state directory; it distinguishes this
    supervisor from one that has a copy of the directory, and therefore the same id. `reread`: seconds between two reads.
    """

    registry: Registry
    record: SupervisorRecord
    admit: Callable[[], object]
    wake: Callable[[], object]
    mark: str = ""
    reread: float = EVERY
    views: Mapping[str, TopologyView] = field(default_factory=dict, init=False)
    unsure: Mapping[str, str] = field(default_factory=dict, init=False)
    #: Versions that will take over the name of a topology with workers here.
    coming: tuple[TopologyRecord, ...] = field(default=(), init=False)
    #: All records that are in use, by id.
    used: Mapping[str, TopologyRecord] = field(default_factory=dict, init=False)
    places: Mapping[Key, Placement] = field(default_factory=dict, init=False)
    wanted: Mapping[Key, DesiredState] = field(default_factory=dict, init=False)
    #: Whether the store has been read; before that, every recovered worker continues.
    known: bool = field(default=False, init=False)
    #: Whether the store may have unread changes.
    changed: bool = field(default=True, init=False)
    #: Whether to keep this supervisor registered.
    present: bool = field(default=True, init=False)
    _next: float = field(default=0.0, init=False)
    _tell_closed: float = field(default=0.0, init=False)
    _warnings: RareWarnings = field(default_factory=RareWarnings, init=False)
    # The time of the `sync` in which the store itself was last asked.
    _asked: float | None = field(default=None, init=False)
    # The time of the `sync` in which the store itself answered: values that are read later are at least as new.
    _confirmed: float | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._bytes = encode(self.record)
        self._unread, self._unanswered = FailureStreak(self.reread), FailureStreak(self.reread)
        self._presence = presence_of_process(self.registry.store, self.record.id, self.mark)
        self._unwatch = self.registry.store.watch("/", self._note)

    def set_trouble(self, why: str) -> None:
        """Record in the store why this host cannot start workers; "": it can."""
        if self.record.cannot_start != why:
            self.record = replace(self.record, cannot_start=why)
            self._bytes, self.changed = encode(self.record), True

    def set_closed(self, closed: Mapping[str, int], now: float) -> None:
        """Record in the store, with its next read, how many connections this supervisor has closed for want of room. Strangers
        cause this, so it is recorded only every `CLOSED_SECS`."""
        if now >= self._tell_closed and self.record.connections_closed != closed:
            self._tell_closed = now + CLOSED_SECS
            self.record = replace(self.record, connections_closed=dict(closed))
            self._bytes = encode(self.record)

    def register(self) -> None:
        """Register in the store. Raises `SquallError` if the store cannot be reached, or belongs to another cluster."""
        self.admit()
        self.registry.supervisors.put(self.record)

    def refresh(self, now: float, hosted: Mapping[str, str]) -> bool:
        """Read the store if a read is due; return whether it was read. `hosted`: topologies with workers here, id -> name."""
        if not self.changed and now < self._next:
            return False
        self.changed = False
        self._next = now + self.reread
        try:
            self.admit()
            if self.present:
                self._be_known(now)
            reading = read_topologies(self.registry, self.views, self.record.id, hosted)
        except (SquallError, OSError) as error:
            self._warn(now, "cannot read the store, and continues with the last view", error)
            self._next = now + AGAIN
            self._confirmed = None
            self._unread.failed(now)
            return False
        self._unread.over()
        self._take(reading, now)
        return True

    def may_start(self, now: float) -> bool:
        """Return whether workers may be started according to this view. They may if the store answered in this `sync` and was
        read after its answer, or if the store has been unreadable for PATIENCE seconds. If this returns False and `changed` is
        true, call `refresh` and ask again."""
        if self._presence.occupied:
            return False
        if self._confirmed == now:
            return not self.changed
        if self._unread.seconds >= PATIENCE:
            return True
        if self._asked == now:
            return False
        self._asked = now
        try:
            # Any answer is enough: watches report earlier changes before the answer arrives, so the answer makes the cache
            # current.
            self.registry.store.owns(paths.presence(self.record.id))
        except (SquallError, OSError):
            self._unanswered.failed(now)
            return self._unanswered.seconds >= PATIENCE
        self._unanswered.over()
        self._confirmed, self.changed = now, True
        return False

    def leave(self, for_good: bool) -> None:
        """Stop watching. `for_good`: remove the registration too. Without `for_good`, this supervisor will return."""
        self._unwatch()
        self._presence.leave()
        if not for_good:
            return
        try:
            self.registry.supervisors.drop(self.record.id)
        except SquallError as error:
            _log.warning(
                "supervisor %s cannot be removed from the store; Nimbus will give it up later: %s",
                self.record.id,
                error,
            )

    def _note(self, path: str) -> None:
        """Wake the supervisor for a change that concerns it. Most changes do not."""
        top, _, rest = path[1:].partition("/")
        view = self.views.get(paths.unquoted(rest.partition("/")[0]))
        if top == "reports" and view is not None and not view.concerns(self.record.id):
            return
        if path != "/" and not path.startswith((*_OF_ALL, paths.REPORTS, paths.supervisor(self.record.id))):
            return
        self.changed = True
        self.wake()

    def _be_known(self, now: float) -> None:
        self._presence.keep(now)
        if self._presence.occupied:
            raise SameId(
                f"another supervisor with the id {self.record.id} is running. If this state directory was copied (from"
                " another host or an image), remove the files `id` and `key` from it. If this host was restarted a moment"
                " ago, wait: the conflict ends when the store session of the previous process expires"
            )
        found = self.registry.store.get(paths.supervisor(self.record.id))
        # Nimbus removes the record of a silent supervisor; and a record in the store may be outdated.
        if found is None or found[0] != self._bytes:
            self.registry.supervisors.put(self.record)

    def _take(self, reading: Reading, now: float) -> None:
        self.known = True
        self.views, self.unsure = reading.views, reading.unsure
        self.places = places_of(self.views.values(), self.record.id)
        self.wanted = desired_states(self.views, self.places)
        here = {self.views[topology_id].record.name for topology_id, _ in self.places}
        self.coming = tuple(record for record in reading.waiting if record.name in here)
        views = [view.record for view in self.views.values()]
        self.used = {record.id: record for record in (*views, *reading.waiting, *reading.former)}
        for name, why in self.unsure.items():
            self._next = now + AGAIN
            self._warn(now, f"leaves topology {name!r} unchanged", why)

    def _warn(self, now: float, what: str, why: object) -> None:
        # A warning for a different reason is logged at once.
        if self._warnings.due((what, type(why).__name__), now):
            _log.warning("supervisor %s %s: %s", self.record.id, what, why)
