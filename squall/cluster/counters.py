"""The counters of workers, as values: the counters of a component, those of a worker, their sums and their bytes.

Counters are cumulative: a later reading of the same worker replaces an earlier one, and the totals of a topology are the sums
over all workers that it ever had. A worker process writes its counters as JSON for its supervisor, which passes the bytes on to
Nimbus.
Must not know: tasks, who reads, which worker still lives.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any, Final

import msgspec

from squall.epoch_status import EpochReport
from squall.exact_structs import build_type_info
from squall.reports.error_reports import ErrorReport
from squall.reports.histogram import LatencyHistogram
from squall.status import TaskLoad, UndecidedTuples
from topology_api.errors import SquallError

FORMAT: Final = 1
#: Counters that are plain sums.
SUMS: Final = ("emitted", "executed", "acked", "failed", "replayed", "errors", "dropped")
#: The most characters of a value that is not a number, such as the error of a gauge's function.
MOST_TEXT: Final = 300


class BadCounters(SquallError):
    """Bytes that are not counters."""


@dataclass
class ComponentCounters:
    """The counters of a component's tasks, in one worker or in many; `ComponentStatus` explains each counter.

    pending, idle, down, undecided, loads, gauges, keys, parked, uncommitted: the present state, which is valid only while the
    worker lives.
    """

    emitted: int = 0
    executed: int = 0
    acked: int = 0
    failed: int = 0
    replayed: int = 0
    errors: int = 0
    dropped: int = 0
    latency: LatencyHistogram = field(default_factory=LatencyHistogram)
    #: The user's own counters (numbers) and histograms.
    metrics: dict[str, Any] = field(default_factory=dict)
    #: Trees that failed for good: reason -> number.
    failures: dict[str, int] = field(default_factory=dict)
    #: When and why the first of these trees failed.
    first_failure: tuple[float, str] | None = None
    pending: int = 0
    #: Why spout tasks do not emit, and what calls of bolts wait for: reason -> number of tasks.
    idle: dict[str, int] = field(default_factory=dict)
    #: The user's own gauges: name -> number, or the error of the gauge's function.
    gauges: dict[str, Any] = field(default_factory=dict)
    #: Tasks that are down: task id -> when the first of its failures began, and the last error.
    down: dict[int, tuple[float, str]] = field(default_factory=dict)
    #: Tuples of spout tasks that are tried again without a verdict, by task.
    undecided: dict[int, UndecidedTuples] = field(default_factory=dict)
    #: Task id -> its load.
    loads: dict[int, TaskLoad] = field(default_factory=dict)
    #: The time of a bolt's calls.
    execute: LatencyHistogram = field(default_factory=LatencyHistogram)
    #: Attempts of trees that failed, those that are tried again included; a worker of an earlier release counts none.
    attempts_failed: int = 0
    #: In a topology with epochs. None: no state belongs to keys; or there are no epochs.
    keys: int | None = None
    parked: int = 0
    uncommitted: int | None = None

    def add(self, other: ComponentCounters) -> None:
        """Add the sums of another worker."""
        for name in SUMS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.attempts_failed += other.attempts_failed
        self.latency.merge(other.latency)
        self.execute.merge(other.execute)
        add_values(self.metrics, other.metrics)
        add_values(self.failures, other.failures)
        self.first_failure = min(filter(None, (self.first_failure, other.first_failure)), default=None)

    def add_present(self, other: ComponentCounters) -> None:
        """Add the present state of another worker."""
        self.pending += other.pending
        add_values(self.gauges, other.gauges)
        add_values(self.idle, other.idle)
        self.down.update(other.down)
        self.undecided.update(other.undecided)
        self.loads.update(other.loads)
        self.parked += other.parked
        if other.keys is not None:
            self.keys = (self.keys or 0) + other.keys
        if other.uncommitted is not None:
            self.uncommitted = max(self.uncommitted or 0, other.uncommitted)

    def as_dict(self) -> dict[str, Any]:
        """Return the counters for JSON, without empty counters."""
        values: dict[str, Any] = {name: getattr(self, name) for name in (*SUMS, "pending")}
        values["attempts_failed"] = self.attempts_failed
        values |= {"failures": self.failures, "idle": self.idle, "first_failure": self.first_failure}
        values["metrics"] = {name: _metric_as_json(value) for name, value in self.metrics.items()}
        values["down"] = {str(task): since_and_error for task, since_and_error in self.down.items()}
        values["gauges"] = {name: plain(value) for name, value in self.gauges.items()}
        if self.latency.count:
            values["latency"] = self.latency.as_dict()
        if self.execute.count:
            values["execute"] = self.execute.as_dict()
        values["undecided"] = [msgspec.to_builtins(each) for each in self.undecided.values()]
        values["loads"] = [msgspec.to_builtins(load) for load in self.loads.values()]
        values["parked"] = self.parked
        known = {name: getattr(self, name) for name in ("keys", "uncommitted")}
        return {name: value for name, value in values.items() if value} | {
            name: value for name, value in known.items() if value is not None
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> ComponentCounters:
        """Return the counters from the values that `as_dict` returned. Raises ValueError, TypeError or KeyError for anything
        else."""
        counters = cls(
            failures={str(reason): _whole(count) for reason, count in values.get("failures", {}).items()},
            idle={str(reason): _whole(count) for reason, count in values.get("idle", {}).items()},
            metrics={name: _metric_from_json(value) for name, value in values.get("metrics", {}).items()},
            gauges={name: plain(value) for name, value in values.get("gauges", {}).items()},
            down={
                int(task): (_moment(since), str(error))
                for task, (since, error) in values.get("down", {}).items()
            },
        )
        for name in (*SUMS, "pending", "attempts_failed", "parked"):
            setattr(counters, name, _whole(values.get(name, 0)))
        for name in ("keys", "uncommitted"):
            if name in values:
                setattr(counters, name, _whole(values[name]))
        if "latency" in values:
            counters.latency = LatencyHistogram.from_dict(values["latency"])
        if "execute" in values:
            counters.execute = LatencyHistogram.from_dict(values["execute"])
        loads = msgspec.convert(values.get("loads", []), list[TaskLoad])
        counters.loads = {load.task: load for load in loads}
        undecided = msgspec.convert(values.get("undecided", []), list[UndecidedTuples])
        counters.undecided = {each.task: each for each in undecided if _moment(each.since) >= 0}
        if values.get("first_failure") is not None:
            when, why = values["first_failure"]
            counters.first_failure = float(when), str(why)
        return counters


class ProcessLoad(msgspec.Struct, frozen=True):
    """What a worker process uses. cpu: cores, on the average of the last ten seconds (None: unknown yet); rss: bytes of
    resident memory."""

    pid: int
    cpu: float | None = None
    rss: int = 0
    threads: int = 0


class WorkerCounters(msgspec.Struct, frozen=True):
    """The counters of one worker since it began. `number` rises with each reading of the same worker. `reports`: the latest
    errors of the user's code.
    """

    components: Mapping[str, ComponentCounters]
    reports: tuple[ErrorReport, ...] = ()
    number: int = 0
    #: None: a worker of an earlier release, or a simulated one.
    process: ProcessLoad | None = None
    #: None: the topology has no epochs.
    epochs: EpochReport | None = None

    def to_bytes(self) -> bytes:
        """Return the counters as JSON, for files and for Nimbus."""
        components = {name: counters.as_dict() for name, counters in self.components.items()}
        body = {
            "format": FORMAT,
            "number": self.number,
            "components": {name: values for name, values in components.items() if values},
            "reports": [report.as_dict() for report in self.reports],
        }
        if self.process is not None:
            body["process"] = msgspec.to_builtins(self.process)
        if self.epochs is not None:
            body["epochs"] = msgspec.to_builtins(self.epochs)
        return json.dumps(body, separators=(",", ":")).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> WorkerCounters:
        """Return the counters that `to_bytes` wrote; raise `BadCounters` for other bytes. The bytes `{}` are valid: the worker
        has counted nothing yet."""
        try:
            body = json.loads(data)
            if body == {}:
                return cls({})
            if body["format"] != FORMAT:
                raise ValueError(f"their format is {body['format']!r:.40}, this Squall reads {FORMAT}")
            counted = {name: ComponentCounters.from_dict(each) for name, each in body["components"].items()}
            reports = tuple(ErrorReport.from_dict(values) for values in body["reports"])
            process = body.get("process")
            used = None if process is None else msgspec.convert(process, ProcessLoad)
            epochs = body.get("epochs")
            told = None if epochs is None else msgspec.convert(epochs, EpochReport)
            return cls(counted, reports, _whole(body["number"]), used, told)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError) as error:
            raise BadCounters(f"these bytes hold no counters: {error!r:.300}") from error


def add_values(totals: dict[str, Any], values: Mapping[str, Any]) -> None:
    """Add values by name: numbers are summed, histograms merged; any other value replaces the earlier one."""
    for name, value in values.items():
        so_far = totals.get(name)
        if isinstance(value, LatencyHistogram):
            if not isinstance(so_far, LatencyHistogram):
                so_far = totals[name] = LatencyHistogram()  # a copy, so that `values` is not changed
            so_far.merge(value)
        elif isinstance(value, (int, float)) and isinstance(so_far, (int, float)):
            totals[name] = so_far + value
        else:
            totals[name] = value


def plain(value: object) -> int | float | str:
    """Return a user's number (numpy's, or a Decimal) as a Python number, and any other value as its text."""
    if type(value) in (int, float, bool, str):
        return value  # type: ignore[return-value]
    try:
        return int(value) if isinstance(value, Integral) else float(value)  # type: ignore[arg-type]
    except Exception:  # the value's class is the user's
        return _text(value)


def _text(value: object) -> str:
    try:
        text = repr(value)
    except Exception as error:
        text = f"a {type(value).__name__} whose repr() raises {type(error).__name__}"
    return text if len(text) <= MOST_TEXT else text[: MOST_TEXT - 1] + "…"


def _whole(value: object) -> int:
    if type(value) is not int:
        raise ValueError(f"{value!r:.80} is not a count")
    return value


def _moment(value: object) -> float:
    """A time in seconds since 1970, before the year 10,000."""
    if type(value) not in (int, float) or not 0 <= value < 253_402_300_800:  # type: ignore[operator]
        raise ValueError(f"{value!r:.80} is not a time")
    return float(value)  # type: ignore[arg-type]


def _metric_as_json(value: Any) -> Any:
    return value.as_dict() if isinstance(value, LatencyHistogram) else plain(value)


def _metric_from_json(value: Any) -> Any:
    return LatencyHistogram.from_dict(value) if isinstance(value, dict) else plain(value)


build_type_info(ProcessLoad)
