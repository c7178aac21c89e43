"""Views of versions that have ended: what `nimbus.counters.ended` keeps of them, and where their workers ran.

Must not know: HTTP, callers.
"""

from __future__ import annotations

from msgspec import convert

from nimbus.counters.ended import previous_version
from nimbus.http.views import NoSuchPart, Views, error_entry
from squall.api import answers
from squall.cluster.counters import BadCounters, WorkerCounters
from squall.cluster.records import EndedVersion, SupervisorRecord


def previous_answer(views: Views, name: str) -> answers.PreviousAnswer:
    """Return what is kept of the version of a name that ended last. Raises `NoSuchPart`."""
    ended = previous_version(views.registry, name)
    if ended is None:
        raise NoSuchPart(f"no version of {name!r:.200} has ended, or what was kept of it is removed")
    try:
        counters = WorkerCounters.from_bytes(ended.counters.encode())
    except BadCounters:
        counters = WorkerCounters({})
    return answers.PreviousAnswer(
        id=ended.id,
        name=ended.name,
        how=ended.how,
        error=ended.error,
        submitted=ended.submitted,
        ended=ended.ended,
        components={
            component: convert(counted, answers.EndedCounts, from_attributes=True)
            for component, counted in counters.components.items()
        },
        errors=[error_entry(report) for report in counters.reports],
        workers=_workers(views, ended),
    )


def former_supervisor(views: Views, name: str, worker: str, version: str) -> SupervisorRecord:
    """Return the supervisor that ran a worker of a version (an id) that has ended. Raises `NoSuchPart`."""
    ended = views.registry.ended.readable(version)
    if ended is None or ended.name != name:
        raise NoSuchPart(f"nothing is kept of a version {version!r:.200} of {name!r:.200}")
    for placement in ended.placements:
        if placement.worker == worker:
            return views.supervisor(placement.supervisor)
    known = ", ".join(placement.worker for placement in ended.placements) or "none"
    raise NoSuchPart(f"version {version!r} had no worker {worker!r:.80} (it had: {known})")


def _workers(views: Views, ended: EndedVersion) -> list[answers.WorkerEntry]:
    hosts = {each.id: each.host for each in views.registry.all_supervisors()}
    return [
        answers.WorkerEntry(
            worker=place.worker,
            supervisor=place.supervisor,
            host=hosts.get(place.supervisor),
            slot=place.slot,
            incarnation=place.incarnation,
            tasks=[],
            opened=False,
            state="STOPPED",
        )
        for place in ended.placements
    ]
