"""`squall/cluster/records.py` as commit 6407a8e had it, word for word but for this text and its first lines.

It is run beside the current code, which must read and refuse the same (`test_old_and_current_readers.py`). It goes when the
refactoring is done: then the tables in `data/` say it alone. Must not know: the product.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Final, TypeVar, cast

from tests.frozen.old_errors import SquallError

#: What a store takes.
MOST_BYTES: Final = 1_000_000

FORMAT = 5
"""Raised when a field is added, dropped or changes its meaning."""


#: The states of topologies, as in `nimbus.lifecycle`.
STATES = frozenset({"ACTIVE", "INACTIVE", "REBALANCING", "REPLACING", "COMPLETED", "FAILED", "KILLED"})
#: Options of a topology that daemons reckon with, and what is the least.
_RECKONED_WITH: Mapping[str, int] = {
    "topology.message.timeout.secs": 0,
    "topology.worker.timeout.secs": 0,
    "topology.workers": 1,
}


class BadRecord(SquallError):
    """Bytes that are not the record that was looked for."""


@dataclass(frozen=True)
class Note:
    """Something that was said about a topology."""

    text: str
    time: float
    """When, by the calendar."""
    worker: str = ""
    """Of which of its workers; "": of the topology itself."""
    waits: bool = False
    """It says what that worker waits for, and nothing else: it is over when the worker is started."""


@dataclass(frozen=True)
class TopologyRecord:
    """A topology as Nimbus knows it; its name is free again when the record is gone."""

    id: str
    """One submission, never given twice: "name-<n>-<time>"."""
    name: str
    state: str
    previous: str | None
    """The state that a REBALANCING topology goes back to."""
    conf: Mapping[str, object]
    """The merged configuration of the topology."""
    component_confs: Mapping[str, Mapping[str, object]]
    """The merged configuration of each component, by its id."""
    tasks: tuple[tuple[int, str, int], ...]
    """(task, component, index) of every task."""
    version: int
    """Version of the latest assignment that was made for it, 0 before the first."""
    deadline: float | None
    """While KILLED or REBALANCING: when waiting for the drain ends, whatever is left; by the clock of who leads."""
    error: str | None
    """Why it FAILED."""
    submitted: float
    highest_task: int = 0
    """The highest task id that was ever given in it: an id is never given to a second task. 0: the highest of `tasks`."""
    parallelism: Mapping[str, int] = field(default_factory=dict)
    """While REBALANCING: the number of tasks that components are to have after it, where it changes."""
    finished: tuple[int, ...] = ()
    """Spout tasks that have finished, every tree of theirs settled: they are not opened again."""
    renumbered: Mapping[str, int] = field(default_factory=dict)
    """Components whose number of tasks was changed: the version of the latest assignment before. That a task of theirs had
    finished by then says nothing of what it has to read now."""
    notes: tuple[Note, ...] = ()
    """What was last said about it and its workers (one that died, and of what), the latest at the end."""
    wait: float | None = None
    """While there is a deadline: the seconds that it was set for. A Nimbus that takes over waits for them anew, since the
    clocks of two hosts need not agree."""
    submission: str = ""
    """The submitter's own key: what comes again with it is the same submission."""
    files: Mapping[str, str] = field(default_factory=dict)
    """What was shipped besides the pickles: "code", "wheels", "requirements" -> sha256 of a file that the Nimbuses hold."""
    python: str = ""
    """Python's minor version that it was packed with, "3.11"; "" in one process."""
    replaces: str | None = None
    """While it is to prove that it runs: the id of the submission that it has replaced."""
    since: float = 0.0
    """When it came into its state, by the calendar."""
    until: float | None = None
    """The deadline by the calendar: for those who have another clock than the one that leads. Nothing is decided by it."""


@dataclass(frozen=True)
class Placement:
    """A worker: the slot it runs in and the tasks it runs."""

    worker: str
    supervisor: str
    slot: int
    incarnation: tuple[int, int]
    """(version of the assignment that placed the worker, restart number by its supervisor: 0 here)."""
    tasks: tuple[int, ...]


@dataclass(frozen=True)
class Assignment:
    """Where the tasks of a topology run. Versions rise over the whole cluster and are never given twice."""

    topology_id: str
    version: int
    placements: tuple[Placement, ...]


