"""What a supervisor knows of the store: the topologies, what is wanted of it, and that it is itself known there.

`look` reads when something may have changed, and after a second in any case. While the store cannot be reached, is empty or
another cluster's, all stays as it was known: nobody ends a worker for that. Before the first reading nothing is known.
Where another supervisor of this id is there, this one does nothing but wait until it is gone.
What is started is started by what the store says at that moment: a process that stood still, or whose connection is cut, may
not have heard yet that its workers are others' by now.
Must not know: processes, directories, Nimbus.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Final

from squall.cluster import paths
from squall.cluster.leadership import presence_of_process
from squall.cluster.records import Placement, SupervisorRecord, TopologyRecord, encode
from squall.cluster.registry import Registry
from supervisor.plan import Key, Wanted
from supervisor.wanted import Reading, TopologyView, places_of, read_topologies, wanted_of
from topology_api.errors import SquallError

_log = logging.getLogger(__name__)

#: Seconds between two readings at most, and before the next try of one that failed.
EVERY: Final = 1.0
AGAIN: Final = 0.2
#: Seconds that the store has to answer before something is started by what was known before. A connection that was lost while
#: this process stood still is made anew in less.
PATIENCE: Final = 5.0
#: Seconds between two warnings of the same.
_WARN_EVERY: Final = 60.0

#: What concerns every supervisor, and what only those that have workers of that topology.
_OF_ALL: Final = (paths.CLUSTER, paths.TOPOLOGIES, paths.ASSIGNMENTS, paths.LEAVING, paths.REPLACEMENTS)


class SameId(SquallError):
    """Another supervisor of this id is there."""


class Silence:
    """For how long something fails. Who did not try for long has to begin anew: it may have stood still itself."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._last: float | None = None

    def failed(self, now: float) -> None:
        """It has failed once more."""
        since = 0.0 if self._last is None else max(now - self._last, 0.0)
        self.seconds = self.seconds + min(since, EVERY) if since < PATIENCE else 0.0
        self._last = now

    def over(self) -> None:
        """It has not failed."""
        self.seconds, self._last = 0.0, None


