"""Where a supervisor keeps things on its host, and the removal of all that a topology left.

```
<state>/topologies/<topology id>/
  bundle/               the topology's description and pickles (see `squall.cluster.blobs`)
  needs.json            what else it uses here (see `supervisor.provisions`)
  workers/<worker>/     where we and a worker's process talk to each other (see `squall.worker_files`)
    process.json        ours: the process that we started there
```

Directories have mode 0700, keys 0600. Names stand quoted, as in the store; one that is too long for a file system is cut,
and its digest added. The state belongs to one supervisor.
Must not know: processes, what runs, what files say.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Collection
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Final

from squall import worker_files
from squall.cluster import paths
from squall.cluster.blobs import MANIFEST, write_bundle
from squall.cluster.store import Store
from squall.state_mark import state_mark
from squall.worker_files import Incarnation
from supervisor.removals import remove

PROCESS: Final = "process.json"

#: What a worker said and was told; the next process in the directory must not take it for its own.
_TALK: Final = (
    worker_files.ORDERS,
    worker_files.KEYS,
    worker_files.LEASE,
    worker_files.PULSE,
    worker_files.COUNTERS,
    worker_files.END,
    PROCESS,
)
#: Characters; file systems take 255, and what is written beside a file adds some.
_LONGEST_NAME: Final = 180
#: Logs of workers that have left a living topology, kept for a look; each is bounded by the worker.
_LOGS_KEPT: Final = 8


@dataclass(frozen=True)
class Started:
    """The process that was started in a worker's directory, as `process.json` says."""

    #: 0: it was about to be started; whether it was, the processes that bear the directory's mark can tell.
    pid: int
    started: int
    incarnation: Incarnation
    slot: int


class Directories:
    """The directories of one supervisor."""

    def __init__(
        self, state: Path, own_work: bool = False, remove: Callable[[Path], object] = remove
    ) -> None:
        """`own_work`: each worker has a working directory of its own, and not that of its supervisor. `remove`: removes a
        folder, or has it removed soon; its name is free at once."""
        self.root = Path(os.path.abspath(state)) / "topologies"
        self._own_work = own_work
        self._remove = remove

    def mark(self) -> str:
        """What tells this state directory from every copy of it, until its host is restarted."""
        where = self.root.parent
        make_directory(where)
        return state_mark(where)

    def topology(self, topology_id: str) -> Path:
        """All that is kept of a topology."""
        return self.root / _folder(topology_id)

    def worker(self, topology_id: str, worker: str) -> Path:
        """Where we and a worker's process talk to each other."""
        return self.topology(topology_id) / "workers" / _folder(worker)

    def workers(self) -> list[Path]:
        """Every worker directory that is there."""
        return [
            self.root / topology / "workers" / worker
            for topology in _names(self.root)
            for worker in _names(self.root / topology / "workers")
        ]

    def make_worker(self, topology_id: str, worker: str) -> Path:
        """The directory of a worker, without anything that an earlier process there said, or left in its working directory;
        logs and scratch stay."""
        directory = self.worker(topology_id, worker)
        make_directory(directory)
        for name in (worker_files.PULSE, worker_files.COUNTERS, worker_files.END, PROCESS):
            (directory / name).unlink(missing_ok=True)
        work = self.work(directory)
        if work is not None:
            self._remove(work)
            work.mkdir(mode=0o700)
        return directory

    def work(self, directory: Path) -> Path | None:
        """The working directory of the worker with that directory; None: that of its supervisor."""
        return directory / worker_files.WORK if self._own_work else None

    def make_bundle(self, store: Store, topology_id: str) -> Path:
        """The directory with the topology's bundle, which is fetched when it is not there."""
        directory = self.topology(topology_id) / "bundle"
        if not has_bundle(directory):
            make_directory(directory)
            write_bundle(store, topology_id, directory)
        return directory

    def clear_worker(self, topology_id: str, worker: str) -> None:
        """Drop what a worker that has left the topology needed: everything but its logs, and the oldest logs too."""
        directory = self.worker(topology_id, worker)
        for name in _TALK:
            (directory / name).unlink(missing_ok=True)
        for name in (worker_files.SCRATCH, worker_files.WORK):
            self._remove(directory / name)
        left = [path for path in directory.parent.glob("*") if not (path / worker_files.ORDERS).exists()]
        left.sort(key=lambda path: path.stat().st_mtime)
        for path in left[:-_LOGS_KEPT]:
            self._remove(path)

    def remove_topologies(self, keep: Collection[str]) -> None:
        """Remove all that is kept of other topologies than these."""
        kept = set(map(_folder, keep))
        for name in _names(self.root):
            if name not in kept:
                self._remove(self.root / name)


def has_bundle(directory: Path) -> bool:
    """Whether a bundle is there: its manifest is written last."""
    return (directory / MANIFEST).exists()


def write_started(directory: Path, started: Started) -> None:
    """Note which process was started in a directory."""
    worker_files.write(directory, PROCESS, started, 0o600)


def read_started(directory: Path) -> Started | None:
    """The process that was started in a directory last, None when there was none or nobody can tell."""
    try:
        body = worker_files.read(directory, PROCESS)
        if body is None:
            return None
        first, second = body.pop("incarnation")
        return Started(incarnation=(first, second), **body)
    except (worker_files.BadFile, TypeError, ValueError, KeyError):
        return None


def _folder(name: str) -> str:
    """The name of a folder for something of that name."""
    text = paths.quoted(name)
    if len(text) <= _LONGEST_NAME:
        return text
    return f"{text[:_LONGEST_NAME]}-{hashlib.sha256(name.encode()).hexdigest()[:32]}"


def make_directory(directory: Path) -> None:
    """Make a directory of mode 0700, and those above that are not there."""
    # `mkdir(parents=True)` gives the mode to the last one only, and the umask may take bits away, never add any.
    missing = list(takewhile(lambda path: not path.exists(), (directory, *directory.parents)))
    for path in reversed(missing):
        path.mkdir(mode=0o700, exist_ok=True)


def _names(directory: Path) -> list[str]:
    try:
        return sorted(os.listdir(directory))
    except (FileNotFoundError, NotADirectoryError):
        return []
