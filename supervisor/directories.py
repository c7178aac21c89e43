"""The directories of a supervisor on its host, and the removal of files of ended topologies.

```
<state>/topologies/<topology id>/
  bundle/               the topology's description and pickles (see `squall.cluster.blobs`)
  needs.json            the other artifacts that the topology uses (see `supervisor.artifacts`)
  suspects.json         the tuples in whose calls its workers have died on this host (see `squall.suspects`)
  workers/<worker>/     files between supervisor and worker (see `squall.worker_files`)
    process.json        the process that the supervisor started there; only the supervisor uses this file
<state>/kept/<name>/    what a topology keeps that names no place for it; no supervisor reads or removes it
```

Directories have mode 0700, keys 0600. Names are quoted as in the store. A name that is too long for a file system is shortened,
and its digest is appended. The state directory belongs to one supervisor.
Must not know: processes, which workers run, the contents of files.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from squall import worker_files
from squall.atomic_files import write_bytes
from squall.cluster import paths
from squall.cluster.blobs import MANIFEST, damage_of_bundle, write_bundle
from squall.cluster.store import Store
from squall.daemon.state_mark import state_mark
from squall.guarded_files import is_file
from squall.security.private_files import make_private_folder
from squall.spare_files import clear_spares
from squall.values import Incarnation
from supervisor.kept_logs import KeptLogs
from supervisor.removals import delete

_log = logging.getLogger(__name__)

PROCESS: Final = "process.json"
#: The folder of the dead letters in a supervisor's state directory.
LETTERS: Final = "letters"
#: The folder there for the state of topologies that name no place for it. No supervisor looks into it or removes anything.
KEPT_STATE: Final = "kept"

#: Files of one process, which the next process in the directory must not use.
_TALK: Final = (
    worker_files.ORDERS,
    worker_files.KEYS,
    worker_files.LEASE,
    worker_files.HEARTBEAT,
    worker_files.COUNTERS,
    worker_files.END,
    worker_files.QUESTION,
    worker_files.STACKS,
    worker_files.STATE_QUESTION,
    worker_files.LIVE_STATE,
    worker_files.CALLS,
    worker_files.DEATH,
    worker_files.SUSPECTS,
    PROCESS,
)
#: The files that the supervisor writes there.
_WRITTEN: Final = (worker_files.ORDERS, worker_files.KEYS, worker_files.LEASE, worker_files.DEATH)
#: A longer name is cut to this many characters. File systems allow 255 characters; the rest is for the digest, and for the
#: longer names of temporary files.
_LONGEST_NAME: Final = 180
#: How many workers' logs are kept after the workers have left a running topology; each worker limits the size of its log.
_LOGS_KEPT: Final = 8


class Started(msgspec.Struct, frozen=True):
    """The process that was started in a worker's directory: the content of `process.json`."""

    #: 0: the process was about to be started. It was started if a process has the directory's mark.
    pid: int
    started: int
    incarnation: Incarnation
    slot: int


