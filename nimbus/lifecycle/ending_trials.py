"""The end of a trial by an operator (`squall rollback` of a version on trial): the version takes the step `fail` at once.

From then on it is a failed version like any other, and `nimbus.lifecycle.replacing` lets the previous version return. The
record of the topology keeps the key of the request, also when the previous version has returned, so that a request that is sent
again, because its answer was lost, rolls back nothing else.
Must not know: callers, how a version returns.
"""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec.structs import replace

from nimbus.lifecycle import states
from nimbus.lifecycle.progress import is_on_trial
from nimbus.lifecycle.replacing import UnreadableVersion
from nimbus.lifecycle.transition import transition
from squall.cluster.records import BadRecord, TopologyRecord
from squall.cluster.registry import Registry, is_version
from squall.reports.events import Event

#: The reason for the rollback.
BY_OPERATOR: Final = "an operator rolled it back"


class EndedTrial(msgspec.Struct, frozen=True):
    """A trial that an operator has ended. `version`: the id of the version that was on trial; `back`: the version that returns;
    `state`: its state then."""

    version: str
    back: TopologyRecord
    state: str


def end_trial(
    registry: Registry, record: TopologyRecord, wanted: str | None, key: str, time: float
) -> EndedTrial | None:
    """Roll back a version on trial because an operator wants the previous version, `wanted` (see `is_version`; None: the
    previous version), to return. Return None, and change nothing, if no version is on trial or a different one is wanted.

    `key`: that of the request; `time`: seconds since 1970. Raises `UnreadableVersion` if the previous version cannot be read.
    """
    if record.replaces is None:
        return _known(record) if key and record.ended_by == key else None
    if wanted is not None and not is_version(wanted, record.replaces):
        return None
    try:
        back = registry.replaced.get(record.name)
    except BadRecord as error:
        raise UnreadableVersion(record, Event("unreadable", part="replaced", error=str(error))) from error
    if back is None or back.id != record.replaces:
        return None
    if is_on_trial(record):
        transition(registry, record, "crash", time, error=BY_OPERATOR, ended_by=key)
    elif record.state == states.FAILED:  # it is being rolled back already
        registry.topologies.update(record, replace(record, ended_by=key))
    else:
        return None
    return EndedTrial(record.id, back, states.step(back.state, "restore", back.previous, back.name))


def _known(back: TopologyRecord) -> EndedTrial:
    """Return the trial whose end let this version return."""
    events = (note.fact for note in reversed(back.notes))
    ended = next((event.version for event in events if event.kind == "rolled_back"), "")
    return EndedTrial(ended, back, back.state)
