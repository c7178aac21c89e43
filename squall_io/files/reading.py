"""The work of one task of a FileSpout: it follows the paths that it owns, and reads their files line by line.

A path is owned by one task, by a hash. A file that was renamed belongs to the path under which it was first found, also if its
new name matches. It is complete once it has been read to its end after its successor had got something: a program that writes
one file at a time has left it by then.
Must not know: how lines are cut, threads.
"""

from __future__ import annotations

import errno
import os
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from squall_io.files.finding import files_beside, find_files, is_removed, state_of
from squall_io.files.tails import (
    FileId,
    FileState,
    FileTail,
    KnownFile,
    files_after,
    follow_names,
    is_generation,
    oldest,
)
from squall_io.lines import cutting
from squall_io.lines.cutting import FOREIGN, PACKED, Damaged, Line, ShortFile, packed_lines
from squall_io.lines.errors import UnreadableFile, UnreadableLines
from squall_io.lines.formats import reader_of
from topology_api import SquallError
from topology_api.wording import typed

if TYPE_CHECKING:
    from squall_io.files.spout import FileSpout
    from topology_api import Context

#: Seconds between two searches for new files and lines, unless the spout says so.
POLL_SECONDS: Final = 1.0
#: Seconds after which a file that could not be read is tried again.
RETRY_SECONDS: Final = 10.0
#: The most files that a task holds open. Others are opened again when they have grown.
MOST_OPEN: Final = 100
#: How many times a file is searched for that is renamed while it is opened.
_ATTEMPTS: Final = 5

#: Emits values with a message id.
Emit = Callable[..., object]


class NothingToRead(SquallError):
    """There is no file at the path of a spout that reads the existing files."""


class LostPosition(SquallError):
    """A file that a spout is to continue is gone, or has lost what was read."""


