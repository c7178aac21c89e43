"""The page for Prometheus: a text of numbers, made from the views.

Must not know: HTTP.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Any, Final

from nimbus.http.error_labels import error_label
from nimbus.http.views import Views, letters_by_topology
from squall.api.answers import WorkerEntry
from squall.epoch_status import EpochStatus
from squall.http.admission import Admission
from topology_api.errors import NoSuchTopology

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

#: The metrics of each component: counter or gauge, the name in its status, the help text.
_OF_COMPONENTS: Final = (
    ("counter", "emitted", "Calls of emit, replays not counted."),
    ("counter", "executed", "Tuples executed."),
    ("counter", "acked", "Tuples acked by a bolt, or trees of a spout that were acked."),
    ("counter", "failed", "Tuples failed by a bolt, or trees of a spout that failed for good."),
    ("counter", "replayed", "Trees emitted again."),
    ("counter", "errors", "Errors of the user's code."),
    ("counter", "dropped", "Untracked tuples dropped because the buffers of a cycle were full."),
    ("gauge", "pending", "Open trees of a spout."),
    ("gauge", "tasks", "Tasks."),
)

_OF_PROCESSES: Final[tuple[tuple[str, str, Callable[[WorkerEntry], float | None]], ...]] = (
    (
        "cpu_cores",
        "Cores that a worker's process used, on the average of the last ten seconds.",
        lambda each: each.cpu,
    ),
    ("resident_memory_bytes", "Resident memory of a worker's process.", lambda each: each.rss),
    ("threads", "Threads of a worker's process.", lambda each: each.threads),
    ("restarts", "Restarts of a worker in this version of the assignment.", lambda each: each.restarts),
    ("memory_limit_bytes", "The limit of topology.worker.memory.mb.", lambda each: each.memory_limit),
)

#: Of topologies that keep their state.
_OF_EPOCHS: Final[tuple[tuple[str, str, str, Callable[[EpochStatus], float | None]], ...]] = (
    ("epoch_number", "gauge", "The number of the last commit.", lambda each: each.number),
    ("epoch_age_seconds", "gauge", "Seconds since the last commit.", lambda each: each.age),
    (
        "epoch_quiet",
        "gauge",
        "1 if nothing has happened since the last commit.",
        lambda each: int(each.quiet),
    ),
    (
        "epoch_seconds",
        "gauge",
        "Seconds that the last committed epoch took to end, from the barriers to the commit.",
        lambda each: each.duration,
    ),
    ("epoch_longest_seconds", "gauge", "The most of the last 100 epochs.", lambda each: each.longest),
    ("epoch_bytes", "gauge", "Bytes of the snapshots of the last commit.", lambda each: each.bytes),
    (
        "rewinds_total",
        "counter",
        "How often all tasks have returned to the last commit since the submission.",
        lambda each: each.rewinds,
    ),
)
#: Of the components of such a topology: metric, name in the status, kind of component, help text.
_OF_STATES: Final = (
    ("state_keys", "keys", "bolt", "Keys that had state when the last epoch ended."),
    ("parked_tuples", "parked", "bolt", "Tuples that wait in a bolt for their next try."),
    (
        "uncommitted_tuples",
        "uncommitted",
        "spout",
        "Tuples that wait for their commit, in the task of a spout that has most of them.",
    ),
)

_QUANTILES: Final = (("p50", "0.5"), ("p99", "0.99"))
#: Labels and a value.
_Sample = tuple[Mapping[str, str], float]


def text_of(views: Views, leading: bool, admission: Admission | None = None) -> str:
    """Return the page. `admission`: the connections of the HTTP server."""
    connections = () if admission is None else _connections(admission)
    return "\n".join((*_lines(views, leading), *connections)) + "\n"


def _lines(views: Views, leading: bool) -> Iterator[str]:
    supervisors = views.supervisors()
    for name, text, value in (
        ("squall_nimbus_leading", "Whether this Nimbus leads.", int(leading)),
        ("squall_store_connected", "Whether the store can be reached.", int(views.store_state().connected)),
        ("squall_supervisors", "Registered supervisors.", len(supervisors)),
        ("squall_slots", "Slots for workers.", sum(each.slots for each in supervisors)),
        ("squall_slots_used", "Slots in use.", sum(each.used for each in supervisors)),
    ):
        yield from _one(name, "gauge", text, [({}, value)])
    failing = [({"supervisor": each.id, "host": each.host}, 1) for each in supervisors if each.cannot_start]
    text = "1 for a supervisor whose host cannot start workers."
    yield from _one("squall_supervisor_cannot_start_workers", "gauge", text, failing)
    closed: list[_Sample] = [
        ({"supervisor": each.id, "host": each.host, "reason": why}, count)
        for each in supervisors
        for why, count in each.connections_closed.items()
    ]
    text = "Connections to a supervisor's port that were closed because there were too many, as for Nimbus."
    yield from _one("squall_supervisor_http_connections_closed_total", "counter", text, closed)
    listed = views.topologies()
    states = [({"topology": each.name, "state": each.state}, 1) for each in listed]
    yield from _one("squall_topology_state", "gauge", "1 for the state that a topology is in.", states)
    workers = [({"topology": each.name}, each.workers) for each in listed]
    yield from _one("squall_topology_workers", "gauge", "Workers of a topology.", workers)
    letters = [
        ({"topology": name, "supervisor": supervisor}, count)
        for name, counts in sorted(letters_by_topology(views.registry, views.now()).items())
        for supervisor, count in counts.items()
    ]
    text = "Dead letters on a supervisor's host; their topology may be gone."
    yield from _one("squall_dead_letters", "gauge", text, letters)
    readable = [each.name for each in listed if each.state != "BAD"]
    yield from _processes(views, readable)
    yield from _components(views, readable)


def _connections(admission: Admission) -> Iterator[str]:
    unknown = admission.unknown
    counts = (("no", unknown), ("yes", max(admission.open - unknown, 0)))
    text = "Connections to this Nimbus, by whether they have shown valid credentials."
    yield from _one("squall_http_connections", "gauge", text, [({"known": each}, n) for each, n in counts])
    text = "Connections that were closed because there were too many: of an address, unknown ones, or in all (full)."
    closed: list[_Sample] = [({"reason": why}, count) for why, count in admission.closed.items()]
    yield from _one("squall_http_connections_closed_total", "counter", text, closed)


def _components(views: Views, names: list[str]) -> Iterator[str]:
    rows: list[tuple[dict[str, str], Mapping[str, Any]]] = []
    epochs: list[tuple[str, EpochStatus]] = []
    for name in names:
        try:
            whole = views.statuses.status(name)
        except NoSuchTopology:
            continue  # the topology was removed meanwhile
        if whole.epoch is not None:
            epochs.append((name, whole.epoch))
        rows += [
            ({"topology": name, "component": each}, vars(status)) for each, status in whole.components.items()
        ]
    for kind, key, text in _OF_COMPONENTS:
        metric = f"squall_component_{key}" + ("_total" if kind == "counter" else "")
        yield from _one(metric, kind, text, [(labels, status[key]) for labels, status in rows])
    down = [(labels, len(status["down"])) for labels, status in rows]
    text = "Tasks of a bolt that fail for every tuple."
    yield from _one("squall_component_tasks_down", "gauge", text, down)
    since = [
        ({**labels, "task": str(each.task)}, each.since) for labels, status in rows for each in status["down"]
    ]
    text = "Since when a task has failed for every tuple, in seconds since 1970."
    yield from _one("squall_task_down_since_seconds", "gauge", text, since)
    why = [
        ({**labels, "task": str(each.task), "error": error_label(each.error)}, 1)
        for labels, status in rows
        for each in status["down"]
    ]
    text = "1 for a task that fails for every tuple, with its last error, in which values are left out."
    yield from _one("squall_task_down_info", "gauge", text, why)
    tried = [(labels, sum(each.tuples for each in status["undecided"])) for labels, status in rows]
    text = "Tuples of a spout that are tried again without a verdict on them or their bolt task."
    yield from _one("squall_component_tuples_undecided", "gauge", text, tried)
    yield from _loads(rows)
    yield from _epochs(epochs, rows)
    latencies = [sample for row in rows for sample in _quantiles(*row)]
    text = "Seconds from the first emission of a tree to its ack."
    yield from _one("squall_component_complete_latency_seconds", "gauge", text, latencies)
    yield from _users_own(rows)


def _epochs(
    epochs: Sequence[tuple[str, EpochStatus]], rows: Sequence[tuple[dict[str, str], Mapping[str, Any]]]
) -> Iterator[str]:
    """Yield the last commits of topologies that keep their state, what they wait for, and what their components hold."""
    for metric, kind, text, value_of in _OF_EPOCHS:
        values = [
            ({"topology": name}, value) for name, epoch in epochs if (value := value_of(epoch)) is not None
        ]
        yield from _one(f"squall_{metric}", kind, text, values)
    slow = [
        ({"topology": name, "component": each.component, "task": str(each.task)}, each.secs)
        for name, epoch in epochs
        if (each := epoch.slowest) is not None
    ]
    text = "Seconds from the barriers to the snapshot of the slowest task of the last committed epoch."
    yield from _one("squall_epoch_slowest_task_seconds", "gauge", text, slow)
    waits = [
        ({"topology": name, "for": what}, min(each.since for each in epoch.waits if each.what == what))
        for name, epoch in epochs
        for what in dict.fromkeys(each.what for each in epoch.waits)
    ]
    text = "Since when a topology waits for its state store, an alignment, a rewind or a commit, in seconds since 1970."
    yield from _one("squall_epoch_waits_since_seconds", "gauge", text, waits)
    named = {name for name, _ in epochs}
    for metric, key, kind, text in _OF_STATES:
        values = [
            (labels, status[key])
            for labels, status in rows
            if labels["topology"] in named and status["kind"] == kind and status[key] is not None
        ]
        yield from _one(f"squall_{metric}", "gauge", text, values)


def _loads(rows: Sequence[tuple[dict[str, str], Mapping[str, Any]]]) -> Iterator[str]:
    """Yield how long the bolts' calls take, and the present load of each task."""
    times = [sample for row in rows for sample in _quantiles(*row, "execute_")]
    text = "Seconds that a call of a bolt takes."
    yield from _one("squall_component_execute_seconds", "gauge", text, times)
    loads = [
        ({**labels, "task": str(load.task)}, load) for labels, status in rows for load in status["loads"]
    ]
    times = [sample for labels, load in loads for sample in _quantiles(labels, asdict(load), "execute_")]
    text = "Seconds that a call of a bolt's task takes, since its worker began."
    yield from _one("squall_task_execute_seconds", "gauge", text, times)
    busy = [(labels, load.busy) for labels, load in loads if load.busy is not None]
    text = "Share of the last ten seconds that a task was in calls, from 0 to 1."
    yield from _one("squall_task_busy_ratio", "gauge", text, busy)
    queues = [(labels, load.queue) for labels, load in loads]
    yield from _one("squall_task_queue", "gauge", "Tuples that wait to be executed by a task.", queues)
    calls = [(labels, load.call_since) for labels, load in loads if load.call_since is not None]
    text = "When the call began that a task has been in for more than a second, in seconds since 1970."
    yield from _one("squall_task_call_start_seconds", "gauge", text, calls)
    grown = [(labels, load.grew) for labels, load in loads if load.grew is not None]
    text = "Bytes by which the memory of the worker's process grew in calls of a task: an estimate."
    yield from _one("squall_task_memory_growth_bytes", "gauge", text, grown)


