"""What this worker process uses: processor time, memory, threads.

On systems without `/proc` memory and threads are unknown (0), and no growth is measured.
Must not know: tasks, who shows the numbers.
"""

from __future__ import annotations

import os
import resource
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from squall.cluster.counters import ProcessLoad
from worker.loop.memory_growth import Memory
from worker.tasks.work_time import SAMPLE_EVERY, SPAN

_MEGABYTE: Final = 2**20


class ProcessMeter:
    """Measures the processor share of the last ten seconds, where 1 is one core."""

    def __init__(self) -> None:
        self.samples = deque([(time.monotonic(), time.process_time())])

    def read(self) -> ProcessLoad:
        """Return the present load of this process."""
        now, spent = time.monotonic(), time.process_time()
        samples = self.samples
        while len(samples) > 1 and samples[1][0] <= now - SPAN:
            samples.popleft()
        begin, before = samples[0]
        if now - samples[-1][0] >= SAMPLE_EVERY:
            samples.append((now, spent))
        cpu = round((spent - before) / (now - begin), 2) if now - begin >= SAMPLE_EVERY else None
        threads, rss = 0, 0
        with suppress(OSError, ValueError, IndexError):
            with open("/proc/self/stat", "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
            threads = int(fields[17])
            # In whole megabytes, so that an idle worker's counters do not change every second.
            pages = int(fields[21])
            rss = pages * os.sysconf("SC_PAGE_SIZE") // _MEGABYTE * _MEGABYTE
        return ProcessLoad(os.getpid(), cpu, rss, threads)


def memory_reader() -> Callable[[], Memory] | None:
    """Return a function that reads the memory of this process, in about 4 µs: the file stays open. None: it cannot be read."""
    page = os.sysconf("SC_PAGE_SIZE")
    usage, own, everybody = resource.getrusage, getattr(resource, "RUSAGE_THREAD", None), resource.RUSAGE_SELF
    try:
        file = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None

    def read() -> Memory:
        resident = int(os.pread(file, 128, 0).split(None, 2)[1]) * page
        if own is None:
            return Memory(resident)
        return Memory(resident, usage(own).ru_minflt, usage(everybody).ru_minflt)

    return read
