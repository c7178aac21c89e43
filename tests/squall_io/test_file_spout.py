"""One task of a FileSpout on real files: each line once, whatever happens to the files, and the rest after a rewind."""

from __future__ import annotations

import bz2
import gzip
import logging
import os
import random
import tempfile
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from squall_io.files import FileSpout, reading
from squall_io.files.finding import is_removed
from squall_io.files.reading import POLL_SECONDS, RETRY_SECONDS, FileTask, LostPosition, NothingToRead
from squall_io.lines import cutting
from squall_io.lines.errors import UnreadableFile, UnreadableLines
from tests.squall_io.rotated_logs import append, rotate
from topology_api import Context, InvalidConfig


class Metrics:
    """A Context's metrics, of which only the gauge is kept."""

    def counter(self, name: str) -> Any:
        return self

    def add(self, count: int = 1) -> None: ...

    def gauge(self, name: str, function: Any) -> None:
        self.files = function

    histogram = cast(Any, None)


class Reader:
    """A task with a clock of its own."""

    def __init__(self, path: object, index: int = 0, parallelism: int = 1, **arguments: Any) -> None:
        self.now = 1000.0
        self.metrics = Metrics()
        spout = FileSpout(str(path), **arguments)
        context = Context(
            topology="reader", topology_id="reader-1", component="lines", task=1, index=index, parallelism=parallelism,
            conf={}, tasks=lambda component: [], log=logging.getLogger("task"), metrics=self.metrics, resources={},
            directory=lambda: "", now=lambda: self.now, random=random.Random(0), wake=lambda: None,
        )  # fmt: skip
        self.task = FileTask(spout, context)
        self.task.start()
        self.ids: list[object] = []

    def read(self, most: int | None = None) -> list[Any]:
        """The next lines: at most `most`, or all that three polls find."""
        found: list[Any] = []

        def emit(values: object, message_id: object) -> None:
            found.append(values)
            self.ids.append(message_id)

        polls = 0
        while polls < 3 and (most is None or len(found) < most) and not self.task.finished:
            before = len(found)
            wait = self.task.next(emit)
            if wait:
                assert len(found) == before
                assert wait <= POLL_SECONDS, "new lines would come late"
                self.now += wait
                polls += 1
        return [values[0] if len(values) == 1 else values for values in found]

    def rewound(self, position: Any) -> Reader:
        self.task.rewind(position)
        return self


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "app.log"


def test_lines_are_emitted_as_they_are_completed(log: Path) -> None:
    append(log, "one\ntw")
    reader = Reader(log)
    assert reader.read() == ["one"]
    append(log, "o\r\n\nthree\nfo")
    assert reader.read() == ["two", "", "three"]
    assert reader.read() == []
    append(log, "ur\n")
    assert reader.read() == ["four"]


def test_a_spout_that_looks_often_waits_as_little(log: Path) -> None:
    append(log, "one\n")
    reader = Reader(log, poll_interval=0.2)
    assert reader.read() == ["one"]
    append(log, "two\n")
    before = reader.now
    assert reader.read(most=1) == ["two"] and reader.now - before <= 0.2


def test_without_follow_the_last_line_needs_no_newline_and_the_task_ends(log: Path) -> None:
    append(log, "one\ntwo")
    reader = Reader(log, follow=False)
    assert reader.read() == ["one", "two"]
    assert reader.task.finished


def test_a_renamed_file_is_read_to_its_end_before_the_new_one(log: Path) -> None:
    append(log, "1\n2\n")
    reader = Reader(log)
    assert reader.read() == ["1", "2"]
    append(log, "3\n")
    with log.open("a") as writer:
        rotate(log)
        log.touch()
        assert reader.read() == ["3"]
        writer.write("4\nlast")  # the writer has not opened the new file yet
    append(log, "5\n")
    assert reader.read() == ["4", "last", "5"]


def test_files_rotated_between_two_polls_are_read_in_order(log: Path) -> None:
    append(log, "1\n")
    reader = Reader(log)
    reader.read()
    for number in range(2, 13):
        append(log, f"{number}a\n")
        rotate(log)
        append(log, f"{number}b\n")
    assert reader.read() == [f"{number}{part}" for number in range(2, 13) for part in "ab"]


@pytest.mark.parametrize("name", ["app.log.{}", "app.log-2026112{}", "app.log.2026-11-2{}_03"])
def test_rotated_files_are_ordered_by_their_last_write_however_they_are_numbered(
    log: Path, name: str
) -> None:
    append(log, "0\n")
    reader = Reader(log)
    got = reader.read()
    for number in range(1, 6):
        os.utime(log, (number, number))
        os.rename(log, log.parent / name.format(number))
        append(log, f"{number}\n")
        if number % 2:
            got += reader.read()
    assert got == ["0", "1", "2", "3", "4", "5"]


