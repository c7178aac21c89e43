"""The records of a cluster: frozen structs, and their bytes in the store.

| record | one for each | written by |
|---|---|---|
| `TopologyRecord` | topology, from `submit` until its name is free again | Nimbus |
| `Assignment` | topology that has workers; also for its leaving workers, and for the workers that it had last | Nimbus |
| `SupervisorRecord` | registered supervisor | the supervisor |
| `NimbusRecord` | running Nimbus, leading or not | that Nimbus |
| `VersionRecord` | earlier version of a topology, for a rollback | Nimbus |
| `EndedVersion` | version of a topology that has ended, for some days | Nimbus |
| `WorkerReport` | worker that has reported | its host, through Nimbus |

The bytes are JSON with the kind of the record and a format version, so that a newer Squall can read the records of an older
Squall, and an older Squall reports that it cannot read them instead of guessing. For any bytes, `decode` returns a record or
raises `BadRecord`, but no other error, because a fault in one record must not stop other topologies. One field with a value
that no daemon can use (an unknown state, a text as the number of workers) is enough to raise `BadRecord`.
Must not know: where records are kept, who acts on them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final, Literal, TypeVar, cast

import msgspec
from msgspec import Struct
from msgspec.structs import asdict, replace

from squall.cluster.component_settings import differences, merged
from squall.cluster.store import MOST_BYTES
from squall.exact_structs import Finite, WrongValue, build_type_info, read_exactly
from squall.reports.events import Event
from squall.values import Address, Incarnation, TaskRow, TopologyState
from topology_api.errors import SquallError
from topology_api.wording import shown

#: Increased when a field is added or dropped, or changes its meaning. It was not increased for the fields in `_LATER`, which
#: older readers ignore. Since format 6, a record with settings of components stores only those that differ from the topology's.
FORMAT: Final = 6
#: The format in which a component's settings repeat the topology's. It is still read, and written as long as a daemon is
#: registered that reads no later one. All other records are the same in both formats, and are written in this one.
REPEATING: Final = 5
#: Fields that records of an earlier release lack. An empty one is not written.
_LATER = (
    "event",
    "cannot_start",
    "connections_closed",
    "set_options",
    "by",
    "repeats",
    "heirs",
    "ended_by",
    "returns",
    "state_start",
    "committed",
    "state_folder",
    "reads",
)


#: Options of a topology that daemons calculate with, and their minimum.
_RECKONED_WITH: Mapping[str, int] = {
    "topology.message.timeout.secs": 0,
    "topology.worker.timeout.secs": 0,
    "topology.workers": 1,
}


#: How a version loses its name to another version.
HowReplaced = Literal["replaced", "rolled back"]


class BadRecord(SquallError):
    """Bytes that do not hold the expected record."""


class Note(Struct, frozen=True):
    """An event of a topology as it is stored. `text` and `waits` are for daemons of a release without events."""

    text: str
    #: Seconds since 1970.
    time: Finite
    #: The worker that the event is about; "": the topology itself.
    worker: str
    #: Whether the note only says what the worker waits for; such a note ends when the worker is started.
    waits: bool
    event: Event | None = None

    @property
    def fact(self) -> Event:
        """The event; a note of an earlier release is an event of kind "text"."""
        return self.event or Event("text", time=self.time, worker=self.worker, error=self.text)


class SetOptions(Struct, frozen=True, omit_defaults=True):
    """What operators have set: by `-o`, for a topology and for its components, and numbers of tasks by `rebalance`."""

    topology: Mapping[str, Any] = {}
    components: Mapping[str, Mapping[str, Any]] = {}
    parallelism: Mapping[str, int] = {}


class TopologyRecord(Struct, frozen=True):
    """A topology, as Nimbus sees it; its name is free again when the record is removed."""

    #: The id of this submission, never reused: "name-<n>-<time>".
    id: str
    name: str
    state: TopologyState
    #: The state to which a REBALANCING topology returns.
    previous: str | None
    #: The merged configuration of the topology.
    conf: Mapping[str, object]
    #: The merged configuration of each component, by its id: it has every key of `conf`. (In the store: see `FORMAT`.)
    component_confs: Mapping[str, Mapping[str, object]]
    tasks: tuple[TaskRow, ...]
    #: Version of the latest assignment of this topology, 0 before the first.
    version: int
    #: While KILLED or REBALANCING: the time at which the wait for the drain ends, on the leader's clock.
    deadline: Finite | None
    #: Why the topology FAILED.
    error: str | None
    submitted: Finite
    #: The highest task id so far: an id is never used for a second task. 0: the highest of `tasks`.
    highest_task: int = 0
    #: While REBALANCING: the new number of tasks of each component whose number changes.
    parallelism: Mapping[str, int] = {}
    #: Spout tasks that have finished and have no open tree: they are not opened again.
    finished: tuple[int, ...] = ()
    #: Component whose number of tasks was changed -> the version of the latest assignment before the change. If a task of such
    #: a component had finished before the change, it may nevertheless have input to read now.
    renumbered: Mapping[str, int] = {}
    #: The latest events of the topology and its workers (such as deaths), the latest last.
    notes: tuple[Note, ...] = ()
    #: While there is a deadline: the number of seconds for which it was set. A Nimbus that takes over waits for the whole time
    #: again, since the clocks of two hosts need not agree.
    wait: Finite | None = None
    #: The submitter's key: a request with the same key is the same submission, sent again.
    submission: str = ""
    #: The files that were shipped besides the pickles: "code", "wheels", "requirements" -> sha256 of a file that the Nimbuses
    #: hold.
    files: Mapping[str, str] = {}
    #: The minor version of Python with which the topology was packed, such as "3.11"; "" if the submission names no version.
    python: str = ""
    #: While this version is on trial: the id of the submission that it has replaced.
    replaces: str | None = None
    #: The time at which the topology entered its state, in seconds since 1970.
    since: Finite = 0.0
    #: The deadline in seconds since 1970, for display on other hosts. No decision depends on it.
    until: Finite | None = None
    #: What operators have set, for the next version; None: nothing, or the topology is of a release that does not record it.
    set_options: SetOptions | None = None
    #: Who submitted it, and from where: "operator at ADDRESS"; "": unknown.
    by: str = ""
    #: If a rollback made it: the id of the version that it repeats.
    repeats: str = ""
    #: The key of the request by which an operator ended the trial of this version, or of the version after it.
    ended_by: str = ""
    #: How often it got its name back, because the version after it was rolled back.
    returns: int = 0
    #: The epoch with which it begins (`squall.packages.state_paths`); "": with the last commit.
    state_start: str = ""
    #: An epoch that this version, or one whose state it goes on from, has committed: the first of which Nimbus has heard; 0:
    #: none. A worker that finds no log then is at a wrong place.
    committed: int = 0


class Placement(Struct, frozen=True):
    """A worker: the slot it runs in and the tasks it runs."""

    worker: str
    supervisor: str
    slot: int
    #: (version of the assignment that placed the worker, restart number). The restart number is 0 in the store: only the
    #: worker's supervisor counts restarts.
    incarnation: Incarnation
    tasks: tuple[int, ...]


class Assignment(Struct, frozen=True):
    """Where the tasks of a topology run. All topologies of a cluster share one sequence of versions; no version is used
    twice."""

    topology_id: str
    version: int
    placements: tuple[Placement, ...]


class SupervisorRecord(Struct, frozen=True):
    """A registered supervisor, with slots 0 ... slots-1."""

    id: str
    host: str
    slots: int
    #: Whether the supervisor sends heartbeats to Nimbus; if so, it is considered lost when its heartbeats stop.
    beats: bool = False
    #: The URL at which the supervisor answers Nimbus over HTTP (logs); "": none.
    url: str = ""
    #: The supervisor's public key, with which Nimbus seals topologies' keys and recognises the supervisor's requests (see
    #: `squall.security.sealing`).
    public_key: str = ""
    #: "squall", "python", "cloudpickle" -> the version that the supervisor runs.
    versions: Mapping[str, str] = {}
    #: "cpus", "memory_bytes" of the supervisor's host, as far as they are known.
    resources: Mapping[str, int | float] = {}
    #: Why the host cannot start workers at the moment; "": it can. Records of an earlier release lack this field.
    cannot_start: str = ""
    #: How many connections its HTTP server has closed since it started because there were too many, by reason (the names of
    #: `squall.http.admission`). Records of an earlier release lack this field.
    connections_closed: Mapping[str, int] = {}
    #: The folder on its host in which topologies keep their state if they name no place; "": none. Records of an
    #: earlier release lack this field.
    state_folder: str = ""
    #: The latest format of records that it reads. Records of an earlier release lack this field, and it reads `REPEATING`.
    reads: int = 0


class NimbusRecord(Struct, frozen=True):
    """A running Nimbus, leading or not."""

    id: str
    url: str
    host: str
    public_key: str = ""
    versions: Mapping[str, str] = {}
    started: Finite = 0.0
    #: As in `SupervisorRecord`.
    reads: int = 0


class VersionRecord(Struct, frozen=True):
    """A version that had the name of its topology before another version: all that its submission needs to be repeated, except
    bundle and files. `id` is that of its submission."""

    id: str
    name: str
    how: HowReplaced
    error: str | None
    #: Seconds since 1970.
    submitted: Finite
    ended: Finite
    conf: Mapping[str, object]
    component_confs: Mapping[str, Mapping[str, object]]
    #: As in `TopologyRecord`.
    files: Mapping[str, str]
    python: str
    set_options: SetOptions | None = None
    by: str = ""
    repeats: str = ""


class EndedVersion(Struct, frozen=True):
    """What is kept of a version that was killed, replaced or rolled back. `id` is that of its submission."""

    id: str
    name: str
    #: "killed", "replaced" or "rolled back".
    how: str
    error: str | None
    #: Seconds since 1970.
    submitted: Finite
    ended: Finite
    #: Its last workers: their supervisors keep the logs.
    placements: tuple[Placement, ...]
    #: The JSON of `squall.cluster.counters.WorkerCounters`, with the sums of the components and the latest errors.
    counters: str


class WorkerReport(Struct, frozen=True):
    """The last report of a worker. Its flags apply to all its tasks."""

    worker: str
    incarnation: Incarnation
    #: Every task was opened or prepared.
    opened: bool
    #: Every task has ended: spouts have finished, no tree is open, and every bolt has had its `end_of_input`.
    ended: bool
    #: The worker was asked to drain (state KILLED or REBALANCING), and has nothing pending. False in other states.
    drained: bool
    #: The worker has ended, after `close` and `cleanup`, and reports no more.
    stopped: bool
    #: The error that ends the topology.
    crash: str | None
    #: The endpoints at which other workers reach this worker: for data and for control frames.
    address: Address | None = None
    #: The worker's spout tasks that have finished and have no open tree.
    finished: tuple[int, ...] = ()
    #: The version of the assignment to which the flags apply. 0: the current version, whichever it is.
    version: int = 0
    #: The sentence of `event`, for daemons of a release without events.
    note: str | None = None
    #: The worker's host is still preparing the files that the worker needs (such as an environment); no process was started
    #: yet.
    waits: bool = False
    #: The last event of the worker; None also from a supervisor of a release without events.
    event: Event | None = None

    @property
    def fact(self) -> Event | None:
        """The last event that the worker's host reported; the note of an earlier release is an event of kind "text"."""
        if self.event is not None or self.note is None:
            return self.event
        return Event("text", worker=self.worker, error=self.note)


