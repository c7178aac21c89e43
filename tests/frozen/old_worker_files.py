"""`squall/worker_files.py` as commit 6407a8e had it, word for word but for this text and its imports.

It is run beside the current code, which must read and refuse the same (`test_old_and_current_readers.py`). It goes when the
refactoring is done: then the tables in `data/` say it alone. Must not know: the product.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from threading import get_ident
from types import MappingProxyType
from typing import Any, Final

from tests.frozen.old_errors import SquallError
from tests.frozen.old_records import Placement

FORMAT: Final = 1
ORDERS: Final = "orders.json"
KEYS: Final = "keys.json"
LEASE: Final = "lease.json"
PULSE: Final = "pulse.json"
COUNTERS: Final = "counters.json"
END: Final = "end.json"
LOG: Final = "worker.log"
OUTPUT: Final = "output.log"
SCRATCH: Final = "scratch"
WORK: Final = "work"

Incarnation = tuple[int, int]
#: Where a worker hears data and control frames: two ZeroMQ endpoints.
Address = tuple[str, str]

# Exit statuses that a worker ends with by itself; end.json says the same in words. Anything else was not ours.
EXIT_STOPPED: Final = 0
EXIT_DRAINED: Final = 0
EXIT_INTERNAL: Final = 70
EXIT_LEASE: Final = 71
EXIT_HUNG: Final = 72
EXIT_SUPERSEDED: Final = 73
EXIT_BAD_ORDERS: Final = 74
EXIT_MEMORY: Final = 75
EXIT_FILES: Final = 76
EXIT_UNOPENED: Final = 77


#: What must go on while the disk is full; and how that is told.
_SIGNS: Final = (LEASE, PULSE)
_FULL: Final = (errno.ENOSPC, errno.EDQUOT)

#: What a worker is asked in each state of its topology.
WHAT_A_STATE_ASKS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "ACTIVE": "run",
        "INACTIVE": "pause",
        "REBALANCING": "drain",
        "REPLACING": "drain",
        "KILLED": "drain",
        "COMPLETED": "stop",
        "FAILED": "stop",
    }
)


class BadFile(SquallError):
    """A file of a worker's directory that is no such record."""


@dataclass(frozen=True)
class Orders:
    """What a worker is, and what it is to do."""

    #: Rises with each change; the pulse says which orders were taken.
    number: int
    topology_id: str
    topology: str
    worker: str
    incarnation: Incarnation
    supervisor: str
    #: "run", "pause", "drain" or "stop".
    asked: str
    #: The version of the assignment, and all workers of the topology by it. The second number of an incarnation is that of
    #: the process that runs now, as far as this supervisor has heard.
    version: int
    placements: tuple[Placement, ...]
    #: Where the other workers hear frames, as far as is known: worker -> (data, control).
    addresses: Mapping[str, Address]
    #: (task, component, index) of every task of the topology.
    tasks: tuple[tuple[int, str, int], ...]
    #: Spout tasks that had finished, and are not opened again.
    finished: tuple[int, ...]
    conf: Mapping[str, Any]
    component_confs: Mapping[str, Mapping[str, Any]]
    #: The folder with the topology's description and pickles (see `squall.cluster.blobs`).
    bundle: str
    #: The host that the worker binds its sockets to, and the one that others reach it by.
    bind: str = "127.0.0.1"
    host: str = "127.0.0.1"
    #: Ports that an earlier process of this worker had, to be had again if they are free.
    ports: tuple[int, int] = (0, 0)
    #: Seconds without a new lease after which the worker ends by itself.
    lease_secs: float = 20.0
    seed: int = 0


@dataclass(frozen=True)
class Pulse:
    """A sign of life of a worker, and what it says of itself."""

    pid: int
    #: When the process began, in the kernel's clock ticks since boot (field 22 of /proc/<pid>/stat): with the pid it names one
    #: process.
    started: int
    incarnation: Incarnation
    #: Rises with each pulse.
    number: int
    #: The orders that were taken last, and what they asked: the flags answer to these.
    orders: int
    asked: str
    #: The version of the assignment that it runs.
    version: int
    opened: bool = False
    ended: bool = False
    drained: bool = False
    stopped: bool = False
    crash: str | None = None
    #: Spout tasks that have finished, every tree of theirs settled.
    finished: tuple[int, ...] = ()
    address: Address | None = None
    #: The number of the counters that were true when the flags were.
    counters: int = 0
    #: The user's call that is running: component, task, seconds since it began. None: none.
    executing: tuple[str, int, float] | None = None


@dataclass(frozen=True)
class End:
    """Why a worker ended by itself."""

    pid: int
    incarnation: Incarnation
    status: int
    reason: str


