"""Moments in a supervisor's preparation of a topology, as seen in its state directory.

A moment may pass while it is observed: callers that act on one must check again afterwards. Must not know: what the test does
at such a moment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from squall.worker_files import HEARTBEAT
from supervisor.directories import PROCESS
from supervisor.environments import LOG, READY

#: Whether a supervisor with this state directory is at that moment of preparing the topology of this name.
Moment = Callable[[Path, str], bool]

#: Seconds between two checks for a short moment.
PACE: Final = 0.001
#: A size that takes a while to fetch.
MANY_BYTES: Final = 32 * 1024 * 1024


def fetching(state: Path, name: str) -> bool:
    """A file of at least `MANY_BYTES` is being fetched from Nimbus."""
    return any(0 < size < MANY_BYTES for size in sizes(state.glob("code/*.file")))


def unpacking(state: Path, name: str) -> bool:
    """Part of an archive is unpacked."""
    return any(path.is_dir() and any(there(path.iterdir())) for path in there(state.glob("code/*.new-*")))


def building(state: Path, name: str) -> bool:
    """An environment is being built, or its build was interrupted."""
    return any(not path.with_name(READY).exists() for path in there(state.glob(f"environments/*/{LOG}")))


def starting(state: Path, name: str) -> bool:
    """A worker is about to be started, or has started and not reported yet."""
    noted = there(state.glob(f"topologies/{name}-*/workers/*/{PROCESS}"))
    return any(not path.with_name(HEARTBEAT).exists() for path in noted)


def there(paths: Iterator[Path]) -> list[Path]:
    """These paths; none if a parent folder is removed meanwhile."""
    with suppress(OSError):
        return list(paths)
    return []


def sizes(paths: Iterator[Path]) -> Iterator[int]:
    """The total size of those files that still exist."""
    for path in there(paths):
        with suppress(OSError):
            yield path.stat().st_size
