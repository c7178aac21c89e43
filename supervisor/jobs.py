"""Runs slow work in threads beside the supervisor's loop. Each job runs once; a job that failed runs again after a back-off.

The loop asks for a job by its key and gets an answer at once: done, running, or failed (with the time of the retry). A job
stays done until it is forgotten, or its result is deleted. Without threads (in tests, and in clusters in one process) a job
runs while the loop asks for it. The loop is one thread; `now` is the time on the loop's clock. Must not know: the kind of work.
"""

from __future__ import annotations

import logging
import math
import queue
import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import msgspec

from supervisor.plan import Backoff, after_death
from topology_api.errors import SquallError

_log = logging.getLogger(__name__)

T = TypeVar("T")


class JobUnderWay(msgspec.Struct, frozen=True):
    """The job is running or queued."""

    since: float


class BackgroundJobFailed(msgspec.Struct, frozen=True):
    """The job failed. A request after `backoff.not_before` retries it."""

    why: str
    backoff: Backoff
    error: Exception


@dataclass
class _Job(Generic[T]):
    work: Callable[[], T]
    since: float
    # The job's earlier failures.
    before: Backoff
    value: T | None = None
    error: Exception | None = None
    # Set last, by the thread that runs the job.
    over: threading.Event = field(default_factory=threading.Event)
    broken: BackgroundJobFailed | None = None
    # When the loop first saw that the job was done.
    seen: float | None = None

    def run(self) -> None:
        try:
            self.value = self.work()
        except Exception as error:  # the caller gets any error
            self.error = error
            if not isinstance(error, (SquallError, OSError)):
                _log.exception("internal error in a thread of the supervisor")
        self.over.set()


@dataclass(eq=False, repr=False)
class Jobs(Generic[T]):
    """Jobs of one kind. `done` is called, from a thread, when a job has ended. `there`: returns whether a job's result still
    exists."""

    name: str
    threads: int
    done: Callable[[], object] = lambda: None
    there: Callable[[T], bool] = lambda value: True
    _closed: bool = field(default=False, init=False)
    _jobs: dict[Hashable, _Job[T]] = field(default_factory=dict, init=False)
    _waiting: queue.SimpleQueue[_Job[T] | None] = field(default_factory=queue.SimpleQueue, init=False)
    _started: int = field(default=0, init=False)

    def state(
        self, key: Hashable, work: Callable[[], T], now: float, since: float = -math.inf
    ) -> T | JobUnderWay | BackgroundJobFailed:
        """Return the result of a job that is done, or else the job's state. Start a job that is new, due to be retried, or was
        not seen to be done at the time `since` or later."""
        job = self._jobs.get(key)
        if job is None or self._is_gone(job):
            # A new job starts with a back-off of one failure, so that its first retry does not come at once.
            job = self._begin(key, _Job(work, now, Backoff(1, now, now)))
        elif job.broken is not None and now >= job.broken.backoff.not_before:
            job = self._begin(key, _Job(work, now, job.broken.backoff))
        elif job.seen is not None and job.seen < since:
            job = self._begin(key, _Job(work, now, Backoff(1, now, now)))
        if not job.over.is_set():
            return JobUnderWay(job.since)
        if job.error is None:
            job.seen = now if job.seen is None else job.seen
            return job.value  # type: ignore[return-value]
        if job.broken is None:
            backoff = after_death(job.before, now, now, unstarted=True)
            job.broken = BackgroundJobFailed(str(job.error), backoff, job.error)
        return job.broken

    def knows(self, key: Hashable) -> bool:
        """Return whether the job with this key was requested and has not been forgotten."""
        return key in self._jobs

    def forget(self, keep: Callable[[Hashable], bool]) -> None:
        """Forget the jobs that are over, except those whose key `keep` accepts."""
        for key in [key for key, job in self._jobs.items() if job.over.is_set() and not keep(key)]:
            del self._jobs[key]

    def close(self) -> None:
        """Start no more jobs. Do not wait for running jobs: their threads end with the process."""
        self._closed = True
        for _ in range(self._started):
            self._waiting.put(None)

    def _is_gone(self, job: _Job[T]) -> bool:
        """Return whether a job was done and its result has been removed."""
        return job.over.is_set() and job.error is None and not self.there(job.value)  # type: ignore[arg-type]

    def _begin(self, key: Hashable, job: _Job[T]) -> _Job[T]:
        self._jobs[key] = job
        if not self.threads:
            job.run()
            return job
        self._waiting.put(job)
        if self._started < self.threads:
            self._started += 1
            name = f"squall-{self.name}-{self._started}"
            threading.Thread(target=self._serve, name=name, daemon=True).start()
        return job

    def _serve(self) -> None:
        while (job := self._waiting.get()) is not None and not self._closed:
            job.run()
            self.done()