@dataclass(frozen=True)
class Keys:
    """The CURVE key pair of a topology, Z85 text; all its workers share it."""

    public: str
    secret: str = field(repr=False)


#: Stands in the environment of a worker whose ports are not any: the first and the last, 6700-6799. Not in its orders: a worker
#: of the release before, which an upgraded supervisor took over, reads those too.
PORTS: Final = "WORKER_PORTS_OF_SQUALL"


def write(directory: Path | str, name: str, value: Any, mode: int = 0o644) -> None:
    """Put a record (a dataclass or JSON values) into a directory under a name, all at once."""
    body = value if isinstance(value, dict) else vars(value)
    data = _ENCODER.encode({"format": FORMAT, **body}).encode()
    write_bytes(directory, name, data, mode)


def write_bytes(directory: Path | str, name: str, data: bytes, mode: int = 0o644) -> None:
    """Put bytes into a directory under a name, all at once."""
    target = os.path.join(directory, name)
    beside = f"{target}.{os.getpid()}.{get_ident()}.new"  # no other writer has the same
    try:
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
        with open(descriptor, "wb", buffering=0) as file:
            left = memoryview(data)
            while left:
                left = left[file.write(left) :]
        os.rename(beside, target)
    except BaseException as error:
        if os.path.exists(beside):
            os.unlink(beside)
        if isinstance(error, OSError) and error.errno in _FULL and name in _SIGNS and os.path.exists(target):
            _write_over(target, data)
            return
        raise


def _write_over(target: str, data: bytes) -> None:
    """Write over a file that is there, without needing room for another one; spaces after JSON mean nothing."""
    descriptor = os.open(target, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        os.pwrite(descriptor, data.ljust(os.fstat(descriptor).st_size), 0)
    finally:
        os.close(descriptor)


def read(directory: Path | str, name: str) -> dict[str, Any] | None:
    """The JSON values of a file, None when there is none; `BadFile` when it is no such file."""
    path = os.path.join(directory, name)
    try:
        with open(path, "rb", buffering=0) as file:
            body = json.loads(file.read())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise BadFile(f"{path} cannot be read: {error}") from error
    if not isinstance(body, dict) or body.pop("format", None) != FORMAT:
        raise BadFile(f"{path} is no file of format {FORMAT}")
    return body


def read_orders(directory: Path | str) -> Orders | None:
    """The orders in a worker's directory."""
    body = read(directory, ORDERS)
    if body is None:
        return None
    try:
        placements = tuple(
            Placement(
                row["worker"],
                row["supervisor"],
                row["slot"],
                _pair(row["incarnation"]),
                tuple(row["tasks"]),
            )
            for row in body.pop("placements")
        )
        addresses = {worker: _pair(address) for worker, address in body.pop("addresses").items()}
        tasks = tuple((task, component, index) for task, component, index in body.pop("tasks"))
        pairs = {name: _pair(body.pop(name)) for name in ("incarnation", "ports")}
        finished = tuple(body.pop("finished"))
        return Orders(
            placements=placements, addresses=addresses, tasks=tasks, finished=finished, **pairs, **body
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BadFile(f"{directory}/{ORDERS} holds no orders: {error!r}") from error


def read_pulse(directory: Path | str) -> Pulse | None:
    """The last pulse of a worker."""
    body = read(directory, PULSE)
    if body is None:
        return None
    try:
        body["incarnation"] = _pair(body["incarnation"])
        body["finished"] = tuple(body["finished"])
        body["address"] = None if body["address"] is None else _pair(body["address"])
        body["executing"] = None if body["executing"] is None else tuple(body["executing"])
        return Pulse(**body)
    except (KeyError, TypeError, ValueError) as error:
        raise BadFile(f"{directory}/{PULSE} holds no pulse: {error!r}") from error


def read_end(directory: Path | str) -> End | None:
    """Why a worker says that it ended."""
    body = read(directory, END)
    if body is None:
        return None
    try:
        body["incarnation"] = _pair(body["incarnation"])
        return End(**body)
    except (KeyError, TypeError, ValueError) as error:
        raise BadFile(f"{directory}/{END} does not say why a worker ended: {error!r}") from error


def read_keys(directory: Path | str) -> Keys | None:
    """The topology's keys, None when its links are not secured (inside one process)."""
    body = read(directory, KEYS)
    if body is None:
        return None
    try:
        return Keys(**body)
    except TypeError as error:
        raise BadFile(f"{directory}/{KEYS} holds no key pair") from error


def _pair(values: Any) -> Any:
    first, second = values
    return first, second


def _plain(value: object) -> object:
    if isinstance(value, Placement):
        return vars(value)
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is no JSON value")


_ENCODER: Final = json.JSONEncoder(default=_plain, separators=(",", ":"))