class FileTask:
    """The files of one task. All methods are called in the task's own thread."""

    def __init__(self, spout: FileSpout, context: Context) -> None:
        self._path = spout.path
        self._follow = spout.follow
        self._poll_interval = spout.poll_interval
        self._context = context
        self._texts = reader_of(spout)
        self._known: dict[FileId, KnownFile] = {}
        #: The generation of each owned path that is being read.
        self._tails: dict[str, FileTail] = {}
        #: The tails that have something to read.
        self._ready: dict[str, FileTail] = {}
        #: Open files by their paths, the last used last.
        self._open: OrderedDict[str, int] = OrderedDict()
        #: When paths that could not be read are tried again.
        self._aside: dict[str, float] = {}
        self._tail: FileTail | None = None
        self._lines: Iterator[Line] = iter(())
        #: When files are searched for; None: they never were.
        self._poll_at: float | None = None
        self._waits = False
        #: Whether it was logged that compressed files are left out.
        self._left_out = False
        #: Whether everything was emitted.
        self.finished = False

    def start(self) -> None:
        """Check that there is a file, unless files are followed. Raises `NothingToRead` or `UnreadableFile`."""
        self._context.gauge("files", lambda: len(self._tails))
        if self._follow:
            return
        found = find_files(self._path)
        if not found:
            raise NothingToRead(
                f"no file is at {self._path}, or fits it: there is nothing to read; with follow=True the spout waits for one"
            )
        if foreign := [state.path for state in found if state.path.endswith(FOREIGN)]:
            more = f" and {len(foreign) - 1} more" if len(foreign) > 1 else ""
            raise UnreadableFile(
                f"{foreign[0]}{more}: lines are read from plain files and from {', '.join(PACKED)} only;"
                " unpack it, or give a pattern that leaves it out"
            )

    def next(self, emit: Emit, most: int = 1) -> float | None:
        """Emit the next lines; return the seconds until the next call (None: call again soon). Raises the errors of files that
        cannot be read.
        """
        for _ in range(most):
            line = self._next_line()
            if line is None:
                return self._find_more()
            tail = self._tail
            assert tail is not None
            tail.offset = line[1]
            values = self._texts.values(line, tail.path)
            if isinstance(values, str):
                self._leave_out(tail, line[0], values)
                return 0.0
            emit(values, message_id=(tail.path, tail.id.inode, line[0]))
        return None

    def position(self) -> dict[str, list[int]]:
        """Return inode and offset of each owned path; with `follow`, of those that are not gone."""
        if self._poll_at is None:  # a file that is rotated after this call is to be found again
            self._poll()
        tails = self._tails.values()
        return {tail.path: [tail.id.inode, tail.offset] for tail in tails if not (self._follow and tail.done)}

    def rewind(self, position: Mapping[str, Sequence[int]] | None) -> None:
        """Continue at a position. Raises `LostPosition`."""
        self.close()
        self._known, self._tails, self._ready, self._aside = {}, {}, {}, {}
        self._tail, self._lines = None, iter(())
        self._poll_at, self.finished = None, False
        lost = []
        for path, inode, offset in _read_position(position):
            state = _search(path, inode)
            if state is not None:
                self._known[state.id] = KnownFile(path, state)
            if not self._owns(path):
                continue
            if state is None:
                lost.append(f"{path} is gone: its inode {inode} was read up to byte {offset}")
            elif state.size < offset and not self._is_packed(path):
                lost.append(f"{state.path} has {state.size} bytes, and was read up to byte {offset}")
            else:
                self._begin(path, state, offset)
        if lost:
            raise LostPosition(
                f"{'; '.join(lost)}. What else was in it cannot be read any more. Put the file back, or start without this"
                " position: then all files are read from their beginnings"
            )

    def close(self) -> None:
        """Close all files."""
        while self._open:
            os.close(self._open.popitem()[1])

    # Lines.

    def _next_line(self) -> Line | None:
        """Return the next line of a file that has one; None: all that is known was read."""
        try:
            while (line := next(self._lines, None)) is None:
                if not self._ready:
                    return None
                path = next(iter(self._ready))
                self._tail = self._ready.pop(path)
                self._lines = self._read(self._tail)
            return line
        except FileNotFoundError as error:
            if not self._follow:
                self._put_aside()
                raise UnreadableFile(f"{error.filename} was removed before it was read") from None
        except OSError as error:
            name = self._put_aside()
            raise UnreadableFile(
                f"cannot read {error.filename or name}: {error.strerror}; it is tried again every"
                f" {RETRY_SECONDS:g} s, and other files are read meanwhile"
            ) from None
        except (Damaged, ShortFile) as error:
            name = self._put_aside()
            raise UnreadableFile(
                f"{name} cannot be read: {error}. All earlier lines were read. If you repair the file, reading continues"
            ) from None
        return None  # the next poll finds out where the file is

    def _read(self, tail: FileTail) -> Iterator[Line]:
        """Yield the lines of a slice of a file; the last slice ends the file if it is complete."""
        if self._is_packed(tail.path):
            ending = tail.path[tail.path.rindex(".") :]
            yield from packed_lines(lambda offset, size: self._bytes(tail, offset, size), ending, tail.offset)
            tail.done = True
            return
        try:
            data = self._bytes(tail, tail.read_to, cutting.SLICE)
        except FileNotFoundError:
            if not (self._follow and tail.ends):
                raise
            self._context.log.warning(
                "%s was removed after %d of its bytes were read", tail.name, tail.read_to
            )
            data = b""
        if data:
            self._ready[tail.path] = tail
            yield from tail.feed(data)
        elif tail.ends:
            if not self._follow and (size := os.fstat(self._opened(tail)).st_size) < tail.read_to:
                raise ShortFile(f"it has {size} bytes, and had {tail.read_to} when reading began")
            if (last := tail.end()) is not None:
                yield last
            self._replace(tail)

    def _bytes(self, tail: FileTail, offset: int, size: int) -> bytes:
        return os.pread(self._opened(tail), size, offset)

    def _opened(self, tail: FileTail) -> int:
        """Return the open file of a tail, under whatever name it is now. Raises `OSError`."""
        if (file := self._open.get(tail.path)) is not None:
            self._open.move_to_end(tail.path)
            return file
        for _ in range(_ATTEMPTS):
            if (found := self._locate(tail)) is None:
                break
            file = os.open(found.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            status = os.fstat(file)
            if FileId(status.st_dev, status.st_ino) == tail.id:
                self._open[tail.path] = file
                if len(self._open) > MOST_OPEN:
                    os.close(self._open.popitem(last=False)[1])
                return file
            os.close(file)  # it was renamed in between
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), tail.name)

    def _replace(self, tail: FileTail) -> None:
        """Go on with the next generation of a path, since this one was read to its end."""
        later = self._later(tail)
        self._shut(tail.path)
        if later:
            following = next((state for state in later if state.size), later[-1])
            self._known[following.id] = KnownFile(tail.path, following)
            self._begin(tail.path, following, 0)
            if following.path != tail.path:  # others follow: they are not waited for
                self._poll_at = self._context.now()
            return
        tail.done = True
        if self._follow:
            self._context.log.info("%s is gone; it was read to its end", tail.path)

    def _leave_out(self, tail: FileTail, place: int, why: str) -> None:
        """Count a line that becomes no tuple; raise `UnreadableLines` for the first one of each file."""
        self._context.counter("lines left out").add()
        if not tail.reported:
            tail.reported = True
            raise UnreadableLines(
                f"the line at byte {place} of {tail.path} was left out: {why}. Other such lines of this file are only counted,"
                " as 'lines left out'"
            )

    def _put_aside(self) -> str:
        """Set aside the current file, which cannot be read; return its name."""
        assert self._tail is not None
        self._ready.pop(self._tail.path, None)
        self._aside[self._tail.path] = self._context.now() + RETRY_SECONDS
        self._lines = iter(())
        return self._tail.name

    # Files.

    def _find_more(self) -> float | None:
        """Search for new files and lines, since all that is known was read; return the seconds until the next call."""
        now = self._context.now()
        for path in [path for path, at in self._aside.items() if at <= now]:
            del self._aside[path]
            self._ready[path] = self._tails[path]
        if self._poll_at is None or (self._follow and self._poll_at <= now):
            self._poll()
            self._poll_at = now + self._poll_interval
        if self._ready:
            return 0.0
        if self._follow:
            return self._poll_at - now
        if self._aside:
            return min(self._aside.values()) - now
        self.finished = True
        return None

    def _poll(self) -> None:
        """Search for new files, and for files that have changed."""
        found = find_files(self._path)
        if self._follow:
            found = self._without_compressed(found)
            self._report_wait(bool(found))
        paths = {known.origin for known in self._known.values()} | {state.path for state in found}
        self._known = follow_names(self._known, found, paths if self._follow else ())
        generations: dict[str, list[FileState]] = {}
        for known in self._known.values():
            generations.setdefault(known.origin, []).append(known.state)
        for path, tail in list(self._tails.items()):
            current = next((state for state in generations.get(path, ()) if state.path == path), None)
            if self._follow and tail.done:
                if path not in generations:
                    del self._tails[path]
                elif current is not None:  # it was created again
                    self._begin(path, current, 0)
            elif path not in self._aside and (not self._follow or self._has_more(tail, current)):
                self._ready[path] = tail
        for path, states in generations.items():
            if self._owns(path) and path not in self._tails:
                self._begin(path, oldest(path, states), 0)

    def _has_more(self, tail: FileTail, current: FileState | None) -> bool:
        """Return whether there is something to read or to end. `current`: the file that has the tail's path now."""
        if current is not None and current.id == tail.id:
            tail.name, tail.modified, tail.missed = current.path, current.modified, False
            if current.size < tail.read_to:
                text = "%s was truncated to %d bytes after %d were read: it is read from its beginning"
                self._context.log.warning(text, tail.path, current.size, tail.read_to)
                tail.restart()
            return current.size > tail.read_to
        later = self._later(tail)
        file = self._open.get(tail.path)
        state = self._locate(tail)
        if state is not None:
            size, tail.modified = state.size, state.modified
        else:
            size = 0 if file is None else os.fstat(file).st_size
        is_gone = state is None and (is_removed(tail.name) if file is None else os.fstat(file).st_nlink == 0)
        if any(each.size for each in later) or (is_gone and tail.missed):
            tail.ends = True
        tail.missed = is_gone
        return tail.ends or size > tail.read_to

    def _later(self, tail: FileTail) -> list[FileState]:
        """Return the generations of a tail's path after it, oldest first."""
        path = tail.path
        files = [state for state in files_beside(path) if is_generation(path, state.path)]
        if (current := state_of(path)) is not None:
            files.append(current)
        known = self._known
        own = [state for state in files if state.id not in known or known[state.id].origin == path]
        return files_after(tail, own)

    def _locate(self, tail: FileTail) -> FileState | None:
        """Return a tail's file under its present name; None if it is not in the folder of its path any more."""
        names = [tail.name]
        if (known := self._known.get(tail.id)) is not None:
            names.append(known.state.path)
        for name in names:
            if (state := state_of(name)) is not None and state.id == tail.id:
                tail.name = name
                return state
        for state in files_beside(tail.path):
            if state.id == tail.id:
                tail.name = state.path
                return state
        return None

    def _begin(self, path: str, state: FileState, offset: int) -> None:
        tail = self._tails[path] = FileTail(path, state, offset)
        tail.ends = not self._follow
        self._ready[path] = tail

    def _shut(self, path: str) -> None:
        if (file := self._open.pop(path, None)) is not None:
            os.close(file)

    def _owns(self, path: str) -> bool:
        return zlib.crc32(path.encode()) % self._context.parallelism == self._context.index

    def _is_packed(self, path: str) -> bool:
        return not self._follow and path.endswith(PACKED)

    def _without_compressed(self, found: Sequence[FileState]) -> list[FileState]:
        """Leave out compressed files, which rotation makes from files that were read before."""
        plain = [state for state in found if not state.path.endswith((*PACKED, *FOREIGN))]
        if len(plain) < len(found) and not self._left_out:
            self._left_out = True
            self._context.log.info("compressed files are not read while files are followed")
        return plain

    def _report_wait(self, is_found: bool) -> None:
        """Log once that there is no file yet, and once that there is one."""
        if is_found == self._waits:
            self._waits = not is_found
            if is_found:
                self._context.log.info("reads %s", self._path)
            else:
                self._context.log.warning(
                    "no file is at %s, or fits it: waits until there is one", self._path
                )


def _search(path: str, inode: int) -> FileState | None:
    """Return the file with an inode at a path, or beside it under another name."""
    state = state_of(path)
    if state is not None and state.id.inode == inode:
        return state
    return next((state for state in files_beside(path) if state.id.inode == inode), None)


def _read_position(position: Mapping[str, Sequence[int]] | None) -> Iterator[tuple[str, int, int]]:
    """Yield path, inode and offset of each file of a position. Raises `LostPosition`."""
    if position is None:
        return
    try:
        for path, (inode, offset) in position.items():
            if not (type(path) is str and type(inode) is type(offset) is int and offset >= 0):
                raise ValueError
            yield path, inode, offset
    except (AttributeError, TypeError, ValueError):
        raise LostPosition(
            f"{typed(position)} is no position of a FileSpout, which is {{path: [inode, offset]}}: it belongs to another spout"
        ) from None