@dataclass(frozen=True)
class SupervisorRecord:
    """A supervisor that is there, with slots 0 ... slots-1."""

    id: str
    host: str
    slots: int
    beats: bool = False
    """Whether it gives Nimbus signs of life; one that does is taken for gone when they stop."""
    url: str = ""
    """Where it answers Nimbus over HTTP (logs); "": nowhere."""
    public_key: str = ""
    """What topologies' keys are sealed with for it, and what its requests are known by (see `squall.sealing`)."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """"squall", "python", "cloudpickle" -> its version of it."""
    resources: Mapping[str, float] = field(default_factory=dict)
    """"cpus", "memory_bytes" of its host, as far as they are known."""


@dataclass(frozen=True)
class NimbusRecord:
    """A Nimbus that is there, leading or not."""

    id: str
    url: str
    host: str
    public_key: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    started: float = 0.0


@dataclass(frozen=True)
class WorkerReport:
    """What a worker last said of itself. The flags speak for all its tasks."""

    worker: str
    incarnation: tuple[int, int]
    opened: bool
    """Every task was opened or prepared."""
    ended: bool
    """Every task has ended: spouts finished, trees worked off, bolts through their `end_of_input`."""
    drained: bool
    """Told to drain (state KILLED or REBALANCING), it has nothing pending any more. False in other states."""
    stopped: bool
    """It is gone, after `close` and `cleanup`, and will say no more."""
    crash: str | None
    """The error that ends the topology."""
    address: tuple[str, str] | None = None
    """Where other workers reach it: the endpoints for data and for control frames."""
    finished: tuple[int, ...] = ()
    """Its spout tasks that have finished, every tree of theirs settled."""
    version: int = 0
    """The version of the assignment that the flags speak of. 0: the one that stands, whichever it is."""
    note: str | None = None
    """What its host has to say about it, in words: that it died, of what, what happens next."""
    waits: bool = False
    """Its host still prepares what it needs (an environment is being built); no process was started yet."""


Record = TopologyRecord | Assignment | SupervisorRecord | NimbusRecord | WorkerReport
R = TypeVar("R", bound=Record)
T = TypeVar("T")


def encode(record: Record) -> bytes:
    """The bytes of a record. A configuration value that JSON cannot hold raises `BadRecord`."""
    body: dict[str, object] = {"kind": type(record).__name__, "format": FORMAT}
    body.update(vars(record))
    try:
        return _ENCODER.encode(body).encode()
    except (TypeError, ValueError) as error:
        raise BadRecord(f"{type(record).__name__} cannot be stored: {error}; only JSON values can") from error


def decode(kind: type[R], data: bytes) -> R:
    """The record of that kind that the bytes hold, or `BadRecord`."""
    if (
        len(data) > MOST_BYTES
    ):  # no change of it could be written: whose record it is could not even be killed
        raise BadRecord(
            f"these {len(data):,} bytes are too many for a {kind.__name__}: a store takes {MOST_BYTES:,}"
        )
    try:
        body = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise BadRecord(f"these bytes hold no {kind.__name__}: {error}") from error
    if not isinstance(body, dict) or body.get("kind") != kind.__name__:
        found = body.get("kind") if isinstance(body, dict) else type(body).__name__
        raise BadRecord(f"these bytes hold no {kind.__name__} but {found!r}")
    if body.get("format") != FORMAT:
        raise BadRecord(
            f"a {kind.__name__} of format {body.get('format')!r}: this Squall reads format {FORMAT}; "
            "all daemons of a cluster should be of one release"
        )
    return _read(kind, _Body(kind.__name__, body))


def _plain(value: object) -> object:
    if isinstance(value, (Placement, Note)):
        return vars(value)
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"a {type(value).__name__} ({value!r}) is no JSON value")


_ENCODER = json.JSONEncoder(default=_plain, separators=(",", ":"))


class _Body:
    """A decoded JSON object that hands out its fields by type, or says which one is wrong."""

    def __init__(self, kind: str, values: object) -> None:
        if not isinstance(values, dict):
            raise BadRecord(f"{kind}: an object was expected, found {values!r:.80}")
        self._kind = kind
        self._values = values

    def _get(self, name: str, *types: type) -> object:
        if name not in self._values:
            raise BadRecord(f"{self._kind} without its field {name!r}")
        value = self._values[name]
        if type(value) not in types:
            raise BadRecord(f"{self._kind}.{name} cannot be {value!r:.80}")
        return value

    def text(self, name: str) -> str:
        return cast(str, self._get(name, str))

    def text_or_none(self, name: str) -> str | None:
        return cast("str | None", self._get(name, str, type(None)))

    def integer(self, name: str) -> int:
        return cast(int, self._get(name, int))

    def number(self, name: str) -> float:
        value = cast(float, self._get(name, int, float))
        if not math.isfinite(value):
            raise BadRecord(f"{self._kind}.{name} cannot be {value!r}")
        return value

    def number_or_none(self, name: str) -> float | None:
        return None if self._get(name, int, float, type(None)) is None else self.number(name)

    def state(self, name: str) -> str:
        value = self.text(name)
        if value not in STATES:
            raise BadRecord(f"{self._kind}.{name} cannot be {value!r:.80}")
        return value

    def conf(self, name: str) -> dict[str, object]:
        values = self.mapping(name)
        for key, least in _RECKONED_WITH.items():
            value = values.get(key)
            if type(value) not in (int, float) or not least <= cast(float, value) < math.inf:
                raise BadRecord(f"{self._kind}.{name}[{key!r}] cannot be {value!r:.80}")
        return values

    def flag(self, name: str) -> bool:
        return cast(bool, self._get(name, bool))

    def mapping(self, name: str) -> dict[str, object]:
        return cast("dict[str, object]", self._get(name, dict))

    def confs(self, name: str) -> dict[str, dict[str, object]]:
        values = self.mapping(name)
        for key, conf in values.items():
            if not isinstance(conf, dict):
                raise BadRecord(f"{self._kind}.{name}[{key!r}] cannot be {conf!r:.80}")
        return cast("dict[str, dict[str, object]]", values)

    def rows(self, name: str) -> list[object]:
        return cast("list[object]", self._get(name, list))

    def integers(self, name: str) -> tuple[int, ...]:
        values = self.rows(name)
        self._check_all(name, values, values, "integers", int)
        return cast("tuple[int, ...]", tuple(values))

    def texts(self, name: str) -> tuple[str, ...]:
        values = self.rows(name)
        self._check_all(name, values, values, "texts", str)
        return cast("tuple[str, ...]", tuple(values))

    def integer_mapping(self, name: str) -> dict[str, int]:
        values = self.mapping(name)
        self._check_all(name, values, values.values(), "integers", int)
        return cast("dict[str, int]", values)

    def text_mapping(self, name: str) -> dict[str, str]:
        values = self.mapping(name)
        self._check_all(name, values, values.values(), "texts", str)
        return cast("dict[str, str]", values)

    def number_mapping(self, name: str) -> dict[str, float]:
        values = self.mapping(name)
        self._check_all(name, values, values.values(), "numbers", int, float)
        return cast("dict[str, float]", values)

    def _check_all(self, name: str, found: object, values: Iterable[object], what: str, *types: type) -> None:
        if not all(type(value) in types for value in values):
            raise BadRecord(f"{self._kind}.{name} holds {what} only, not {found!r:.80}")

    def address_or_none(self, name: str) -> tuple[str, str] | None:
        if self._get(name, list, type(None)) is None:
            return None
        values = self.texts(name)
        if len(values) != 2:
            raise BadRecord(f"{self._kind}.{name} is a pair, not {values!r:.80}")
        return values[0], values[1]

    def incarnation(self, name: str) -> tuple[int, int]:
        values = self.integers(name)
        if len(values) != 2:
            raise BadRecord(f"{self._kind}.{name} is a pair, not {values!r:.80}")
        return values[0], values[1]

    def tasks(self, name: str) -> tuple[tuple[int, str, int], ...]:
        rows = self.rows(name)
        for row in rows:
            if not isinstance(row, list) or [type(value) for value in row] != [int, str, int]:
                raise BadRecord(f"{self._kind}.{name} holds [task, component, index], not {row!r:.80}")
        return tuple((row[0], row[1], row[2]) for row in cast("list[list[object]]", rows))  # type: ignore[misc]

    def placements(self, name: str) -> tuple[Placement, ...]:
        return tuple(_read(Placement, _Body("Placement", row)) for row in self.rows(name))

    def notes(self, name: str) -> tuple[Note, ...]:
        return tuple(_read(Note, _Body("Note", row)) for row in self.rows(name))


_Reader = Callable[[_Body, str], object]
_BY_TYPE: Final[Mapping[str, _Reader]] = {
    "str": _Body.text,
    "str | None": _Body.text_or_none,
    "int": _Body.integer,
    "float": _Body.number,
    "float | None": _Body.number_or_none,
    "bool": _Body.flag,
    "tuple[int, ...]": _Body.integers,
    "tuple[str, ...]": _Body.texts,
    "tuple[int, int]": _Body.incarnation,
    "tuple[str, str] | None": _Body.address_or_none,
    "tuple[tuple[int, str, int], ...]": _Body.tasks,
    "tuple[Placement, ...]": _Body.placements,
    "tuple[Note, ...]": _Body.notes,
    "Mapping[str, int]": _Body.integer_mapping,
    "Mapping[str, str]": _Body.text_mapping,
    "Mapping[str, float]": _Body.number_mapping,
    "Mapping[str, object]": _Body.conf,
    "Mapping[str, Mapping[str, object]]": _Body.confs,
}
"""How a field is read, by its annotation."""
_BY_NAME: Final[Mapping[str, _Reader]] = {"state": _Body.state}
"""Fields of which not every value of their type makes sense."""
_READERS: Final[Mapping[type, tuple[tuple[str, _Reader], ...]]] = {
    kind: tuple(
        (each.name, _BY_NAME.get(each.name) or _BY_TYPE[cast(str, each.type)]) for each in fields(kind)
    )
    for kind in (TopologyRecord, Note, Placement, Assignment, SupervisorRecord, NimbusRecord, WorkerReport)
}


def _read(kind: type[T], body: _Body) -> T:
    return kind(**{name: read(body, name) for name, read in _READERS[kind]})
