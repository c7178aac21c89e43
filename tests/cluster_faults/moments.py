"""Moments of a supervisor's work for a topology that comes, as its state directory shows them.

Each may pass while one looks: who acts on it looks again afterwards. Must not know: what is done at such a moment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from squall.worker_files import HEARTBEAT
from supervisor.directories import PROCESS
from supervisor.environments import LOG, READY

#: Whether a supervisor with this state directory is at that moment of its work for the topology of this name.
Moment = Callable[[Path, str], bool]

#: Seconds between two looks for what passes soon.
PACE: Final = 0.001
#: Bytes that take a while to be fetched.
MANY_BYTES: Final = 32 * 1024 * 1024


def fetching(state: Path, name: str) -> bool:
    """A file of at least `MANY_BYTES` is on its way from Nimbus."""
    return any(0 < size < MANY_BYTES for size in sizes(state.glob("code/*.file")))


def unpacking(state: Path, name: str) -> bool:
    """Some of an archive is unpacked."""
    return any(path.is_dir() and any(there(path.iterdir())) for path in there(state.glob("code/*.new-*")))


def building(state: Path, name: str) -> bool:
    """An environment is being built, or its building was cut short."""
    return any(not path.with_name(READY).exists() for path in there(state.glob(f"environments/*/{LOG}")))


def starting(state: Path, name: str) -> bool:
    """A worker is about to be started, or was and has not said anything yet."""
    noted = there(state.glob(f"topologies/{name}-*/workers/*/{PROCESS}"))
    return any(not path.with_name(HEARTBEAT).exists() for path in noted)


def there(paths: Iterator[Path]) -> list[Path]:
    """These paths; none when a folder above them goes meanwhile."""
    with suppress(OSError):
        return list(paths)
    return []


def sizes(paths: Iterator[Path]) -> Iterator[int]:
    """Of those files that are there still."""
    for path in there(paths):
        with suppress(OSError):
            yield path.stat().st_size