class HeldLetters(Struct, frozen=True):
    """The dead letters on a supervisor's host, counted a moment ago. The supervisor writes this record, which outlives it."""

    supervisor: str
    host: str
    #: The name of a topology, which may be gone -> how many of its dead letters are there.
    topologies: Mapping[str, int]
    #: When the last of these letters expires, in seconds since 1970; None: one of them is kept without end.
    until: Finite | None = None
    #: The version (id) that is to send them, since they were pending at a rollback -> how many of these letters are there.
    heirs: Mapping[str, int] = {}


Record = (
    TopologyRecord
    | Assignment
    | SupervisorRecord
    | NimbusRecord
    | VersionRecord
    | EndedVersion
    | WorkerReport
    | HeldLetters
)
R = TypeVar("R", bound=Record)
#: Records that hold settings of components.
_WITH_COMPONENTS: Final = (TopologyRecord, VersionRecord)


def encode(record: Record, format: int = FORMAT) -> bytes:
    """Return the bytes of a record. Raises `BadRecord`, which names the field, if `decode` would not return an equal record
    from these bytes: a field of the wrong type, or a configuration value that JSON cannot hold or would change. `format`: the
    latest format that all readers know.

    To be certain, the bytes are decoded again. This doubles the cost, which is small compared with a write to a store: a
    report then takes 7 µs, the record of a topology with 10 tasks 40 µs, with 1,000 tasks 0.5 ms.
    """
    kind = type(record)
    try:
        values = {"kind": kind.__name__, "format": REPEATING, **_json_values(record)}
        if format > REPEATING and isinstance(record, _WITH_COMPONENTS):
            values["format"] = FORMAT
            with suppress(
                AttributeError, TypeError
            ):  # of values that are no settings: `_decoded` names the field
                values["component_confs"] = differences(record.conf, record.component_confs)
        data = _EXACT_JSON.encode(values).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise _not_json(record, error) from error
    read = _decoded(kind, data)
    if read != record:
        changed = (name for name in kind.__struct_fields__ if getattr(read, name) != getattr(record, name))
        name = next(changed, "")
        value, back = getattr(record, name, record), getattr(read, name, read)
        raise BadRecord(
            f"{kind.__name__}.{name} cannot be {shown(value)}: it would be read back as {shown(back)}"
        )
    return data