def _processes(views: Views, names: list[str]) -> Iterator[str]:
    """Yield what the processes of the workers use."""
    known = []
    for name in names:
        with suppress(NoSuchTopology):
            known += [(name, each) for each in views.workers(views.record(name)) if each.pid is not None]
    for metric, text, value_of in _OF_PROCESSES:
        values = [
            ({"topology": name, "worker": each.worker}, value)
            for name, each in known
            if (value := value_of(each)) is not None
        ]
        yield from _one(f"squall_worker_{metric}", "gauge", text, values)
    processes = [
        ({"topology": name, "worker": each.worker, "host": each.host or "", "pid": str(each.pid)}, 1)
        for name, each in known
    ]
    yield from _one("squall_worker_info", "gauge", "The host and the process id of a worker.", processes)


def _users_own(rows: Sequence[tuple[dict[str, str], Mapping[str, Any]]]) -> Iterator[str]:
    """Yield the user's own metrics. Their names may contain any characters, so they are labels. Values that are not numbers
    (the errors of gauges' functions) are left out.
    """
    numbers: list[_Sample] = []
    quantiles: list[_Sample] = []
    counts: list[_Sample] = []
    for labels, status in rows:
        for name, value in status["metrics"].items():
            own = {**labels, "metric": str(name)}
            if isinstance(value, (int, float)):
                numbers.append((own, float(value) if isinstance(value, bool) else value))
            elif isinstance(value, Mapping):
                counts.append((own, value["count"]))
                quantiles += _quantiles(own, value)
    yield from _one("squall_component_metric", "untyped", "The user's own counters and gauges.", numbers)
    yield from _one("squall_component_histogram", "summary", "The user's own histograms.", quantiles)
    yield from (_line("squall_component_histogram_count", *sample) for sample in counts)


def _quantiles(labels: Mapping[str, str], values: Mapping[str, Any], prefix: str = "") -> list[_Sample]:
    known = [(values[prefix + key], quantile) for key, quantile in _QUANTILES]
    return [({**labels, "quantile": quantile}, value) for value, quantile in known if value is not None]


def _one(name: str, kind: str, text: str, values: Sequence[_Sample]) -> Iterator[str]:
    yield f"# HELP {name} {text}"
    yield f"# TYPE {name} {kind}"
    yield from (_line(name, *sample) for sample in values)


def _line(name: str, labels: Mapping[str, str], value: float) -> str:
    quoted = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
    return f"{name}{{{quoted}}} {value}" if labels else f"{name} {value}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
