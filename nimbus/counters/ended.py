"""What is kept of versions that have ended: errors, counters and last workers, in one record of the store for each.

The records are in the store, so that they outlive the leader and its disk. They are bounded: a record has at most 64 KiB of
counters and errors, a name has at most three records, the cluster has at most 100; records that are too old are removed when
the next version ends. A version that comes back after its end (a rollback) keeps its record, which the next end overwrites.
Must not know: why a version ends, logs, HTTP.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from msgspec import structs

from nimbus.counters.counting import Counters
from nimbus.lifecycle.progress import workers_of
from squall.cluster.counters import WorkerCounters
from squall.cluster.records import BadRecord, EndedVersion, TopologyRecord
from squall.cluster.registry import Registry, name_of

_log = logging.getLogger(__name__)

#: The most bytes of the counters and errors of one version.
MOST_BYTES: Final = 64 * 1024
#: The most versions of one name, and of all names.
OF_A_NAME: Final = 3
OF_ALL: Final = 100
DAY: Final = 86400.0


@dataclass(eq=False, repr=False)
class EndedVersions:
    """The leader's part: it writes and removes the records."""

    registry: Registry
    counters: Counters
    #: Gives seconds since 1970.
    wall_clock: Callable[[], float]

    def keep(self, record: TopologyRecord, how: str) -> None:
        """Keep what is known of a version that has no workers any more. This happens before the step that ends the version; a
        step that is tried again writes the record again."""
        if not self.counters.keep_days:
            return
        ended = EndedVersion(
            id=record.id,
            name=record.name,
            how=how,
            error=record.error,
            submitted=record.submitted,
            ended=self.wall_clock(),
            placements=workers_of(self.registry.former.readable(record.id)),
            counters=bounded(self.counters.final(record.id)),
        )
        try:
            self.registry.ended.put(ended)
        except BadRecord as error:  # the version ends nevertheless
            _log.warning("%s: its errors and counters are not kept: %s", record.id, error)
            return
        others = [each for each in kept_versions(self.registry) if each.id != ended.id]
        for id in too_many([ended, *others], ended.ended - self.counters.keep_days * DAY):
            self.registry.ended.drop(id)


def kept_versions(registry: Registry, name: str | None = None) -> list[EndedVersion]:
    """Return the versions that have ended, the newest end first; if a name is given, only its versions."""
    ids = (id for id in registry.ended.names() if name in (None, name_of(id)))
    found = map(registry.ended.readable, ids)
    return sorted((each for each in found if each is not None), key=lambda each: each.ended, reverse=True)


def previous_version(registry: Registry, name: str) -> EndedVersion | None:
    """Return the version of a name that ended last. A version that has the name again has not ended."""
    current = registry.topologies.last_readable(name)
    present = None if current is None else current.id
    return next((each for each in kept_versions(registry, name) if each.id != present), None)


def too_many(newest_first: Iterable[EndedVersion], since: float) -> list[str]:
    """Return the ids of the records to remove: those beyond the bounds, and those that ended before `since`."""
    of_name: Counter[str] = Counter()
    removed = []
    for number, each in enumerate(newest_first):
        of_name[each.name] += 1
        if number >= OF_ALL or of_name[each.name] > OF_A_NAME or each.ended < since:
            removed.append(each.id)
    return removed


def bounded(counters: WorkerCounters, most: int = MOST_BYTES) -> str:
    """Return counters and errors as JSON. Of errors that do not fit the oldest are left out, then the counters."""
    reports = counters.reports
    while len(data := structs.replace(counters, reports=reports).to_bytes()) > most and reports:
        reports = reports[(len(reports) + 1) // 2 :]
    return (data if len(data) <= most else WorkerCounters({}).to_bytes()).decode()