class Outlook:
    """What one supervisor knows. One thread, but for the watch."""

    def __init__(
        self,
        registry: Registry,
        record: SupervisorRecord,
        admit: Callable[[], object],
        wake: Callable[[], object],
        mark: str = "",
    ) -> None:
        """`admit` raises when the store is not the one that this supervisor belongs to. `mark`: of its state directory, which
        tells it from a supervisor that has a copy of that, and so the same id."""
        self.registry = registry
        self.record = record
        self._bytes = encode(record)
        self.views: Mapping[str, TopologyView] = {}
        self.unsure: Mapping[str, str] = {}
        #: Versions that take a name over from a topology with workers here; and all that must not be removed, by their ids.
        self.coming: tuple[TopologyRecord, ...] = ()
        self.used: Mapping[str, TopologyRecord] = {}
        self.places: Mapping[Key, Placement] = {}
        self.wanted: Mapping[Key, Wanted] = {}
        #: Whether it is known what is wanted; before, whatever is found goes on.
        self.known = False
        #: Whether the store may hold something that was not looked at.
        self.changed = True
        #: Whether this supervisor is to be known there.
        self.present = True
        self._admit = admit
        self._wake = wake
        self._next = 0.0
        self._warned: dict[str, float] = {}
        # The turn in which the store itself was last asked, and the one in which it has answered: nothing that was read since
        # is older than that.
        self._asked: float | None = None
        self._confirmed: float | None = None
        self._unread, self._unanswered = Silence(), Silence()
        self._presence = presence_of_process(registry.store, record.id, mark)
        self._unwatch = registry.store.watch("/", self._note)

    def register(self) -> None:
        """Be known in the store. `SquallError` while that is not to be reached, or another cluster's."""
        self._admit()
        self.registry.save_supervisor(self.record)

    def look(self, now: float, hosted: Mapping[str, str]) -> bool:
        """Read what is wanted if it is time to; whether it was read. `hosted`: topologies with workers here, id -> name."""
        if not self.changed and now < self._next:
            return False
        self.changed = False
        self._next = now + EVERY
        try:
            self._admit()
            if self.present:
                self._be_known(now)
            reading = read_topologies(self.registry, self.views, self.record.id, hosted)
        except (SquallError, OSError) as error:
            self._warn(now, "cannot read the store, and goes on as before", error)
            self._next = now + AGAIN
            self._confirmed = None
            self._unread.failed(now)
            return False
        self._unread.over()
        self._take(reading, now)
        return True

    def may_start(self, now: float) -> bool:
        """Whether something may be started by what is known: the store has answered in this turn, and was looked at since; or
        it cannot be read, and could not for a while. False while `changed` is true: it is to be looked at first."""
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
            # Whatever it says: words of earlier changes have come before its answer, and what is remembered is true again.
            self.registry.store.owns(paths.presence(self.record.id))
        except (SquallError, OSError):
            self._unanswered.failed(now)
            return self._unanswered.seconds >= PATIENCE
        self._unanswered.over()
        self._confirmed, self.changed = now, True
        return False

    def next_time(self, now: float) -> float:
        """When to look again."""
        return now if self.changed else max(now, self._next)

    def leave(self, for_good: bool) -> None:
        """Look no more. `for_good`: this supervisor is not to be known any more; otherwise it comes back."""
        self._unwatch()
        self._presence.leave()
        if not for_good:
            return
        try:
            self.registry.remove_supervisor(self.record.id)
        except SquallError as error:
            _log.warning(
                "supervisor %s cannot be taken out of the store, and is given up later: %s",
                self.record.id,
                error,
            )

    def _note(self, path: str) -> None:
        """Something has changed; most of what others do does not concern us."""
        top, _, rest = path[1:].partition("/")
        if top == "reports" and not self._concerns(paths.unquoted(rest.partition("/")[0])):
            return
        if path != "/" and not path.startswith((*_OF_ALL, paths.REPORTS, paths.supervisor(self.record.id))):
            return
        self.changed = True
        self._wake()

    def _concerns(self, topology_id: str) -> bool:
        view = self.views.get(topology_id)
        return view is None or any(
            place.supervisor == self.record.id for place in (*view.placements, *view.withdrawn)
        )

    def _be_known(self, now: float) -> None:
        self._presence.keep(now)
        if self._presence.occupied:
            raise SameId(
                f"the id {self.record.id} is that of another supervisor which is there. If this state directory is a copy (of"
                " another host's, or in an image), remove the files `id` and `key` from it. If this host was restarted a moment"
                " ago, this ends by itself with the session from before"
            )
        found = self.registry.store.get(paths.supervisor(self.record.id))
        if found is None or found[0] != self._bytes:  # given up for its silence, or an earlier one's
            self.registry.save_supervisor(self.record)

    def _take(self, reading: Reading, now: float) -> None:
        self.known = True
        self.views, self.unsure = reading.views, reading.unsure
        self.places = places_of(self.views.values(), self.record.id)
        self.wanted = wanted_of(self.views, self.places)
        here = {self.views[topology_id].record.name for topology_id, _ in self.places}
        self.coming = tuple(record for record in reading.waiting if record.name in here)
        views = [view.record for view in self.views.values()]
        self.used = {record.id: record for record in (*views, *reading.waiting, *reading.former)}
        for name, why in self.unsure.items():
            self._next = now + AGAIN
            self._warn(now, f"leaves topology {name!r} as it is", why)

    def _warn(self, now: float, what: str, why: object) -> None:
        kind = f"{what}: {type(why).__name__}"  # another reason is news at once
        last = self._warned.get(kind)
        if last is None or now >= last + _WARN_EVERY:
            self._warned[kind] = now
            _log.warning("supervisor %s %s: %s", self.record.id, what, why)
