"""How the partitions of a source are divided among the tasks of a spout: by the number of tasks alone.

So each task knows its share without asking another one, and after a change of their number each finds its new share from what
all positions say together (`RewindableSpout.merge_positions`).
Must not know: servers.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any


def task_of(name: str, parallelism: int) -> int:
    """Return the index of the task that reads what has this name: `zlib.crc32(name) % parallelism`."""
    return zlib.crc32(name.encode()) % parallelism


def task_of_partition(topic: str, partition: int, parallelism: int) -> int:
    """Return the index of the task that reads a partition. Consecutive partitions belong to different tasks, so that tasks have
    the same number of partitions of each topic, or one more."""
    return (zlib.crc32(topic.encode()) + partition) % parallelism


def own_partitions(
    partitions: Iterable[tuple[str, int]], index: int, parallelism: int
) -> list[tuple[str, int]]:
    """Return the partitions of one task, (topic, partition), in order."""
    return sorted(each for each in partitions if task_of_partition(*each, parallelism) == index)


def united(positions: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the positions of all tasks together. A partition is read by one task, so no two of them name the same."""
    return {name: place for position in positions for name, place in position.items()}
