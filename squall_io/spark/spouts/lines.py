"""HdfsLines: the lines of text files as a stream, from HDFS or any file system that Spark's Hadoop client takes.

    builder.set_spout("lines", HdfsLines("hdfs://namenode:9000/logs/2026-*/*.log"), parallelism=4)

The files that are there when the first task looks, or with `follow` those too that come, are cut into splits, which the tasks
share: the same ones for all of them, and after restarts too. How far each task has come is kept in a folder; a task that is
started anew goes on where its acks ended.
Must not know: how lines are cut out of bytes, how positions are kept, how tasks agree on files.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from squall_io.spark.spouts.arrivals import Arrivals
from squall_io.spark.spouts.file_list import FoundFile
from squall_io.spark.spouts.positions import Unit
from squall_io.spark.spouts.reading_spout import (
    ReadingSpout,
    follow_problems,
    positions_problems,
    replay_problems,
)
from squall_io.spark.spouts.reading_task import Item, Units
from squall_io.spark.spouts.splits import (
    SPLIT_BYTES,
    Source,
    Split,
    UnreadableFile,
    covers,
    source_of,
    splits_of,
)
from squall_io.spark.spouts.steady_stores import open_steady
from squall_io.spark.spouts.text_lines import LONGEST, Damaged, Line, ShortFile, lines_of_split, packed_lines
from squall_io.spark.stores import InvalidPath, Store
from topology_api import Fields, InvalidConfig, Replay
from topology_api.wording import listed, shown, typed

if TYPE_CHECKING:
    from topology_api import Context

#: What a tuple may have of a line: its text, the whole path of its file, the place in the file where it begins.
FIELDS: Final = ("line", "file", "offset")
#: What happens to a line that is no text of the encoding: it is left out and told of, or decoded in one of Python's ways.
ERRORS: Final = ("strict", "replace", "ignore", "backslashreplace", "surrogateescape")
SMALLEST_SPLIT: Final = 1 << 10
LARGEST_SPLIT: Final = 1 << 40
#: Seconds between two looks for files that have come; what two looks in a row find the same is taken for whole.
LOOK_SECONDS: Final = 5.0
#: All splits are one series.
_SERIES: Final = ""


class UnreadableLines(UnreadableFile):
    """Lines of a file were left out: they are too long, or no text of the encoding."""


class HdfsLines(ReadingSpout):
    """The lines of text files, one tuple each, without their ends ("\\n" or "\\r\\n").

    path: a file, a folder (with all that is below it, but for names that begin with "_" or "."), or a pattern with "*", "?" and
        "[...]" in its names. Files that end with .gz or .bz2 are unpacked, each by one task.
    fields: those of "line", "file" and "offset" that a tuple has, in this order.
    encoding, errors: how bytes become text, as `bytes.decode` takes them. With "strict" a line that is no text is left out and
        counted (`lines left out`), and the first one of each split is reported.
    split_bytes: how much one task reads in one go.
    follow: False reads the files that are there when the first task of the spout looks, and ends; True goes on with those that
        come. A file that comes should be whole at once: write it under a name that begins with "_" or ".", and rename it.
    positions: a folder in which is kept how far the tasks have come; None: one of this submission alone, in `_squall/readers`
        below the files. With a folder of your own a topology that is submitted again goes on where the last one ended, and
        reads what has come since.
    replay: as `Spout.replay`.
    conf: settings for the file system: Hadoop's, as `spark.hadoop....`, and `squall.webhdfs.address`.
    """

    def __init__(
        self,
        path: str,
        *,
        fields: Sequence[str] = ("line",),
        encoding: str = "utf-8",
        errors: str = "strict",
        split_bytes: int = SPLIT_BYTES,
        follow: bool = False,
        positions: str | None = None,
        replay: Replay | None = ReadingSpout.replay,
        conf: Mapping[str, str] | None = None,
    ) -> None:
        names = (fields,) if isinstance(fields, str) else tuple(fields)
        problems = [
            *_path_problems(path, positions),
            *_field_problems(names),
            *_text_problems(encoding, errors),
            *_split_problems(split_bytes),
            *follow_problems(follow),
            *replay_problems(replay),
        ]
        if problems:
            raise InvalidConfig(problems, "HdfsLines")
        self.path = path
        self.fields = names
        self.outputs = Fields(*names)
        self.encoding = encoding
        self.errors = errors
        self.split_bytes = split_bytes
        self.follow = follow
        self.replay = replay
        self.conf = dict(conf or {})
        self._positions = positions

    def _units(self) -> Units:
        return SplitUnits(self)


class SplitUnits:
    """The splits of files, for one task."""

    def __init__(self, spout: HdfsLines) -> None:
        self._spout = spout
        self._source: Source = source_of(spout.path)
        self._files: Store | None = None
        self._arrivals: Arrivals | None = None
        self._splits: list[Split] = []
        #: Splits of which a line that was left out has been told of.
        self._told: set[Unit] = set()
        self._context: Context | None = None

    def open(self, context: Context) -> None:
        """Open the folder that the path names, or begins with."""
        self._context = context
        if self._files is None:
            self._files = open_steady(self._source.folder, self._spout.conf)
        if self._spout.follow and self._is_folder() is False:
            raise UnreadableFile(
                f"{self._spout.path} is a file: what comes to a folder, or fits a pattern, can be followed; give one, or leave"
                " follow away"
            )

    @property
    def reads(self) -> str:
        """The path."""
        return self._spout.path

    @property
    def home(self) -> str:
        """The folder that the path is of, or that its files lie below."""
        source = self._source
        if source.parts and not source.is_pattern and (self._spout.follow or self._is_folder()):
            return f"{source.folder}/{source.parts[0]}"
        return source.folder

    def positions(self, folder: str) -> Store:
        """Open a folder of positions."""
        kept = open_steady(folder, self._spout.conf)
        self._arrivals = Arrivals(self._opened, self._source, kept, self._spout.split_bytes)
        return kept

    def snapshot(self) -> Mapping[str, Any]:
        """The files that are there; nothing of the sort when they are followed."""
        return {} if self._spout.follow else self._files_found.snapshot(self._opened_by.now())

    def units(self, snapshot: Mapping[str, Any]) -> Iterable[Unit]:
        """A unit for each split of the files that are to be read so far."""
        self._splits = []
        return self._cut(self._files_found.begin(None if self._spout.follow else snapshot))

    def more(self) -> tuple[Iterable[Unit], float] | None:
        """The splits of files that have come; None unless they are followed."""
        found, context = self._files_found, self._opened_by
        if found.problems:
            raise found.problems.popleft()
        if not self._spout.follow:
            return None
        return self._cut(found.look(context.index == 0, context.now())), LOOK_SECONDS

    def _cut(self, files: Iterable[FoundFile]) -> list[Unit]:
        first = len(self._splits)
        self._splits += splits_of(files)
        return [Unit(_SERIES, number) for number in range(first, len(self._splits))]

    def name(self, unit: Unit) -> object:
        """The split's number."""
        return unit.number

    @property
    def _opened(self) -> Store:
        assert self._files is not None, "opened first"
        return self._files

    @property
    def _opened_by(self) -> Context:
        assert self._context is not None, "opened first"
        return self._context

    @property
    def _files_found(self) -> Arrivals:
        assert self._arrivals is not None, "positions are opened first"
        return self._arrivals

    def _is_folder(self) -> bool | None:
        """Whether a path without a pattern names a folder; None: nothing is there, or it has a pattern."""
        source = self._source
        if not source.parts or source.is_pattern:
            return None
        place = next((each for each in self._opened.list("") if each.name == source.parts[0]), None)
        return None if place is None else place.is_folder

    def close(self) -> None:
        """Close the store."""
        if self._files is not None:
            self._files.close()

    def items(self, unit: Unit, position: int) -> Iterator[Item]:
        """The lines of a split; what cannot be read as it should be raises `UnreadableFile`."""
        split = self._splits[unit.number]
        whole = f"{self._opened.root}/{split.path}"
        try:
            yield from self._texts(self._lines(split, position), unit, whole)
        except (ShortFile, Damaged) as error:
            raise UnreadableFile(
                f"{whole} cannot be read: {error}. What came before it was read; put the file right, and reading goes on"
            ) from None

    def _lines(self, split: Split, position: int) -> Iterator[Line]:
        files = self._opened

        def read(offset: int, length: int) -> bytes:
            return files.read(split.path, offset, length)

        if split.packed:
            return packed_lines(read, split.path[split.path.rindex(".") :], position)
        return lines_of_split(read, split.start, split.end, split.size, position)

    def _texts(self, lines: Iterator[Line], unit: Unit, whole: str) -> Iterator[Item]:
        """The tuples of lines."""
        encoding, errors = self._spout.encoding, self._spout.errors
        only_line = self._spout.fields == ("line",)
        utf8 = codecs.lookup(encoding).name == "utf-8"
        for place, after, data in lines:
            if data is None:
                yield from self._left_out(f"it has more than {LONGEST} bytes", whole, place, after, unit)
                continue
            if utf8 and place == 0 and data.startswith(codecs.BOM_UTF8):
                data = data[len(codecs.BOM_UTF8) :]
            try:
                line = data.decode(encoding, errors)
            except UnicodeError as error:
                yield from self._left_out(f"it is no text in {encoding}: {error}", whole, place, after, unit)
                continue
            if only_line:
                yield place, after, (line,)
            else:
                values = {"line": line, "file": whole, "offset": place}
                yield place, after, tuple(values[name] for name in self._spout.fields)

    def _left_out(self, why: str, whole: str, place: int, after: int, unit: Unit) -> Iterator[Item]:
        """Count a line that no tuple is made of; the first one of each split is an error to report."""
        self._opened_by.counter("lines left out").add()
        if unit not in self._told:
            self._told.add(unit)
            yield (
                place,
                after,
                UnreadableLines(
                    f"the line at byte {place} of {whole} was left out: {why}. Others of this split that are left out are only"
                    " counted, as 'lines left out'"
                ),
            )


