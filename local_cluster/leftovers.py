"""Removes the directories of clusters whose process died without cleaning up.

A directory names its owner: pid, start time, and the place where that pid is valid (boot id and pid namespace), because
containers may share a folder for temporary files. A directory is kept if it names no owner, belongs to another user, or has a
running worker.
Must not know: the contents of a cluster's directory, except the places of the workers' directories.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
from pathlib import Path
from typing import Final

from squall.daemon.process_stat import runs, stat_of
from squall.guarded_files import DamagedFile, read_guarded
from supervisor.directories import Directories, read_started
from supervisor.removals import delete

PREFIX: Final = "squall-local-"
OWNER: Final = "owner.json"
#: The most bytes of that file.
MOST_OWNER: Final = 4096


def note_owner(directory: Path) -> None:
    """Record this process as the owner of the directory. A directory without an owner is never swept."""
    with contextlib.suppress(OSError):
        began = stat_of(os.getpid())
        if began is not None:
            text = json.dumps({"place": _place(), "pid": began.pid, "started": began.started})
            (directory / OWNER).write_text(text)


def sweep(folder: Path) -> None:
    """Remove, as far as possible, the directories that dead clusters of this user have left in a folder."""
    try:
        left = [path for path in folder.iterdir() if path.name.startswith(PREFIX)]
    except OSError:
        return
    for path in left:
        # An error means that a different process is sweeping this directory, or that no cluster has written it.
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError, RecursionError, DamagedFile):
            if _is_ours(path) and _owner_is_gone(path) and not _has_workers(path):
                _remove(path)


def _is_ours(path: Path) -> bool:
    status = os.lstat(path)  # the status of the path itself: a link may lead anywhere
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()


def _owner_is_gone(path: Path) -> bool:
    """Return whether the recorded owner is dead. Raises OSError, ValueError, KeyError or other errors if the record is
    unreadable."""
    data = read_guarded(path / OWNER, MOST_OWNER)  # workers, which run user code, can write there
    if data is None:
        return False
    note = json.loads(data)
    place, pid, started = note["place"], note["pid"], note["started"]
    if place != _place() or type(pid) is not int or type(started) is not int:
        return False
    return not runs(pid, started)


def _has_workers(path: Path) -> bool:
    """Return whether a worker still runs in the directory: workers outlive the owner by some seconds."""
    recorded = (
        read_started(directory)
        for supervisor in path.iterdir()
        for directory in Directories(supervisor).workers()
    )
    return any(worker is not None and runs(worker.pid, worker.started) for worker in recorded)


def _remove(path: Path) -> None:
    """Remove a directory. The owner's record is removed last, so that if this process dies meanwhile, the next one
    continues."""
    for entry in list(path.iterdir()):
        if entry.is_dir() and not entry.is_symlink():
            delete(entry)
    if not any(entry.is_dir() and not entry.is_symlink() for entry in path.iterdir()):
        delete(path)


def _place() -> str:
    """Return the place where this process's pids are valid: boot id and pid namespace."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot} {os.readlink('/proc/self/ns/pid')}"
