"""The answers of the HTTP API about topologies: Nimbus builds these structs, the command decodes them, the documents describe
them.

A struct's first line of documentation goes into the OpenAPI document and `docs/http-api.md`. All times are seconds. A reader
ignores unknown fields, which a newer Nimbus may send. Fields with a default may be missing: an older Nimbus sends none.
Those about the cluster are in `squall.api.cluster_answers`.
Must not know: paths, handlers, who reads an answer.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from squall.api.versions import Option, Settings, StandbyVersion
from squall.epoch_status import EpochStatus
from squall.reports.events import Event
from squall.reports.live_state import TaskState
from squall.reports.stacks import CallStack
from squall.status import ComponentStatus, DownTask, TaskLoad, UndecidedTuples
from squall.values import Incarnation, TaskRow

ComponentName = Annotated[str, Meta(title="component")]


class HeldUp(Struct, frozen=True):
    """How many workers of an ACTIVE topology are not up, and why the first of them is not."""

    workers: int
    why: str


class TopologySummary(Struct, frozen=True, kw_only=True):
    """One topology in a list."""

    name: str
    id: str
    state: str
    tasks: int
    workers: int
    components: int
    uptime_secs: float
    state_secs: float = 0.0
    emitted: int
    acked: int
    failed: int
    pending: int
    errors: int
    error: str | None
    stands_by: StandbyVersion | None = None
    held_up: HeldUp | None = None


class TopologiesAnswer(Struct, frozen=True):
    """`acked`, `failed` and `pending` count the trees of the spouts. In the state BAD the record cannot be read; `error` says
    why. `stands_by`: the previous version, which runs again if the workers of the new version are not up within `secs`; if it
    is `suspended`, the new version is up and INACTIVE, `secs` is 0, and its trial begins when it is activated.
    `held_up`: how many workers of an ACTIVE topology are not up (they keep dying, or their files cannot be prepared), and why
    the first of them is not.
    """

    topologies: list[TopologySummary]


class SubmittedAnswer(Struct, frozen=True):
    """The topology that was submitted. If it replaces another, `kept`: what operators had set and it keeps; `changed`: the
    settings that differ, each with both values. `repeats`: the version (an id) that a rollback submits again; or
    `rolled_back`: the version on trial, after which the version `id` returns. `state_path`: where it keeps its state; null: in
    memory, or Nimbus is of an earlier release."""

    name: str
    id: str
    state: str
    kept: Settings = {}
    changed: dict[Option, list[Any]] = {}
    repeats: str | None = None
    rolled_back: str | None = None
    state_path: str | None = None


class WorkerEntry(Struct, frozen=True):
    """A worker. `cpu`: the cores that its process used on the average of the last ten seconds; `rss`: its resident memory in
    bytes; null if unknown. `restarts`: how often it was started again since its tasks were placed; `memory_limit`: the bytes of
    `topology.worker.memory.mb`; null: no limit."""

    worker: str
    supervisor: str
    host: str | None
    slot: int
    incarnation: Incarnation
    tasks: list[TaskRow]
    opened: bool
    state: str
    pid: int | None = None
    cpu: float | None = None
    rss: int | None = None
    threads: int | None = None
    restarts: int = 0
    memory_limit: int | None = None


class ErrorOutline(Struct, frozen=True):
    """An error of the user's code in brief."""

    component: str
    task: int
    call: str
    text: str
    place: str
    time: float
    times: int


class TopologyAnswer(Struct, frozen=True, kw_only=True):
    """The result of `status(name)` (see [api.md](api.md)), with `errors` as texts. `state_secs`: seconds since it entered its
    state. `note_times`: the time of each note, in seconds since 1970. `events`: the same notes as structured objects; fields
    that have their default value are left out. There are fewer workers than `workers_wanted` if there are fewer tasks or slots.
    `stands_by` is as in GET /topologies, `workers` as in GET /topologies/{name}/workers. `dead_letters`: how many the hosts
    hold, also of earlier versions, counted every few seconds. `now`: when Nimbus answered, in seconds since 1970. `epoch`: the
    last commit of a topology with `topology.state.path`, null for others. `state_in_memory`: bolts whose state ends with their
    worker, although null for `topology.state.path` does not say that this is meant. `state_path`: below which the topology has
    its state, in a folder of its name; null: in memory, or Nimbus is of an earlier release."""

    name: str
    state: str
    workers: list[WorkerEntry]
    uptime_secs: float
    components: dict[ComponentName, ComponentStatus]
    errors: list[str]
    error: str | None
    notes: list[str]
    note_times: list[float] = []
    events: tuple[Event, ...] = ()
    state_secs: float | None = None
    error_reports: list[ErrorOutline] = []
    id: str
    workers_wanted: int = 0
    stands_by: StandbyVersion | None = None
    submitted: float
    files: dict[Annotated[str, Meta(title="kind")], str]
    dead_letters: int = 0
    now: float = 0.0
    epoch: EpochStatus | None = None
    state_path: str | None = None
    state_in_memory: list[ComponentName] = []


