"""Finds the files of a path on this machine: a file, a folder, or a pattern.

A folder means all files in it and below it. Names that begin with "_" or "." are hidden there and in patterns, as for Spark's
readers: a writer can use them for files that are not complete. Only regular files count.
Must not know: how far files are read.
"""

from __future__ import annotations

import glob
import os
import stat
from collections.abc import Iterator
from itertools import takewhile

from squall_io.files.tails import FileId, FileState
from squall_io.lines.cutting import FOREIGN, PACKED
from topology_api.wording import typed


def path_problems(path: object, follow: object) -> Iterator[str]:
    """Yield what is wrong with the path of a spout."""
    if not isinstance(path, (str, os.PathLike)) or not isinstance(os.fspath(path), str):
        yield f"path is {typed(path)}: give text, or a pathlib.Path"
        return
    text = os.fspath(path)
    if "://" in text:
        yield f"path is {text!r}: only files of the worker's machine are read; HdfsLines of squall_io.spark reads others"
    elif "\0" in text or not text.isprintable():
        yield f"path is {text!r}: it has characters that cannot be printed"
    elif not text.startswith("/"):
        yield f"path is {text!r}: it is relative, and each worker runs in its own folder; write it from the root: '/...'"
    elif follow is True and text.endswith((*PACKED, *FOREIGN)):
        yield f"path is {text!r}: a compressed file cannot be followed; give follow=False"


def find_files(path: str) -> list[FileState]:
    """Return the files that a path means now, by name."""
    names = [path]
    if glob.has_magic(path):
        fixed = sum(1 for _ in takewhile(lambda part: not glob.has_magic(part), path.split("/")))
        found = glob.glob(path, recursive=True)
        names = [name for name in found if not any(map(_is_hidden, name.split("/")[fixed:]))]
    files = {each for name in names for each in (_below(name) if os.path.isdir(name) else [name])}
    return [state for name in sorted(files) if (state := state_of(name)) is not None]


def state_of(path: str) -> FileState | None:
    """Return the state of a regular file, or of the one that a link names; None if there is none, or its name is not UTF-8."""
    try:
        path.encode()
        found = os.stat(path)
        if not stat.S_ISREG(found.st_mode):
            return None
        return _made(path, found, os.path.islink(path))
    except (OSError, UnicodeError):
        return None


def is_removed(path: str) -> bool:
    """Return whether a file that was not found is gone, and not only out of reach: its folder is closed, or its disk fails."""
    try:
        os.stat(path)
    except OSError as error:
        return isinstance(error, (FileNotFoundError, NotADirectoryError))
    return True  # another file has its name


def files_beside(path: str) -> list[FileState]:
    """Return the regular files in the folder of a path, links excepted."""
    found = []
    try:
        with os.scandir(os.path.dirname(path)) as entries:
            for entry in entries:
                if entry.is_file(follow_symlinks=False):
                    found.append(_made(entry.path, entry.stat(follow_symlinks=False), False))
    except OSError:
        pass  # the folder or a file is gone: what was found counts
    return found


def _made(path: str, found: os.stat_result, is_link: bool) -> FileState:
    return FileState(path, FileId(found.st_dev, found.st_ino), found.st_size, found.st_mtime_ns, is_link)


def _below(folder: str) -> Iterator[str]:
    for where, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not _is_hidden(name))
        yield from (os.path.join(where, name) for name in names if not _is_hidden(name))


def _is_hidden(name: str) -> bool:
    return name.startswith(".") or (name.startswith("_") and "=" not in name)
