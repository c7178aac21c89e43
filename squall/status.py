"""What a user is told of a running topology: plain values.

Must not know: workers, the store, who shows it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from squall.error_reports import ErrorReport

CANNOT_BUILD: Final = "its environment cannot be built"
"""In the note of a supervisor about requirements that it cannot install: `submit --wait` waits for no other attempt."""
ROLLED_BACK: Final = "was rolled back"
"""In the note that says why the version before has its name again."""


@dataclass(frozen=True)
class ComponentStatus:
    """The totals of one component; all counts since the topology was submitted.

    emitted: calls of emit (replays not counted, also on streams nobody reads). executed: tuples executed, without ticks.
    acked, failed: for a bolt its tuples, for a spout the final verdicts of its trees. replayed: trees emitted again.
    pending: open trees of a spout, those included that wait for their replay. errors: errors of the user's code.
    dropped: untracked tuples that a full cycle dropped. p50, p99: complete latency in seconds, from the first emission to
    the ack, None while nothing was acked. idle: why a spout does not emit, "" when it does; of a bolt what a long
    call of its waits for, as it says itself (`Context.progress(why)`).
    metrics: the user's own counters, gauges and histograms by name. failures: a spout's failed trees by `Failure.reason`;
    first_failure: the first of them and why, those apart that a stop cut off ("stopped").
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


@dataclass(frozen=True)
class TopologyStatus:
    """A topology at one moment. `errors`: the latest error reports, oldest first; `error`: why it FAILED; `uptime`: seconds
    since it was submitted; `state_secs`: since it came into its state; `notes`: what was last said about it and its worker
    processes (one that died, and of what), each at its moment of `note_times` (seconds, as `time.time()` has them).
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

    def as_dict(self) -> dict[str, Any]:
        """The same as JSON-able values."""
        components = {
            name: vars(component) | {"metrics": dict(component.metrics), "failures": dict(component.failures)}
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
            "state_secs": self.state_secs,
        }
