"""The directory through which a supervisor and a worker process communicate: its files and their formats.

```
<worker directory>/
  orders.json     supervisor -> worker: the worker's identity and orders. Each change is announced by SIGUSR1
  keys.json       supervisor -> worker: the topology's key pair, mode 0600
  lease.json      supervisor -> worker: a number that rises while the supervisor lives
  pulse.json      worker -> supervisor: the heartbeat, with the worker's state and the call that the worker is executing
  counters.json   worker -> supervisor: cumulative counters; a heartbeat names the matching counters by their number
  end.json        worker -> supervisor: why the worker ended, if it ended by itself
  question.json   supervisor -> worker: asks where the worker's threads are; a number that rises
  stacks.json     worker -> supervisor: the answer, with the number of the question
  state_question.json  supervisor -> worker: asks what the tasks of a component have for a key, mode 0600
  state.json      worker -> supervisor: the answer, mode 0600, with the number of the question
  calls.bin       worker -> supervisor: which calls are running (see `squall.running_calls`), once a process has died in one
  death.json      supervisor -> worker: the calls in which the previous process died, if they ended it
  suspects.json   supervisor -> worker: the tuples in whose calls processes of the topology died here (see `squall.suspects`)
  worker.log      the worker's log, rotated
  output.log      output to the process's own stdout and stderr: from C code, a dying interpreter, child processes
  scratch/        the tasks' own directories (`Context.directory`)
  work/           the process's working directory, new for each process, for user code; only if the supervisor makes one
```

Each file is written under a temporary name and renamed, so that a reader always sees it complete. User code runs in the worker
and may replace any of these files by anything. So all of them are read by `squall.guarded_files`, up to a size for each kind,
and every fault of a file is a `BadFile`; an `OSError` means that the reader itself can open no file at the moment. The worker
and the supervisor may outlive each other: a new supervisor finds the running worker by its heartbeat. On a full disk, a new
lease or heartbeat overwrites the previous file, which needs no space, so running workers continue. If the directory cannot be
written for another reason, what they exchange is kept in memory (`squall.spare_files`), and running workers continue too.
Must not know: processes, what the values cause.
"""

from __future__ import annotations

import errno
import json
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from msgspec import Struct, convert
from msgspec.structs import asdict

from squall import atomic_files, guarded_files, spare_files
from squall.cluster.records import JSON, Placement
from squall.exact_structs import S, build_type_info, read_exactly
from squall.guarded_files import DamagedFile, read_guarded
from squall.packages.state_paths import StateStart
from squall.reports.live_state import StateQuestion, WorkerState
from squall.reports.stacks import WorkerStacks
from squall.running_calls import CallAtDeath
from squall.values import Address, Incarnation, Keys, TaskRow
from topology_api.errors import SquallError

FORMAT: Final = 1
ORDERS: Final = "orders.json"
KEYS: Final = "keys.json"
LEASE: Final = "lease.json"
HEARTBEAT: Final = "pulse.json"
COUNTERS: Final = "counters.json"
END: Final = "end.json"
QUESTION: Final = "question.json"
STACKS: Final = "stacks.json"
STATE_QUESTION: Final = "state_question.json"
LIVE_STATE: Final = "state.json"
CALLS: Final = "calls.bin"
DEATH: Final = "death.json"
SUSPECTS: Final = "suspects.json"
LOG: Final = "worker.log"
OUTPUT: Final = "output.log"
SCRATCH: Final = "scratch"
WORK: Final = "work"

#: The signal at which a worker writes the stacks of its threads into its output.
SHOW_STACKS: Final = signal.SIGUSR2

# The exit statuses of a worker that ends by itself; end.json gives the reason in words. Squall's code sets no other status.
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
EXIT_LIMIT: Final = 78


