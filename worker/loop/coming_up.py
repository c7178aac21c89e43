"""The end of a worker's start: the moment at which all tasks that its tuples may reach are open.

A spout emits as soon as it is open, also while a bolt elsewhere still prepares, for example by starting Spark. The time until
all are open says nothing about how fast the topology is, so complete latencies leave it out.
Must not know: how workers find out that others are ready.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

    from worker.loop.worker import Worker


def all_up(workers: Collection[Worker], now: float) -> bool:
    """Return whether all tasks of these workers are open; if so, count their complete latencies from `now` at the earliest.

    To be called until it returns True, which ends the start.
    """
    if not all(worker.opened for worker in workers):
        return False
    for worker in workers:
        for spout in worker.spouts:
            spout.measured_from = now
    return True
