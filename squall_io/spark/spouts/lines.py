"""HdfsLines: the lines of text files as a stream, from HDFS or any file system that Spark's Hadoop client supports.

    builder.set_spout("lines", HdfsLines("hdfs://namenode:9000/logs/2026-*/*.log"), parallelism=4)

The files that exist when the first task starts, and with `follow` also later files, are cut into splits. Every task computes
the same splits, also after restarts, and reads its share of them. Each task stores in a folder how far it has read, so a
restarted task continues at the first line that was not acked.
Must not know: how lines are cut out of bytes, how positions are stored, how tasks agree on files.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from squall.stores.files import OpenStore
from squall.stores.paths import InvalidPath
from squall_io.lines.cutting import PACKED, Damaged, ShortFile, lines_of_split, packed_lines
from squall_io.lines.errors import UnreadableFile, UnreadableLines
from squall_io.lines.formats import fields_of, line_problems, reader_of
from squall_io.spark.spouts import discovery
from squall_io.spark.spouts.discovery import FileDiscovery, FoundFile, Split
from squall_io.spark.spouts.positions import Unit
from squall_io.spark.spouts.reading_spout import Item, ReadingSpout, Units, path_problems
from topology_api import Fields, Replay
from topology_api.wording import typed

if TYPE_CHECKING:
    from topology_api import Context

SMALLEST_SPLIT: Final = 1 << 10
LARGEST_SPLIT: Final = 1 << 40
#: Seconds between two looks for new files, unless the spout says so.
POLL_SECONDS: Final = 5.0


class HdfsLines(ReadingSpout):
    """The lines of text files, one tuple each, without their ends ("\\n" or "\\r\\n").

    With `topology.state.path` each line counts once: how far the tasks have read is part of the topology's commits, and is not
    stored in `positions`, where the tasks only agree on what there is to read. The first start begins where an earlier run has
    recorded that it ended.

    path: a file, a folder (with everything below it, except names that begin with "_" or "."), or a pattern with "*", "?" and
        "[...]" in its names. Files that end with .gz or .bz2 are unpacked, each by one task.
    format: "lines", or "jsonl": each line is an object of JSON, and a tuple has its members that are columns of `schema`.
    schema: for "jsonl", Spark's DDL text, `"word string, count bigint NOT NULL, at timestamp"`. A value has the type of its
        column, as a `SparkSink` takes it: times and dates are text in ISO 8601, bytes are base64. A missing member is None. A
        line that does not fit is left out.
    fields: which of "line", "file" and "offset" a tuple has, in this order.
    encoding, errors: how bytes become text, as for `bytes.decode`. With "strict", a line that cannot be decoded is left out
        and counted (`lines left out`), and the first such line of each split is reported.
    split_bytes: bytes per split, the piece of a file that one task reads.
    follow: False reads the files that exist when the spout's first task starts, and ends; True continues with new files. A new
        file should appear complete: write it under a name that begins with "_" or ".", and rename it.
    poll_interval: with `follow`, the seconds between two looks for new files, at least 0.2; None: 5. A file that two looks in a
        row find unchanged is taken for complete, and so is one that was last written a minute ago.
    positions: the folder where tasks store how far they have read; None: a folder for this submission alone, in
        `_squall/readers` below the files. If you give a folder, a later submission continues where the last one ended, with the
        files that were added since.
    replay: as `Spout.replay`.
    conf: settings for the file system: Hadoop's settings, under names that begin with `spark.hadoop.`,
        `squall.webhdfs.address` and `squall.s3.endpoint`.
    """

    poll_interval = POLL_SECONDS
    format = "lines"
    schema: str | None = None

    def __init__(
        self,
        path: str,
        *,
        format: str = "lines",
        schema: str | None = None,
        fields: Sequence[str] = ("line",),
        encoding: str = "utf-8",
        errors: str = "strict",
        split_bytes: int = discovery.SPLIT_BYTES,
        follow: bool = False,
        poll_interval: float | None = None,
        positions: str | None = None,
        replay: Replay | None = ReadingSpout.replay,
        conf: Mapping[str, str] | None = None,
    ) -> None:
        names = (fields,) if isinstance(fields, str) else tuple(fields)
        problems = [
            *_path_problems(path, positions),
            *line_problems(format, schema, names, encoding, errors),
            *_split_problems(split_bytes),
        ]
        super().__init__(names, follow, poll_interval, positions, replay, conf, problems)
        if schema is not None:
            self.format, self.schema = format, schema
            self.outputs = Fields(*fields_of(schema))
        self.path = path
        self.encoding = encoding
        self.errors = errors
        self.split_bytes = split_bytes

    def _units(self) -> Units:
        return SplitUnits(self)


class SplitUnits(Units):
    """The splits of files, for one task."""

    #: Set by the method `positions`.
    _discovery: FileDiscovery

    follow_links = True

    def __init__(self, spout: HdfsLines) -> None:
        self._spout = spout
        self._source = discovery.source_of(spout.path)
        self._texts = reader_of(spout)
        self._splits: list[Split] = []
        #: Splits for which a line that was left out has been reported.
        self._reported: set[Unit] = set()
        super().__init__(spout, self._source.folder, spout.path)

    def open(self, context: Context) -> None:
        """Open the folder that the path names or starts with."""
        super().open(context)
        if self._follow and self._is_folder() is False:
            raise UnreadableFile(
                f"{self.reads} is a file: only a folder or a pattern can be followed; give one, or leave follow out"
            )

    @property
    def home(self) -> str:
        """The folder that the path names, or that contains its files."""
        source = self._source
        if source.parts and not source.is_pattern and (self._follow or self._is_folder()):
            return f"{source.folder}/{source.parts[0]}"
        return source.folder

    def positions(self, folder: str) -> OpenStore:
        """Open a folder of positions, and prepare the discovery of files."""
        kept = super().positions(folder)
        self._discovery = FileDiscovery(self._files, self._source, kept, self._spout.split_bytes)
        return kept

    def snapshot(self) -> Mapping[str, Any]:
        """Return the existing files; nothing with `follow`."""
        return {} if self._follow else self._discovery.snapshot(self._context.now())

    def units(self, snapshot: Mapping[str, Any]) -> Iterable[Unit]:
        """Return a unit for each split of the files known so far."""
        self._splits = []
        return self._cut(self._discovery.begin(None if self._follow else snapshot))

    def more(self) -> tuple[Iterable[Unit], float] | None:
        """Return the splits of new files; None without `follow`."""
        found, context = self._discovery, self._context
        if found.problems:
            raise found.problems.popleft()
        if not self._follow:
            return None
        new = found.poll(context.index == 0, context.now(), time.time())
        return self._cut(new), self._poll_interval

    def _cut(self, files: Iterable[FoundFile]) -> list[Unit]:
        first = len(self._splits)
        self._splits += discovery.splits_of(files)
        # All splits are one series.
        return [Unit("", number) for number in range(first, len(self._splits))]

    def _is_folder(self) -> bool | None:
        """Whether a path without a pattern names a folder; None if nothing exists there, or if the path has a pattern."""
        source = self._source
        if not source.parts or source.is_pattern:
            return None
        named = (status.is_folder for status in self._files.list("") if status.name == source.parts[0])
        return next(named, None)

    def items(self, unit: Unit, position: int) -> Iterator[Item]:
        """Yield an item for each line of a split: a tuple, or the report of a line that is left out. Raise `UnreadableFile` if
        the split's file cannot be read properly."""
        split = self._splits[unit.number]
        path = f"{self._files.root}/{split.path}"
        read = partial(self._files.read, split.path)
        if split.path.endswith(PACKED):
            lines = packed_lines(read, split.path[split.path.rindex(".") :], position)
        else:
            lines = lines_of_split(read, split.start, split.end, split.size, position)
        values_of = self._texts.values
        try:
            for line in lines:
                values = values_of(line, path)
                if type(values) is str:
                    yield from self._skipped(values, path, line[0], line[1], unit)
                else:
                    yield line[0], line[1], values  # type: ignore[misc] # mypy does not narrow by `type`
        except (ShortFile, Damaged) as error:
            raise UnreadableFile(
                f"{path} cannot be read: {error}. All earlier lines were read. If you repair the file, reading continues"
            ) from None

    def _skipped(self, why: str, path: str, place: int, after: int, unit: Unit) -> Iterator[Item]:
        """Count a line that becomes no tuple; report the first such line of each split."""
        self._context.counter("lines left out").add()
        if unit not in self._reported:
            self._reported.add(unit)
            text = f"the line at byte {place} of {path} was left out: {why}. Other such lines of this split are only counted"
            yield place, after, UnreadableLines(f"{text}, as 'lines left out'")


def _path_problems(path: object, positions: object) -> Iterator[str]:
    try:
        source = discovery.source_of(path)  # type: ignore[arg-type]
    except (InvalidPath, TypeError) as error:
        yield str(error) if isinstance(error, InvalidPath) else f"path is {typed(path)}: give a str"
        return
    folder = positions if isinstance(positions, str) and not list(path_problems(positions, "")) else None
    if folder is not None and discovery.covers(source, folder):
        yield (
            f"positions: {folder} would be read as part of {path}: give a folder elsewhere, or a folder whose name begins"
            ' with "_"'
        )


def _split_problems(split_bytes: object) -> Iterator[str]:
    if type(split_bytes) is not int or not SMALLEST_SPLIT <= split_bytes <= LARGEST_SPLIT:
        yield f"split_bytes is {typed(split_bytes)}: give an int from {SMALLEST_SPLIT} to {LARGEST_SPLIT}"