#: The most bytes of each file. Orders hold the assignment and the configurations, which are records of the store (a megabyte
#: each); a heartbeat and an end become a report, which must fit into one record even when its text is escaped.
MOST_BYTES: Final[Mapping[str, int]] = {
    ORDERS: 64 * 1024 * 1024,
    KEYS: 64 * 1024,
    LEASE: 64 * 1024,
    HEARTBEAT: 128 * 1024,
    COUNTERS: 4 * 1024 * 1024,
    END: 64 * 1024,
    STACKS: 4 * 1024 * 1024,
    STATE_QUESTION: 1024 * 1024,
    LIVE_STATE: 16 * 1024 * 1024,
    SUSPECTS: 512 * 1024,
}
#: The most bytes of any other file.
_MOST_OTHER: Final = 64 * 1024
#: The most characters of the reason in `end.json`.
MOST_REASON: Final = 4000

#: The files that must be written even on a full disk.
_SIGNS: Final = (LEASE, HEARTBEAT)
#: The files that worker and supervisor exchange while the worker runs.
_EXCHANGED: Final = (ORDERS, LEASE, HEARTBEAT, COUNTERS, END)
#: The errors that mean a full disk.
_FULL: Final = (errno.ENOSPC, errno.EDQUOT)


#: The key of `Orders.conf` that says that the topology's version is on trial, and which version (id) returns if it fails. It is
#: no field of the orders, because a worker of the previous release, which an upgraded supervisor has taken over, refuses orders
#: with a field that it does not know.
ON_TRIAL: Final = "squall.on.trial"
#: In the orders to stop at a rollback: the version (id) that gets the pending trees of the worker's spouts.
HEIR: Final = "squall.heir"
#: In a worker's configuration: how often its version got its name back from one that was rolled back; absent: never.
RETURNS: Final = "squall.returns"
#: In a worker's configuration: the epoch with which its submission begins, as `StateStart` writes it; absent: the last commit.
STATE_START: Final = "squall.state.start"
#: In a worker's configuration: an epoch that is committed at `topology.state.path`; absent: none is known to be.
COMMITTED: Final = "squall.committed"
_ABOUT_VERSION: Final = frozenset((ON_TRIAL, HEIR, RETURNS, STATE_START, COMMITTED))


class BadFile(SquallError):
    """A file in a worker's directory that does not hold the expected record."""


class Orders(Struct, frozen=True, forbid_unknown_fields=True):
    """A worker's identity and orders."""

    #: Rises with each change; the heartbeat says which orders were accepted.
    number: int
    topology_id: str
    topology: str
    worker: str
    incarnation: Incarnation
    supervisor: str
    #: "run", "pause", "drain" or "stop".
    asked: str
    #: The version of the assignment.
    version: int
    #: The topology's workers in this version. The restart number in each worker's incarnation is that of the process that runs
    #: now, as far as this supervisor knows.
    placements: tuple[Placement, ...]
    #: The known addresses at which the other workers receive frames: worker -> (data, control).
    addresses: Mapping[str, Address]
    #: Every task of the topology.
    tasks: tuple[TaskRow, ...]
    #: Spout tasks that have finished, and are not opened again.
    finished: tuple[int, ...]
    conf: Mapping[str, Any]
    component_confs: Mapping[str, Mapping[str, Any]]
    #: The folder with the topology's description and pickles (see `squall.cluster.blobs`).
    bundle: str
    #: The host to which the worker binds its sockets.
    bind: str = "127.0.0.1"
    #: The host at which other workers reach these sockets.
    host: str = "127.0.0.1"
    #: The ports of an earlier process of this worker; the worker uses them again if they are free.
    ports: tuple[int, int] = (0, 0)
    #: Seconds without a new lease after which the worker ends by itself.
    lease_secs: int | float = 20.0
    seed: int = 0


def user_conf(orders: Orders) -> dict[str, Any]:
    """Return the configuration in a worker's orders, as users may see it."""
    return {name: value for name, value in orders.conf.items() if name not in _ABOUT_VERSION}


def state_start(orders: Orders) -> StateStart | None:
    """Return the epoch with which the submission of a worker begins; None: the last commit."""
    text = orders.conf.get(STATE_START)
    return StateStart.parse(text) if isinstance(text, str) else None