def _path_problems(path: object, positions: object) -> Iterator[str]:
    wrong = list(positions_problems(positions))
    try:
        source = source_of(path)  # type: ignore[arg-type]
    except (InvalidPath, TypeError) as error:
        yield str(error) if isinstance(error, InvalidPath) else f"path is {typed(path)}: give a str"
    else:
        if isinstance(positions, str) and not wrong and covers(source, positions):
            yield (
                f"positions: {positions} is among what is read of {path}: give a folder elsewhere, or one whose name begins"
                ' with "_"'
            )
    yield from wrong


def _field_problems(names: tuple[object, ...]) -> Iterator[str]:
    if not names or len(set(names)) < len(names) or not set(names) <= set(FIELDS):
        yield f"fields are {shown(names)}: give some of {listed(FIELDS)}, each once"


def _text_problems(encoding: object, errors: object) -> Iterator[str]:
    try:
        end = "\n".encode(encoding)  # type: ignore[arg-type]
    except (LookupError, TypeError) as error:
        yield f"encoding is {typed(encoding)}: {error}; give the name of one of Python's, such as 'utf-8'"
    else:
        if end != b"\n":
            yield (
                f"encoding is {encoding!r}, in which the end of a line is {end!r}: lines are found by the byte \\n, so files in"
                " this encoding cannot be cut into lines"
            )
    if errors not in ERRORS:
        yield f"errors is {typed(errors)}: give one of {listed(ERRORS)}"


def _split_problems(split_bytes: object) -> Iterator[str]:
    if type(split_bytes) is not int or not SMALLEST_SPLIT <= split_bytes <= LARGEST_SPLIT:
        yield f"split_bytes is {typed(split_bytes)}: give an int from {SMALLEST_SPLIT} to {LARGEST_SPLIT}"