class UnreadableTopologyAnswer(TopologyAnswer, frozen=True, kw_only=True):
    """A topology whose record cannot be read, with the counters of its summary."""

    tasks: int = 0
    emitted: int = 0
    acked: int = 0
    failed: int = 0
    pending: int = 0
    held_up: HeldUp | None = None


class StateAnswer(Struct, frozen=True):
    """The state of the topology after the change, or GONE."""

    name: str
    state: str


class TaskEntry(Struct, frozen=True):
    """One task of a component."""

    task: int
    index: int
    worker: str | None
    host: str | None


class InputEntry(Struct, frozen=True):
    """A stream that a component reads."""

    source: str
    stream: str
    grouping: str
    fields: list[str]


class OutputEntry(Struct, frozen=True):
    """A stream that a component declares."""

    fields: list[str]
    direct: bool


class ComponentAnswer(Struct, frozen=True):
    """One component: its counters, its tasks, what it reads and writes."""

    topology: str
    id: str
    kind: Literal["spout", "bolt"]
    tasks: list[TaskEntry]
    emitted: int
    executed: int
    acked: int
    failed: int
    replayed: int
    pending: int
    errors: int
    dropped: int
    p50: float | None
    p99: float | None
    idle: str
    metrics: dict[Annotated[str, Meta(title="name")], Any]
    failures: dict[Annotated[str, Meta(title="reason")], int]
    first_failure: str
    parallelism: int
    inputs: list[InputEntry]
    outputs: dict[Annotated[str, Meta(title="stream")], OutputEntry]
    conf: Settings
    down: tuple[DownTask, ...] = ()
    undecided: tuple[UndecidedTuples, ...] = ()
    execute_p50: float | None = None
    execute_p99: float | None = None
    loads: tuple[TaskLoad, ...] = ()
    keys: int | None = None
    parked: int = 0
    uncommitted: int | None = None


class ErrorEntry(Struct, frozen=True):
    """An error of the user's code. `text` is the whole report for people."""

    topology: str
    component: str
    task: int
    call: str
    text: str
    place: str
    frames: list[str]
    tuple_text: str | None
    time: float
    times: int


class ErrorsAnswer(Struct, frozen=True):
    """The latest errors, the oldest first."""

    errors: list[ErrorEntry]


class WorkersAnswer(Struct, frozen=True):
    """`tasks` are `[task, component, index]`; `state` is STARTING, RUNNING, DRAINED, STOPPING, STOPPED, or LOST if the worker's
    supervisor is gone.
    """

    workers: list[WorkerEntry]


class EndedCounts(Struct, frozen=True):
    """The sums of a component when its version ended; the fields are those of a component's status."""

    emitted: int
    executed: int
    acked: int
    failed: int
    replayed: int
    errors: int


class PreviousAnswer(Struct, frozen=True, kw_only=True):
    """The version of a name that ended last. `how`: "killed", "replaced" or "rolled back". `submitted`, `ended`: seconds since
    1970. `workers`: its last workers, whose logs `GET /topologies/{name}/workers/{worker}/log` shows with `version`=`id`."""

    id: str
    name: str
    how: str
    error: str | None
    submitted: float
    ended: float
    components: dict[ComponentName, EndedCounts]
    errors: list[ErrorEntry]
    workers: list[WorkerEntry]


class ConfigurationsAnswer(Struct, frozen=True):
    """The settings of a topology and of its components."""

    conf: Settings
    component_confs: dict[ComponentName, Settings]


class WorkerCountersEntry(Struct, frozen=True):
    """The counters of one worker."""

    worker: str
    incarnation: Incarnation
    components: dict[ComponentName, dict[Annotated[str, Meta(title="counter")], Any]]


class CountersAnswer(Struct, frozen=True):
    """The counters of the components and of each worker."""

    topology: str
    id: str
    components: dict[ComponentName, ComponentStatus]
    workers: list[WorkerCountersEntry]


class LogAnswer(Struct, frozen=True):
    """A piece of a log. `offset`: where the piece begins in the log, in bytes; `next_offset`: where the rest of the log begins;
    `size`: bytes of the whole log."""

    worker: str
    incarnation: Incarnation | None
    offset: int
    next_offset: int
    size: int
    text: str


class StacksAnswer(Struct, frozen=True):
    """Where the threads of a worker are. `answered`: false if the worker did not answer within three seconds: it is starting or
    stopped, or a call holds Python's own lock; `more`: how many further stacks there are."""

    worker: str
    incarnation: Incarnation | None
    answered: bool
    pid: int | None = None
    stacks: tuple[CallStack, ...] = ()
    more: int = 0


class LiveStateAnswer(Struct, frozen=True):
    """What the running tasks of a worker have for a key. `answered`: false if the worker did not answer within four seconds: it
    is starting or stopped, or a call holds Python's own lock. `states`: the names of the component's states. `refusal`: why no
    task can answer, or ""."""

    worker: str
    answered: bool
    tasks: tuple[TaskState, ...] = ()
    states: tuple[str, ...] = ()
    refusal: str = ""