def _not_json(record: Record, error: Exception) -> BadRecord:
    """Return the error for a record that cannot be written as JSON."""
    kind = type(record).__name__
    for name in record.__struct_fields__:
        value = getattr(record, name)
        try:
            _EXACT_JSON.encode(value)
        except (TypeError, ValueError, RecursionError) as cause:
            return BadRecord(
                f"{kind}.{name} cannot be {shown(value)}: {cause}; only JSON values can be stored"
            )
    return BadRecord(f"{kind} cannot be stored: {error}; only JSON values can")


def decode(kind: type[R], data: bytes) -> R:
    """Return the record of type `kind` in these bytes, or raise `BadRecord`."""
    if len(data) > MOST_BYTES:  # no change could be written, so such a topology could not even be killed
        raise BadRecord(
            f"these {len(data):,} bytes are too many for a {kind.__name__}: a store takes {MOST_BYTES:,}"
        )
    return _decoded(kind, data)


def _decoded(kind: type[R], data: bytes) -> R:
    name = kind.__name__
    try:
        body = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise BadRecord(f"these bytes hold no {name}: {error}") from error
    if not isinstance(body, dict) or body.get("kind") != name:
        found = body.get("kind") if isinstance(body, dict) else type(body).__name__
        raise BadRecord(f"these bytes hold no {name} but {found!r}")
    formats = (REPEATING, FORMAT) if kind in _WITH_COMPONENTS else (REPEATING,)
    if body.get("format") not in formats:
        raise BadRecord(
            f"a {name} of format {body.get('format')!r}: this Squall reads format {' and '.join(map(str, formats))}; "
            "all daemons of a cluster should be of one release"
        )
    try:
        record = read_exactly(kind, body, optional=_LATER)
    except WrongValue as error:
        raise BadRecord(str(error)) from error
    if isinstance(record, _WITH_COMPONENTS):
        for key, least in _RECKONED_WITH.items():
            value = record.conf.get(key)
            if type(value) not in (int, float) or not least <= cast(float, value) < math.inf:
                raise BadRecord(f"{name}.conf[{key!r}] cannot be {value!r:.80}")
        record = replace(record, component_confs=merged(record.conf, record.component_confs))
    return record


def _json_values(value: object) -> dict[str, object]:
    if isinstance(value, Event):
        return cast("dict[str, object]", msgspec.to_builtins(value))
    if isinstance(value, Struct):
        values = asdict(value)
        for name in _LATER:
            if name in values and not values[name]:
                del values[name]
        return values
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"a {type(value).__name__} ({value!r}) is not a JSON value")


#: Writes structs as JSON objects, compactly.
JSON = json.JSONEncoder(default=_json_values, separators=(",", ":"))
#: The same for records, which hold neither NaN nor infinity.
_EXACT_JSON = json.JSONEncoder(default=_json_values, separators=(",", ":"), allow_nan=False)


build_type_info(
    TopologyRecord, Assignment, SupervisorRecord, NimbusRecord, VersionRecord, EndedVersion, WorkerReport
)