class Directories:
    """The directories of one supervisor."""

    def __init__(
        self,
        state: Path,
        own_work: bool = False,
        remove: Callable[[Path], object] = delete,
        logs: KeptLogs | None = None,
    ) -> None:
        """`own_work`: each worker has its own working directory instead of the supervisor's. `remove`: removes a folder now or
        soon, and frees the folder's name at once. `logs`: keeps the logs of topologies that have ended."""
        self._logs = logs
        self.root = Path(os.path.abspath(state)) / "topologies"
        #: The dead letters of all topologies; see `squall.dead_letters.folder`.
        self.letters = Path(os.path.abspath(state)) / LETTERS
        self._kept_state = Path(os.path.abspath(state)) / KEPT_STATE
        self._own_work = own_work
        self._remove = remove

    def mark(self) -> str:
        """Return a text that distinguishes this state directory from its copies, until its host restarts."""
        where = self.root.parent
        make_private_folder(where)
        return state_mark(where)

    def make_kept_state(self) -> str:
        """Make the folder for the state of topologies that name no place, and return its path."""
        with suppress(OSError):  # such as a full disk: the workers make it, or say why not
            make_private_folder(self._kept_state)
        return str(self._kept_state)

    def topology(self, topology_id: str) -> Path:
        """Return the directory of a topology."""
        return self.root / _folder(topology_id)

    def worker(self, topology_id: str, worker: str) -> Path:
        """Return the directory that a worker and its supervisor share."""
        return self.topology(topology_id) / "workers" / _folder(worker)

    def log(self, topology_id: str, worker: str, name: str) -> Path:
        """Return where the log `name` of a worker is, or was kept after the end of its topology."""
        path = self.worker(topology_id, worker) / name
        if self._logs is None or path.exists():
            return path
        return self._logs.root / _folder(topology_id) / _folder(worker) / name

    def tick(self, now: float) -> None:
        """Remove kept logs that are too old. `now`: a time on the supervisor's clock."""
        if self._logs is not None:
            self._logs.tick(now)

    def workers(self) -> list[Path]:
        """Return every worker directory that exists."""
        return [
            self.root / topology / "workers" / worker
            for topology in _names(self.root)
            for worker in _names(self.root / topology / "workers", changeable=True)
        ]

    def make_worker(self, topology_id: str, worker: str) -> Path:
        """Make the directory of a worker; remove the files and the working directory of an earlier process. Logs and scratch
        directories stay."""
        directory = self.worker(topology_id, worker)
        make_private_folder(directory)
        for name in _TALK:
            if name not in _WRITTEN:
                self._clear(directory / name)
        for name in (*_WRITTEN, worker_files.LOG, worker_files.OUTPUT):
            if not is_file(directory / name):  # user code may have put anything there
                self._clear(directory / name)
        clear_spares(directory)
        work = self.work(directory)
        if work is not None:
            self._remove(work)
            work.mkdir(mode=0o700)
        return directory

    def work(self, directory: Path) -> Path | None:
        """Return the working directory of the worker whose directory is given; None: the worker uses its supervisor's."""
        return directory / worker_files.WORK if self._own_work else None

    def make_bundle(self, store: Store, topology_id: str) -> Path:
        """Return the directory of the topology's bundle, after fetching the bundle if it is missing or damaged."""
        directory = self.topology(topology_id) / "bundle"
        if has_bundle(directory):
            if (damage := damage_of_bundle(directory)) is None:
                return directory
            _log.warning("the bundle of topology %s is fetched again: %s", topology_id, damage)
        if directory.is_symlink() or not directory.is_dir():
            self._clear(directory)
        make_private_folder(directory)
        for name in _names(directory):
            if not is_file(directory / name):  # a file cannot replace a folder by being renamed to its name
                self._clear(directory / name)
        write_bundle(store, topology_id, directory)
        return directory

    def check_writable(self) -> None:
        """Write a file to the disk and remove it. Raises `OSError` if workers' files cannot be written."""
        probe = self.root.parent / "probe"
        make_private_folder(probe)
        write_bytes(probe, "file", b"written", 0o600, durable=True)
        (probe / "file").unlink()  # the folder stays: a check that was cut off may have left something in it

    def clear_worker(self, topology_id: str, worker: str) -> None:
        """Remove the files of a worker that has left the topology, except its logs. Also remove the oldest logs of workers that
        have left."""
        directory = self.worker(topology_id, worker)
        clear_spares(directory)
        for name in _TALK:
            self._clear(directory / name)
        for name in (worker_files.SCRATCH, worker_files.WORK):
            self._remove(directory / name)
        left = [path for path in directory.parent.glob("*") if not (path / worker_files.ORDERS).exists()]
        left.sort(key=lambda path: path.lstat().st_mtime)
        for path in left[:-_LOGS_KEPT]:
            self._remove(path)

    def _clear(self, path: Path) -> None:
        """Remove a file; and a folder, if user code has put one in the file's place. Raises `OSError`."""
        try:
            path.unlink(missing_ok=True)
        except IsADirectoryError:
            self._remove(path)

    def remove_topologies(self, keep: Collection[str]) -> None:
        """Remove the directories of all topologies that are not in `keep` (ids), except logs, which are kept for a while."""
        kept = set(map(_folder, keep))
        for name in _names(self.root):
            if name not in kept:
                if self._logs is not None:
                    self._logs.keep(self.root / name)
                self._remove(self.root / name)


def has_bundle(directory: Path) -> bool:
    """Return whether a bundle is complete: its manifest is written last."""
    return (directory / MANIFEST).exists()


def write_started(directory: Path, started: Started) -> None:
    """Record which process was started in a directory."""
    worker_files.write(directory, PROCESS, started, 0o600)


def read_started(directory: Path) -> Started | None:
    """Return the last process that was started in a directory; None: no process was started, or the record of it is
    unreadable."""
    try:
        body = worker_files.read(directory, PROCESS)
        return None if body is None else Started(incarnation=Incarnation(*body.pop("incarnation")), **body)
    except (worker_files.BadFile, TypeError, ValueError, KeyError, AttributeError):
        return None


def _folder(name: str) -> str:
    """Return the name of the folder for the topology or worker `name`."""
    text = paths.quoted(name)
    if len(text) <= _LONGEST_NAME:
        return text
    return f"{text[:_LONGEST_NAME]}-{hashlib.sha256(name.encode()).hexdigest()[:32]}"


def _names(directory: Path, changeable: bool = False) -> list[str]:
    """Return the names in a directory. `changeable`: user code may have made the directory unreadable. Raises `OSError`."""
    try:
        return sorted(os.listdir(directory))
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        if not changeable:
            raise
        _log.warning("%s cannot be read, and is left alone: %s", directory, error)
        return []
