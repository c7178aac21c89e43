"""Decides how far a topology has returned to its previous version, after an operator ended the trial of a new version.

The previous version has proved before that it runs, and its counters go on from its earlier life: so it has returned when its
workers are up, or at once if it had ended or is INACTIVE. `Return` receives one status after the other, as `Arrival` does.
Must not know: HTTP, terminals, the command that waits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from squall.api.answers import TopologyAnswer, WorkerEntry
from squall.reports.event_text import repetition, sentence
from squall.reports.events import Event
from squall_cli.cluster.events import own_paths
from squall_cli.cluster.placed import LAG_SECS, LEAVING
from squall_cli.packing.coming_up import (
    TROUBLE_SECS,
    Seen,
    failed_build,
    failure_of,
    shows_build,
    stages_of,
    waiting_for,
)
from squall_cli.terminal.formats import to_type


@dataclass(eq=False)
class Return:
    """The return of one version. `_ended`: the version whose trial was ended."""

    _name: str
    _id: str
    _ended: str
    _reported: set[str] = field(default_factory=set, init=False)
    _best: tuple[int, int] = field(default=(0, 0), init=False)
    #: The time of the last progress since the version has its name again.
    _better: float | None = field(default=None, init=False)

    def missing(self, now: float) -> Seen:
        """Process an answer of Nimbus saying that no topology has this name."""
        return Seen("", failure=f"topology {self._name!r} is gone: it was killed")

    def update(self, status: TopologyAnswer, now: float) -> Seen:
        """Process a status of the topology with this name."""
        if status.id == self._ended and status.state not in ("KILLED", "BAD"):
            return Seen(f"waiting until the workers of {self._ended} have stopped")
        failure = failure_of(status)
        if failure is None and status.id != self._id:
            shows = to_type("history", self._name)
            failure = f"topology {self._name!r} has another version by now, {status.id} ({shows})"
        if failure is not None:
            return Seen("", failure=failure)
        workers = [worker for worker in status.workers if worker.state not in LEAVING]
        up = sum(worker.opened for worker in workers)
        if self._better is None or (len(workers), up) > self._best:
            self._best, self._better = (len(workers), up), now
        reached = {"back": f"{self._id} has the name again", **stages_of(workers, up)}
        new = tuple(text for key, text in reached.items() if key not in self._reported)
        self._reported.update(reached)
        if (end := _end(status, workers, up)) is not None:
            return Seen("", (*new, *end), done=True)
        events = _events_since(status)
        trouble = self._trouble(status, events, now - self._better)
        if trouble is not None:
            return Seen("", new, failure=trouble)
        if not workers and now - self._better < LAG_SECS:
            return Seen("being scheduled", new)
        return Seen(waiting_for(status, len(workers), up, repetition(events[-1]) if events else ""), new)

    def _trouble(self, status: TopologyAnswer, events: Sequence[Event], secs: float) -> str | None:
        """Return why the command should stop waiting after `secs` seconds without progress, or None."""
        build = failed_build(status)
        if build is not None:
            return f"{sentence(build)}\n{shows_build(self._name)}"
        if events and secs > TROUBLE_SECS:
            return (
                f"no progress for {TROUBLE_SECS:.0f} s; the latest event: {own_paths(sentence(events[-1]))}"
            )
        return None


def _end(status: TopologyAnswer, workers: Sequence[WorkerEntry], up: int) -> tuple[str, ...] | None:
    """Return what remains to be said of a version that has returned; None if it has not."""
    if status.state == "COMPLETED":
        return ("completed",)
    if status.state == "INACTIVE" and workers:
        return (f"inactive: {to_type('activate', status.name)} lets it run",)
    return () if 0 < len(workers) == up else None


def _events_since(status: TopologyAnswer) -> Sequence[Event]:
    """Return the events since the version has its name again."""
    kinds = [event.kind for event in status.events]
    rollbacks = [number for number, kind in enumerate(kinds) if kind == "rolled_back"]
    return status.events[rollbacks[-1] + 1 :] if rollbacks else status.events
