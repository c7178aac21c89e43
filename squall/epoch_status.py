"""The epochs of a running topology at one moment: plain values, as workers report them and as users see them.

Times are those of the reporting worker's clock until its process turns them into wall-clock time, as for `squall.status`.
Must not know: workers, coordinators, who shows them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final, Literal

import msgspec

from squall.exact_structs import build_type_info

#: What a topology waits for: the store of the state, the end of an epoch in all tasks, step one of a rewind, a commit.
WaitsFor = Literal["store", "alignment", "rewind", "commit"]
#: Seconds after which a wait is reported. A store that has failed is reported at once.
LONG_WAIT: Final = 5.0
#: The most tasks that a report lists.
MOST_TASKS: Final = 20


@dataclass(frozen=True)
class EpochWait:
    """What has been waiting for seconds. what: what it waits for ("store": the store of the state; "alignment": the end of an
    epoch in all tasks; "rewind": the return of all tasks to the last commit; "commit": a spout waits for the next commit,
    since it has reached `topology.epoch.uncommitted` or a worker `topology.epoch.uncommitted.mb`, or until a cycle has executed
    what waits on it); since: since when, as for `DownTask`; why: such as the store's error; component, task: which task, "" and
    None for a whole worker; follows: whether it waits for another task.
    """

    what: WaitsFor
    since: float
    why: str
    component: str = ""
    task: int | None = None
    follows: bool = False


class SlowTask(msgspec.Struct, frozen=True):
    """A task, and the seconds from the begin of an epoch's end until its snapshot was stored."""

    component: str
    task: int
    secs: float


class LeadReport(msgspec.Struct, frozen=True):
    """What a coordinator knows. rewind: its rewind number; committed, rewound: when, None if unknown; step: what all tasks are
    asked for, since `since`; waiting: the tasks that have not answered (component, task); more: how many further ones; groups:
    into how many groups the keys are divided, 0 if unknown. The other fields are those of `EpochStatus`."""

    rewind: int
    number: int
    committed: float | None = None
    duration: float | None = None
    longest: float | None = None
    bytes: int | None = None
    slowest: SlowTask | None = None
    quiet: bool = False
    rewinds: int = 0
    rewound: float | None = None
    rewind_reason: str = ""
    step: Literal["", "alignment", "rewind"] = ""
    since: float | None = None
    waiting: tuple[tuple[str, int], ...] = ()
    more: int = 0
    began: int | None = None
    on_trial: bool = False
    groups: int = 0


class EpochReport(msgspec.Struct, frozen=True):
    """What one worker knows. `lead`: if the coordinator is there."""

    lead: LeadReport | None = None
    waits: tuple[EpochWait, ...] = ()


@dataclass(frozen=True)
class EpochStatus:
    """The epochs of a topology with `topology.state.path`.

    number: the last commit; 0: there is none. age: seconds since it; None if unknown. duration: seconds that its epoch took to
    end, from the barriers to the commit; longest: the most of the last 100; bytes: of its snapshots; slowest: the task whose
    snapshot was stored last. All four are None until the coordinator's process has committed an epoch. quiet: nothing has
    happened since the last commit, so none follows. rewinds: how often all tasks have returned to the last commit since the
    submission; rewound: when they did so last (as `DownTask.since`), rewind_reason: why. waits: what has been waiting for
    seconds; more_waits: how many tasks are not listed there. began: the epoch with which the coordinator's process has begun
    (0: with nothing kept), None until it has. on_trial: the version is on trial, so nothing is committed until the trial ends.
    """

    number: int
    age: float | None = None
    duration: float | None = None
    longest: float | None = None
    bytes: int | None = None
    slowest: SlowTask | None = None
    quiet: bool = False
    rewinds: int = 0
    rewound: float | None = None
    rewind_reason: str = ""
    waits: tuple[EpochWait, ...] = ()
    more_waits: int = 0
    began: int | None = None
    on_trial: bool = False


def newer(one: LeadReport | None, other: LeadReport | None) -> LeadReport | None:
    """Return the report of the coordinator that leads, of two of one topology."""
    if one is None or other is None:
        return one or other
    return other if (other.rewind, other.number) >= (one.rewind, one.number) else one


def status_of(last: LeadReport | None, reports: Iterable[EpochReport], now: float) -> EpochStatus | None:
    """Return what users see. `last`: the newest report of a coordinator, which may have ended; `reports`: those of the living
    workers. None: there are no epochs."""
    found = list(reports)
    present: LeadReport | None = None
    for report in found:
        present = newer(present, report.lead)
    lead = newer(last, present)
    if lead is None:
        return EpochStatus(0, waits=_own_waits(found)) if found else None
    waits = _own_waits(found)
    more = 0
    if lead == present and lead.step and lead.since is not None and now - lead.since >= LONG_WAIT:
        waits += waits_of_step(lead, (wait for report in found for wait in report.waits))
        more = lead.more
    return EpochStatus(
        lead.number,
        None if lead.committed is None else max(0.0, now - lead.committed),
        lead.duration,
        lead.longest,
        lead.bytes,
        lead.slowest,
        lead.quiet,
        lead.rewinds,
        lead.rewound,
        lead.rewind_reason,
        waits,
        more,
        lead.began,
        lead == present and lead.on_trial,
    )


def _own_waits(reports: list[EpochReport]) -> tuple[EpochWait, ...]:
    """Return what workers wait for by themselves: what all of them say is said once, since the first of them."""
    found: dict[tuple[object, ...], EpochWait] = {}
    for wait in sorted((wait for report in reports for wait in report.waits), key=lambda wait: wait.since):
        if wait.what in ("store", "commit"):
            found.setdefault((wait.what, wait.why, wait.component, wait.task), wait)
    return tuple(found.values())


def waits_of_step(lead: LeadReport, said: Iterable[EpochWait]) -> tuple[EpochWait, ...]:
    """Return the tasks that have not answered, with what their workers have said about them: first those that wait for no other
    task, last those of which nothing is known."""
    assert lead.since is not None and lead.step
    known = {wait.task: wait for wait in said if wait.what == lead.step}
    found = [
        replace(known[task], since=lead.since)
        if task in known
        else EpochWait(lead.step, lead.since, "", component, task)
        for component, task in lead.waiting
    ]
    return tuple(sorted(found, key=lambda wait: (not wait.why, wait.follows)))


build_type_info(EpochReport)
