"""Events of a worker that died or could not be started: how often in a row, and when it is started again.

Must not know: processes, files, sentences.
"""

from __future__ import annotations

from msgspec.structs import replace

from squall.reports.events import Cause, Event
from supervisor.plan import Backoff


def died(worker: Event, cause: Cause, backoff: Backoff | None, now: float) -> Event:
    """Return the event of a death. `worker`: an event that names the worker; `backoff` None: it is not started again."""
    event = replace(worker, kind="died", cause=cause)
    return event if backoff is None else _retried(event, backoff.deaths - backoff.unstarted, backoff, now)


def not_started(worker: Event, part: str, error: str, backoff: Backoff, now: float) -> Event:
    """Return the event of a failed start. `part`: the artifact that could not be prepared; "": the process itself."""
    event = replace(worker, kind="not_started", part=part, error=error)
    return _retried(event, backoff.unstarted, backoff, now)


def _retried(event: Event, attempt: int, backoff: Backoff, now: float) -> Event:
    return replace(
        event,
        attempt=attempt,
        within_secs=max(0.0, now - backoff.since),
        retry_in_secs=max(0.0, backoff.not_before - now),
    )