class WorkerHeartbeat(Struct, frozen=True, forbid_unknown_fields=True):
    """A heartbeat of a worker, with its state."""

    pid: int
    #: The time at which the process began, in the kernel's clock ticks since boot (field 22 of /proc/<pid>/stat). Together with
    #: the pid it identifies one process.
    started: int
    incarnation: Incarnation
    #: Rises with each heartbeat.
    number: int
    #: The number of the latest orders that the worker accepted. The flags below refer to these orders.
    orders: int
    #: The `asked` of these orders.
    asked: str
    #: The version of the assignment that the worker runs.
    version: int
    opened: bool = False
    ended: bool = False
    drained: bool = False
    stopped: bool = False
    crash: str | None = None
    #: Spout tasks that have finished and have no open tree.
    finished: tuple[int, ...] = ()
    address: Address | None = None
    #: The sequence number of the counters that match the flags.
    counters: int = 0
    #: The user's call that is running: component, task, seconds since it began. None: no call is running.
    executing: tuple[str, int, int | float] | None = None


class End(Struct, frozen=True, forbid_unknown_fields=True):
    """The reason why a worker ended by itself."""

    pid: int
    incarnation: Incarnation
    status: int
    reason: str


#: The environment variable that restricts a worker's ports: the first and the last port, such as 6700-6799. The ports are not
#: in the orders, because workers of the previous release, which an upgraded supervisor has taken over, read the orders too.
PORTS: Final = "WORKER_PORTS_OF_SQUALL"
#: The environment variable with the folder of the host's dead letters; for the same reason it is not in the orders.
LETTERS: Final = "WORKER_LETTERS_OF_SQUALL"


class Death(Struct, frozen=True, forbid_unknown_fields=True):
    """The end of a worker's process that its own calls caused."""

    #: Whether a call did not return; otherwise a call ended the process: by a signal, `os._exit` or a lack of memory.
    hung: bool
    #: How the process ended, as a sentence without its subject.
    reason: str
    #: The calls that were running, as far as they were marked.
    calls: tuple[CallAtDeath, ...] = ()
    #: Whether calls were marked, and none was running.
    between_calls: bool = False


def write(directory: Path | str, name: str, value: Any, mode: int = 0o644) -> None:
    """Write a value (a struct, a data class or a dict) to `directory`/`name` atomically."""
    if isinstance(value, Struct):
        body = asdict(value)
    else:
        body = value if isinstance(value, dict) else vars(value)
    write_bytes(directory, name, JSON.encode({"format": FORMAT, **body}).encode(), mode)


def write_bytes(directory: Path | str, name: str, data: bytes, mode: int = 0o644) -> None:
    """Write bytes to `directory`/`name` atomically; on a full disk, a lease or a heartbeat overwrites the previous file. If the
    directory cannot be written otherwise, the files that both sides exchange while the worker runs are kept in memory."""
    try:
        atomic_files.write_bytes(directory, name, data, mode)
        if name in _EXCHANGED:
            spare_files.remove_spare(directory, name)
    except OSError as error:
        if error.errno in spare_files.UNWRITABLE and name in _EXCHANGED:
            try:
                return spare_files.write_spare(directory, name, data)
            except OSError:
                raise error from None
        target = os.path.join(directory, name)
        if error.errno not in _FULL or name not in _SIGNS or not os.path.exists(target):
            raise
        _write_over(target, data)
        if name in _EXCHANGED:  # an earlier one in memory would be read instead
            spare_files.remove_spare(directory, name)


def _write_over(target: str, data: bytes) -> None:
    """Overwrite an existing file, which needs no more disk. Shorter data is padded with blanks, which JSON ignores."""
    try:
        descriptor = guarded_files.open_to_overwrite(target)
    except DamagedFile as error:
        raise OSError(errno.EINVAL, str(error)) from error
    try:
        size, most = os.fstat(descriptor).st_size, MOST_BYTES[os.path.basename(target)]
        if size > most:
            os.ftruncate(descriptor, most)
        os.pwrite(descriptor, data.ljust(min(size, most)), 0)
    finally:
        os.close(descriptor)