@pytest.mark.parametrize("pattern", ["app.log*", ""])
def test_earlier_generations_that_match_are_read_first_and_once(log: Path, pattern: str) -> None:
    for number in range(3):
        append(log, f"{number}\n")
        rotate(log)
    append(log, "3\n")
    reader = Reader(log.parent / pattern)
    assert reader.read() == ["0", "1", "2", "3"]
    rotate(log)
    assert reader.read() == []
    append(log, "4\n")
    rotate(log)
    append(log, "5\n")
    assert reader.read() == ["4", "5"]
    assert list(reader.task.position()) == [str(log)]


def test_a_truncated_file_is_read_from_its_beginning(log: Path, caplog: pytest.LogCaptureFixture) -> None:
    append(log, "one\ntwo\nunfinished")
    reader = Reader(log)
    assert reader.read() == ["one", "two"]
    os.truncate(log, 0)
    append(log, "three\n")
    assert reader.read() == ["three"]
    assert f"{log} was truncated to 6 bytes after 18 were read" in caplog.text


def test_a_missing_file_is_waited_for_and_reported(log: Path, caplog: pytest.LogCaptureFixture) -> None:
    reader = Reader(log)
    assert reader.read() == []
    assert reader.metrics.files() == 0
    assert caplog.text.count("waits until there is one") == 1
    append(log, "one\n")
    assert reader.read() == ["one"]
    assert reader.metrics.files() == 1


def test_a_removed_file_leaves_the_position_and_may_be_created_again(log: Path) -> None:
    append(log, "one\ntwo")
    reader = Reader(log)
    assert reader.read() == ["one"]
    log.unlink()
    assert reader.read() == ["two"]
    assert reader.task.position() == {}
    append(log, "three\n")
    assert reader.read() == ["three"]


def test_files_that_come_later_are_read_and_hidden_or_compressed_ones_are_not(tmp_path: Path) -> None:
    reader = Reader(tmp_path)
    reader.read()
    append(tmp_path / "_a", "hidden\n")
    append(tmp_path / ".a", "hidden\n")
    (tmp_path / "_day").mkdir()
    append(tmp_path / "_day" / "a", "hidden\n")
    (tmp_path / "day" / "one").mkdir(parents=True)
    append(tmp_path / "day" / "one" / "a", "seen\n")
    (tmp_path / "a.gz").write_bytes(gzip.compress(b"packed\n"))
    os.mkfifo(tmp_path / "pipe")
    assert reader.read() == ["seen"]
    os.rename(tmp_path / "_a", tmp_path / "b")
    assert reader.read() == ["hidden"]
    assert Reader(f"{tmp_path}/**/a").read() == ["seen"]


def test_a_file_with_two_names_is_read_once(tmp_path: Path) -> None:
    append(tmp_path / "b", "one\n")
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "c").hardlink_to(tmp_path / "b")
    reader = Reader(tmp_path)
    assert reader.read() == ["one"]
    append(tmp_path / "b", "two\n")
    assert reader.read() == ["two"]


def test_a_link_that_names_another_file_is_like_a_rotation(tmp_path: Path) -> None:
    append(tmp_path / "mon", "1\n")
    append(tmp_path / "tue", "3\n")
    (tmp_path / "now").symlink_to("mon")
    reader = Reader(tmp_path / "now")
    assert reader.read() == ["1"]
    position = reader.task.position()
    append(tmp_path / "mon", "2\n")
    (tmp_path / "new").symlink_to("tue")
    os.rename(tmp_path / "new", tmp_path / "now")
    assert reader.read() == ["2", "3"]
    assert Reader(tmp_path / "now").rewound(position).read() == ["2", "3"]


def test_each_file_is_read_by_one_task_which_depends_on_its_path_only(tmp_path: Path) -> None:
    for number in range(40):
        append(tmp_path / f"{number}x", f"{number}\n")
    readers = [Reader(tmp_path, index, 3) for index in range(3)]
    shares = [reader.read() for reader in readers]
    assert sorted(line for share in shares for line in share) == sorted(map(str, range(40)))
    assert all(shares)
    assert [Reader(tmp_path, index, 3).read() for index in range(3)] == shares


def test_more_files_than_a_task_holds_open_are_read_and_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "MOST_OPEN", 3)
    monkeypatch.setattr(cutting, "SLICE", 4)
    for turn in range(2):
        for number in range(10):
            append(tmp_path / f"{number}x", f"{turn}/{number}\n" * 3)
        if turn == 0:
            reader = Reader(tmp_path)
        assert sorted(reader.read()) == sorted(f"{turn}/{number}" for number in range(10) for _ in range(3))
        assert len(reader.task._open) == 3
        rotate(tmp_path / "0x")
    reader.task.close()
    assert not reader.task._open


