"""The status of a running topology and of its components: plain values.

Must not know: workers, the store, who shows the status.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from squall.epoch_status import EpochStatus
from squall.reports.error_reports import ErrorReport
from squall.reports.events import Event


@dataclass(frozen=True)
class DownTask:
    """A bolt task that is down: `since` when (a value of `time.time()`; in a local cluster in one process, of
    its clock), and its last error.
    """

    task: int
    since: float
    error: str


@dataclass(frozen=True)
class UndecidedTuples:
    """Tuples of a spout task, or parked in a bolt task, that are tried again, although nothing shows yet whether they or a bolt
    task are at fault: `since` when, until when (None: without end; times as for `DownTask`), and the last failure.
    """

    task: int
    tuples: int
    since: float
    until: float | None
    failure: str


@dataclass(frozen=True)
class TaskLoad:
    """How a task is loaded. Times are those of the process; they begin again when its worker is restarted.

    busy: the share of the last ten seconds in which the task was in a call, from 0 to 1 (for an asynchronous bolt: the share of
    `max_concurrency` that was in use); None if unknown. queue: tuples that wait to be executed. execute_p50, execute_p99:
    seconds that a call took (`execute`, or `execute_batch` for a whole batch); None for spouts, and before the first call.
    call_since: since when the present call runs (a value of `time.time()`; in a local cluster in one process, of its
    clock), once it has run for a second; call_name: the method, such as `execute`; call_place: the line of user's code where
    the call is; call_tuple: the tuple. These three are "" where they are unknown, and until the call has run for two seconds.
    grew: by how many bytes the memory of the worker's process has grown in calls of the task (an estimate, in whole megabytes);
    None if unknown.
    """

    task: int
    busy: float | None = None
    queue: int = 0
    execute_p50: float | None = None
    execute_p99: float | None = None
    call_since: float | None = None
    call_name: str = ""
    call_place: str = ""
    call_tuple: str = ""
    grew: int | None = None


@dataclass(frozen=True)
class ComponentStatus:
    """The totals of one component since the topology was submitted.

    emitted: calls of emit, without replays, including emissions to streams that no component reads. executed: executed tuples,
    without ticks. acked, failed: for a bolt, its tuples; for a spout, its trees (`failed` counts only those that failed for
    good). replayed: trees emitted again.
    pending: open trees of a spout, including those that wait for their replay. errors: errors in user code.
    dropped: untracked tuples that were dropped because a cycle was full. p50, p99: complete latency in seconds (from the first
    emission to the ack); None before the first ack. idle: for a spout, why it does not emit, or "" if it emits; for a bolt,
    what a long call waits for, as reported by `Context.progress(why)`. down: the tasks of a bolt that have failed for every
    tuple, so that their tuples wait (`topology.on.outage`). undecided: tuples of a spout, or parked in a bolt, that are tried
    again without a verdict. execute_p50, execute_p99: seconds that a bolt's calls took since the submission. loads: the present
    load of each running task; empty if the worker is of an earlier release.
    metrics: the user's own counters, gauges and histograms by name. failures: a spout's failed trees by `Failure.reason`;
    first_failure: the first failed tree and its reason; trees that failed only because the topology ended ("stopped") are left
    out. keys: how many keys had state when the last epoch ended; parked: tuples of a bolt that wait for their next try;
    uncommitted: the tuples that wait for their commit in the spout task that has most of them (`topology.epoch.uncommitted` is
    their limit). keys and uncommitted are None without `topology.state.path`; keys also of a bolt without keyed state.
    """

    kind: str
    tasks: int
    emitted: int
    executed: int
    acked: int
    failed: int
    replayed: int
    pending: int
    errors: int
    dropped: int = 0
    p50: float | None = None
    p99: float | None = None
    idle: str = ""
    metrics: Mapping[str, Any] = field(default_factory=dict)
    failures: Mapping[str, int] = field(default_factory=dict)
    first_failure: str = ""
    down: tuple[DownTask, ...] = ()
    undecided: tuple[UndecidedTuples, ...] = ()
    execute_p50: float | None = None
    execute_p99: float | None = None
    loads: tuple[TaskLoad, ...] = ()
    keys: int | None = None
    parked: int = 0
    uncommitted: int | None = None

    @property
    def busy(self) -> float | None:
        """The busy share of the busiest task; None if unknown."""
        return max((load.busy for load in self.loads if load.busy is not None), default=None)

    @property
    def queue(self) -> int:
        """The number of tuples that wait to be executed."""
        return sum(load.queue for load in self.loads)


@dataclass(frozen=True)
class TopologyStatus:
    """A topology at one moment. `errors`: the latest error reports, oldest first; `error`: why it FAILED; `uptime`: seconds
    since it was submitted; `state_secs`: seconds since it entered its present state; `events`: the latest events of the
    topology and its worker processes (such as the death of a process, with the cause); `notes`: the same events as sentences;
    `note_times`: the time of each note, as a value of `time.time()`; `epoch`: the last commit of a topology with
    `topology.state.path`, None for others.
    """

    name: str
    state: str
    components: Mapping[str, ComponentStatus]
    workers: int
    errors: tuple[ErrorReport, ...] = ()
    error: str | None = None
    uptime: float = 0.0
    notes: tuple[str, ...] = ()
    note_times: tuple[float, ...] = ()
    state_secs: float = 0.0
    events: tuple[Event, ...] = ()
    epoch: EpochStatus | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return the status as JSON values."""
        components = {
            name: vars(component)
            | {"metrics": dict(component.metrics), "failures": dict(component.failures)}
            | {each: msgspec.to_builtins(getattr(component, each)) for each in ("down", "undecided", "loads")}
            for name, component in self.components.items()
        }
        return {
            "name": self.name,
            "state": self.state,
            "workers": self.workers,
            "uptime_secs": self.uptime,
            "components": components,
            "errors": [report.render() for report in self.errors],
            "error": self.error,
            "notes": list(self.notes),
            "note_times": list(self.note_times),
            "events": msgspec.to_builtins(self.events),
            "state_secs": self.state_secs,
            "epoch": None if self.epoch is None else msgspec.to_builtins(self.epoch),
        }