def read(directory: Path | str, name: str) -> dict[str, Any] | None:
    """Return the JSON values of a file, None if there is no file; raise `BadFile` if it is not a file of this format."""
    path = os.path.join(directory, name)
    data = read_bytes(directory, name)
    if data is None:
        return None
    try:
        body = json.loads(data)
    except Exception as error:  # also a RecursionError, and a number with too many digits
        raise BadFile(f"{path} cannot be read: {error}") from error
    if not isinstance(body, dict) or body.pop("format", None) != FORMAT:
        raise BadFile(f"{path} is not a file of format {FORMAT}")
    return body


def read_bytes(directory: Path | str, name: str) -> bytes | None:
    """Return the bytes of a file, None if there is no file; raise `BadFile` if it is not a regular file, is too large, or
    cannot be read."""
    try:
        return read_guarded(path_of(directory, name), MOST_BYTES.get(name, _MOST_OTHER))
    except DamagedFile as error:
        raise BadFile(str(error)) from error


def path_of(directory: Path | str, name: str) -> str:
    """Return the path at which a file of a worker's directory is now."""
    if name in _EXCHANGED:
        return spare_files.current_path(directory, name)
    return os.path.join(directory, name)


def mark_of(directory: Path | str, name: str) -> tuple[int, int, int] | None:
    """Return a value that changes when a file is replaced; None if there is none."""
    try:
        stat = os.stat(path_of(directory, name))
    except OSError:
        return None
    return stat.st_ino, stat.st_mtime_ns, stat.st_size


def read_orders(directory: Path | str) -> Orders | None:
    """Return the orders in a worker's directory."""
    return _read_struct(directory, ORDERS, Orders, ("bind", "host", "lease_secs", "seed"))


def read_heartbeat(directory: Path | str) -> WorkerHeartbeat | None:
    """Return the last heartbeat of a worker."""
    optional = ("opened", "ended", "drained", "stopped", "crash", "counters")
    return _read_struct(directory, HEARTBEAT, WorkerHeartbeat, optional)


def read_end(directory: Path | str) -> End | None:
    """Return the reason that a worker gives for its end."""
    return _read_struct(directory, END, End)


def read_stacks(directory: Path | str) -> WorkerStacks | None:
    """Return the last stacks that a worker has shown."""
    body = read(directory, STACKS)
    try:
        return None if body is None else convert(body, WorkerStacks)
    except Exception as error:
        raise BadFile(f"{directory}/{STACKS}: {error}") from error


def read_state_question(directory: Path | str) -> StateQuestion | None:
    """Return the last question about the state of a worker's tasks."""
    return _read_struct(directory, STATE_QUESTION, StateQuestion, ("exact",))


def read_live_state(directory: Path | str) -> WorkerState | None:
    """Return the last answer to such a question."""
    body = read(directory, LIVE_STATE)
    try:
        return None if body is None else convert(body, WorkerState)
    except Exception as error:
        raise BadFile(f"{directory}/{LIVE_STATE}: {error}") from error


def read_death(directory: Path | str) -> Death | None:
    """Return the death of the previous process."""
    return _read_struct(directory, DEATH, Death, ("between_calls",))


def read_keys(directory: Path | str) -> Keys | None:
    """Return the topology's keys; None if the directory has no file of keys."""
    if (body := read(directory, KEYS)) is None:
        return None
    try:
        return Keys(**body)
    except TypeError as error:
        raise BadFile(f"{directory}/{KEYS} holds no key pair") from error


def _read_struct(directory: Path | str, name: str, kind: type[S], optional: tuple[str, ...] = ()) -> S | None:
    body = read(directory, name)
    try:
        return None if body is None else read_exactly(kind, body, optional)
    # Usually a WrongValue; or JSON that was read, but is too deep to be checked or shown.
    except Exception as error:
        raise BadFile(f"{directory}/{name}: {error}") from error


build_type_info(Orders, WorkerHeartbeat, End, Death)