def test_packed_files_are_unpacked_without_follow(tmp_path: Path) -> None:
    (tmp_path / "a.gz").write_bytes(gzip.compress(b"one\ntwo\n"))
    (tmp_path / "b.bz2").write_bytes(bz2.compress(b"three\nfour"))
    reader = Reader(tmp_path, follow=False)
    first = reader.read(3)
    position = reader.task.position()
    assert first + reader.read() == ["one", "two", "three", "four"]
    rest = Reader(tmp_path, follow=False).rewound(position)
    assert rest.read() == ["four"]
    assert rest.task.finished


def test_fields_give_the_path_and_the_position_and_a_byte_order_mark_is_no_text(log: Path) -> None:
    append(log, b"\xef\xbb\xbfone\r\ntwo\n")
    reader = Reader(log, fields=("offset", "line", "file"))
    assert reader.read() == [(0, "one", str(log)), (8, "two", str(log))]
    inode = log.stat().st_ino
    assert reader.ids == [(str(log), inode, 0), (str(log), inode, 8)]


def test_a_line_that_is_no_text_is_reported_once_for_each_file(log: Path) -> None:
    append(log, b"a\n\xff\nb\n\xff\nc\n")
    reader = Reader(log)
    assert reader.read(1) == ["a"]
    with pytest.raises(
        UnreadableLines, match=r"the line at byte 2 of /.*app\.log was left out: it is not text"
    ):
        reader.read()
    assert reader.task.position() == {str(log): [log.stat().st_ino, 4]}
    assert reader.read() == ["b", "c"]


def test_a_damaged_file_is_read_once_it_is_repaired_and_the_others_meanwhile(tmp_path: Path) -> None:
    whole = gzip.compress(b"one\n" * 1000)
    (tmp_path / "a.gz").write_bytes(whole[:-10])
    append(tmp_path / "b", "two\n")
    reader = Reader(tmp_path, follow=False)
    with pytest.raises(UnreadableFile, match=r"a\.gz cannot be read: it is truncated"):
        reader.read()
    assert reader.task.next(lambda values, message_id: None) is None
    wait = reader.task.next(lambda values, message_id: None)
    assert wait == RETRY_SECONDS
    (tmp_path / "a.gz").write_bytes(whole)
    reader.now += wait
    while not reader.task.finished:
        reader.task.next(lambda values, message_id: None)
    assert reader.task.position()[f"{tmp_path}/a.gz"][1] == 4000


def test_nothing_to_read_and_compressions_that_are_not_supported_are_refused_at_the_start(
    tmp_path: Path,
) -> None:
    with pytest.raises(
        NothingToRead, match=r"no file is at .*/\*\.log, or fits it: .* with follow=True the spout waits"
    ):
        Reader(tmp_path / "*.log", follow=False)
    append(tmp_path / "a.zst", "x")
    with pytest.raises(
        UnreadableFile, match=r"a\.zst: lines are read from plain files and from \.gz, \.bz2 only"
    ):
        Reader(tmp_path, follow=False)


def test_all_mistakes_in_the_arguments_are_reported_at_once() -> None:
    with pytest.raises(InvalidConfig) as caught:
        FileSpout(
            "logs",
            follow="yes",  # type: ignore[arg-type]
            poll_interval=True,
            fields="name",
            encoding="utf-16",
            errors="loud",
            replay=3,  # type: ignore[arg-type]
        )
    text = str(caught.value)
    assert len(caught.value.problems) == 7
    for part in ("'logs'", "'yes'", "True (bool)", "'name'", "utf-16", "'loud'", "3 (int)"):
        assert part in text
    for path, said in (
        ("hdfs://h/a", "HdfsLines of squall_io.spark reads others"),
        (5, "give text, or a pathlib.Path"),
        ("/a.gz", "a compressed file cannot be followed"),
    ):
        with pytest.raises(InvalidConfig, match=said):
            FileSpout(path)  # type: ignore[arg-type]


