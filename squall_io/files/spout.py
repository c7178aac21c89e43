"""FileSpout: the lines of files of this machine as a stream; it follows them as `tail -F` does.

    builder.set_spout("lines", FileSpout("/var/log/app/*.log"), parallelism=2)

Must not know: how files are found and read.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from squall_io.files.finding import path_problems
from squall_io.files.reading import POLL_SECONDS, FileTask
from squall_io.kit.replays import replay_problems
from squall_io.lines.formats import fields_of, line_problems
from squall_io.lines.polling import AT_ONCE, poll_problems
from topology_api import Fields, InvalidConfig, Replay, RewindableSpout
from topology_api.wording import typed

if TYPE_CHECKING:
    from topology_api import Context


class FileSpout(RewindableSpout):
    """The lines of files of the worker's machine, one tuple each, without their ends ("\\n" or "\\r\\n").

    A file is read by one task: number `zlib.crc32(path) % parallelism`. A tuple that fails is emitted again as `replay` says.
    How far files are read is kept by topologies with `topology.state.path` only: in any other, a restarted task reads its files
    from the beginning.

    path: a file, a folder (with everything below it), or a pattern with "*", "?", "[...]", and "**" for any folders. Names
        that begin with "_" or "." are left out.
    follow: True continues with lines that are appended and with new files. A file that was renamed is read to its end before
        the one that has its path now; a truncated file is read from its beginning. False reads the existing files, and ends.
        Without follow, files that end with .gz and .bz2 are unpacked; with follow they are not read.
    poll_interval: with follow, the seconds between two looks for new lines and files, at least 0.2; None: 1.
    format: "lines", or "jsonl": each line is an object of JSON, and a tuple has its members that are columns of `schema`.
    schema: for "jsonl", Spark's DDL text, `"word string, count bigint NOT NULL, at timestamp"`. A value has the type of its
        column, as sinks take it: times and dates are text in ISO 8601, bytes are base64. A missing member is None. A line that
        does not fit is left out.
    fields: which of "line", "file" and "offset" a tuple has, in this order.
    encoding, errors: how bytes become text, as for `bytes.decode`. With "strict", a line that cannot be decoded is left out
        and counted (`lines left out`), and the first such line of each file is reported.
    replay: as `Spout.replay`.
    """

    threaded = True  # reading blocks
    poll_interval = POLL_SECONDS
    format = "lines"
    schema: str | None = None
    _task: FileTask

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        follow: bool = True,
        poll_interval: float | None = None,
        format: str = "lines",
        schema: str | None = None,
        fields: Sequence[str] = ("line",),
        encoding: str = "utf-8",
        errors: str = "strict",
        replay: Replay | None = RewindableSpout.replay,
    ) -> None:
        names = (fields,) if isinstance(fields, str) else tuple(fields)
        problems = [
            *path_problems(path, follow),
            *line_problems(format, schema, names, encoding, errors),
            *poll_problems(poll_interval),
        ]
        if not isinstance(follow, bool):
            problems.append(f"follow is {typed(follow)}: give True or False")
        problems += replay_problems(replay)
        if problems:
            raise InvalidConfig(problems, type(self).__name__)
        self.path = os.path.normpath(path)
        self.follow = follow
        if poll_interval is not None:
            self.poll_interval = float(poll_interval)
        self.fields = names
        self.outputs = Fields(*names)
        if schema is not None:
            self.format, self.schema = format, schema
            self.outputs = Fields(*fields_of(schema))
        self.encoding = encoding
        self.errors = errors
        self.replay = replay

    def open(self, context: Context) -> None:
        """Check that there is something to read; with `follow`, wait for it."""
        self._task = FileTask(self, context)
        self._task.start()

    def next_tuple(self) -> float | None:
        """Emit the next lines."""
        wait = self._task.next(self.emit, AT_ONCE)
        if self._task.finished:
            self.finish()
        return wait

    def position(self) -> dict[str, list[int]]:
        """Return for each path the inode of its file, and the byte after the last line that was emitted."""
        return self._task.position()

    def rewind(self, position: Mapping[str, Sequence[int]] | None) -> None:
        """Continue after these lines. Raises `LostPosition` if a file is gone or shorter than its position."""
        self._task.rewind(position)

    def merge_positions(self, positions: list[dict[str, list[int]]]) -> dict[str, list[int]]:
        """Return the union: each file is in the position of the one task that read it."""
        return {path: place for position in positions for path, place in position.items()}

    def close(self) -> None:
        """Close the files."""
        if hasattr(self, "_task"):
            self._task.close()
