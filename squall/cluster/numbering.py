"""Numbers of submissions and versions of assignments, which are never used twice. All topologies of a cluster share one
sequence of versions.

The counter /counters/<name> holds the last number. If the counter is missing, holds no number, or is lower than a number that
the caller knows to be used, the next number is above the highest number found anywhere in the store, and the counter continues
from there. The search reads raw bytes, so it also finds numbers in records that cannot be read or have a newer format.
(A counter that was set back in any other way is not noticed.)
Must not know: who asks for a number, what a record means.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator
from typing import Final

from squall.cluster import paths
from squall.cluster.store import Conflict, Exists, Store, write_over

_log = logging.getLogger(__name__)

SUBMISSIONS: Final = "submissions"
ASSIGNMENTS: Final = "assignments"

_RECORDS: Final = (paths.TOPOLOGIES, paths.REPLACEMENTS, paths.REPLACED)
_PLACES: Final = (paths.ASSIGNMENTS, paths.LEAVING, paths.FORMER)
#: The range of a counter.
_NUMBER: Final = re.compile(rb"[0-9]{1,18}")
#: A number that is found elsewhere in the store; a number with more digits is ignored. This limit is far below that of a
#: counter, because a topology's configuration may contain texts that only look like such a number.
_DIGITS: Final = r"([0-9]{1,15})(?![0-9])"
#: The id of a topology, "name-<number>-<time>", as a whole path segment or as a JSON text.
_IN_ID: Final = re.compile(rf"-{_DIGITS}-[0-9]+$")
_IN_IDS: Final = re.compile(rf'-{_DIGITS}-[0-9]+"'.encode())
#: A version in an assignment or record, or the incarnation of a worker or its report: [version, restart].
_IN_VERSIONS: Final = re.compile(rf'"(?:version|incarnation)"\s*:\s*\[?\s*{_DIGITS}'.encode())


def next_number(store: Store, name: str, above: int = 0) -> int:
    """Return the next number, which no other caller in any process gets from this counter, and which is higher than `above`, a
    number that is used already.
    """
    path = paths.counter(name)
    while True:
        found = store.get(path)
        text = b"" if found is None else found[0].strip()
        last = int(text) if _NUMBER.fullmatch(text) else -1
        right = last >= above
        number = (last if right else max((above, *_IN_USE[name](store)))) + 1
        try:
            write_over(store, path, str(number).encode(), found and found[1])
        except (Conflict, Exists):
            continue  # another process got that number
        if not right and (found is not None or number > 1):
            held = "nothing" if found is None else repr(found[0][:40])
            _log.error("%s held %s: continuing with %d, above every number in use", path, held, number)
        return number


def raise_to(store: Store, name: str, number: int) -> None:
    """Let the counter continue above a number that another cluster has used."""
    path = paths.counter(name)
    while (last := next_number(store, name)) < number:
        try:
            found = store.get(path)
            if found is not None and found[0] == str(last).encode():
                write_over(store, path, str(number).encode(), found[1])
                return
        except Conflict:
            continue  # another process got a number


def _of_submissions(store: Store) -> Iterator[int]:
    for above in paths.OF_TOPOLOGIES:
        for name in store.children(above):
            if (found := _IN_ID.search(paths.unquoted(name))) is not None:
                yield int(found[1])
    for data in _values(store, _RECORDS):
        yield from map(int, _IN_IDS.findall(data))


def _of_assignments(store: Store) -> Iterator[int]:
    reports = [f"{paths.REPORTS}/{topology}" for topology in store.children(paths.REPORTS)]
    for data in _values(store, (*_RECORDS, *_PLACES, *reports)):
        yield from map(int, _IN_VERSIONS.findall(data))


#: For each counter, the function that finds its numbers in the store.
_IN_USE: Final = {SUBMISSIONS: _of_submissions, ASSIGNMENTS: _of_assignments}


def _values(store: Store, tops: Iterable[str]) -> Iterator[bytes]:
    """Yield the values directly below these paths."""
    for top in tops:
        for name in store.children(top):
            if (found := store.get(f"{top}/{name}")) is not None:
                yield found[0]