def test_a_file_that_is_gone_or_has_shrunk_is_named_when_the_spout_rewinds(log: Path) -> None:
    append(log, "one\ntwo\n")
    reader = Reader(log)
    reader.read()
    position = reader.task.position()
    os.truncate(log, 4)
    with pytest.raises(
        LostPosition,
        match=r"app\.log has 4 bytes, and was read up to byte 8\. .* Put the file back, or start",
    ):
        Reader(log).rewound(position)
    log.unlink()
    with pytest.raises(LostPosition, match=r"app\.log is gone: its inode \d+ was read up to byte 8"):
        Reader(log).rewound(position)
    assert Reader(log, 1 - _owner(log), 2).rewound(position).read() == [], "another task owns the file"
    for other in ({"a": 1}, [1], {"a": [1, "b"]}, {"a": [1, -1]}):
        with pytest.raises(LostPosition, match="is no position of a FileSpout"):
            Reader(log).rewound(other)


@pytest.mark.parametrize(("before", "now"), [(2, 5), (3, 1), (1, 4)])
def test_another_number_of_tasks_goes_on_where_those_before_had_come_to(
    tmp_path: Path, before: int, now: int
) -> None:
    paths = [tmp_path / f"{number}.log" for number in range(12)]
    for path in paths:
        append(path, "one\ntwo\nthree\n")
    readers = [Reader(tmp_path, index, before) for index in range(before)]
    found = [reader.read(index + 7) for index, reader in enumerate(readers)]
    append(paths[3], "four\n")
    merged = FileSpout(tmp_path).merge_positions([reader.task.position() for reader in readers])
    found += [Reader(tmp_path, index, now).rewound(merged).read() for index in range(now)]
    lines = Counter(line for each in found for line in each)
    assert lines == {"one": 12, "two": 12, "three": 12, "four": 1}


def _owner(path: Path) -> int:
    return zlib.crc32(str(path).encode()) % 2


def test_a_position_from_before_the_first_line_holds_the_files_that_exist(log: Path) -> None:
    append(log, "one\n")
    position = Reader(log).task.position()
    assert position == {str(log): [log.stat().st_ino, 0]}
    rotate(log)
    append(log, "two\n")
    assert Reader(log).rewound(position).read() == ["one", "two"]
    assert Reader(log).rewound(None).read() == ["two"]


def test_a_file_that_is_out_of_reach_is_not_taken_for_removed(log: Path) -> None:
    assert is_removed(str(log))
    log.touch()
    assert is_removed(f"{log}/below a file")
    assert not is_removed(f"{log.parent}/{'x' * 300}"), "an error that says nothing of the file"


# Anything, in any order


@pytest.fixture(autouse=True)
def small_slices(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Slices of five bytes, so that lines span many."""
    monkeypatch.setattr(cutting, "SLICE", 5)
    yield


TEXT = st.sampled_from(["a\n", "b", "\n", "c\nd", "\r\n", "e" * 7, "f" * 7 + "\n", "g\nh\ni\n"])
STEP = st.one_of(
    TEXT.map(lambda text: ("append", text)),
    st.sampled_from([("rotate", ""), ("create", ""), ("restart", ""), ("read all", "")]),
    st.integers(1, 4).map(lambda count: ("read", count)),
)


class World:
    """A log that is written and rotated, and what its lines are."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.texts = [""]
        path.touch()

    def step(self, what: str, text: Any) -> None:
        if what == "append":
            append(self.path, text)
            self.texts[-1] += text
        elif what == "rotate" and self.path.exists():
            rotate(self.path)
            self.texts.append("")
        elif what == "create":
            self.path.touch()

    def lines(self) -> list[str]:
        """All lines; an unfinished one counts once a later file has got something."""
        written = [text for text in self.texts if text]
        found = []
        for number, text in enumerate(written, 1):
            lines = text.split("\n")
            last = lines.pop()
            found += [line.removesuffix("\r") for line in lines]
            if last and number < len(written):
                found.append(last)
        return found


@given(st.lists(STEP, max_size=30), st.sampled_from(["app.log", "app.log*", "app.*", ""]))
@settings(max_examples=60, deadline=None)
def test_whatever_happens_each_line_is_emitted_once_and_the_rest_after_a_rewind_to_any_position(
    steps: list[tuple[str, Any]], pattern: str
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder) / "app.log")
        path = Path(folder) / pattern
        reader = Reader(path)
        got = reader.read()
        positions = [(len(got), reader.task.position())]
        for what, value in steps:
            world.step(what, value)
            if what == "restart":
                del positions[len(positions) // 2 + 1 :]  # they are of a life that is forgotten
                count, position = positions[-1]
                reader.task.close()
                reader = Reader(path).rewound(position)
                del got[count:]
            elif what.startswith("read"):
                got += reader.read(value if what == "read" else None)
            positions.append((len(got), reader.task.position()))
            assert got == world.lines()[: len(got)]
        got += reader.read()
        assert got == world.lines()
        reader.task.close()
        for count, position in positions:
            again = Reader(path).rewound(position)
            assert again.read() == world.lines()[count:]
            again.task.close()
