"""Output and log messages of user code in a worker process are in the worker's log, line by line, with their task."""

from __future__ import annotations

import io
import logging
import os
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from squall.worker_files import LOG, OUTPUT
from tests.worker.conftest import Launch
from tests.worker.daemon_components import (
    Floods,
    LogsValues,
    Notes,
    Speaks,
    SpeaksAwaiting,
    SpeaksInThread,
    lines,
    one_bolt,
)
from tests.worker.fake_supervisor import FakeSupervisor
from worker.process.logs import LONGEST_LINE, MOST_BYTES, OLDER_FILES, LogFile, LogStream, open_log

LINE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} ([A-Z]+ .*)")


def said(worker: FakeSupervisor) -> list[str]:
    """The lines of the log without their times; each line has one."""
    found = []
    for line in worker.log().splitlines():
        match = LINE.fullmatch(line)
        assert match, line
        found.append(match[1])
    return found


def run_to_end(worker: FakeSupervisor) -> None:
    worker.wait_heartbeat(lambda heartbeat: heartbeat.ended)
    worker.order("stop")
    worker.wait_end()


def test_a_logged_value_forges_no_entry(launch: Launch, tmp_path: Path) -> None:
    worker = launch(one_bolt(LogsValues(), tmp_path, 1))
    run_to_end(worker)
    lines = worker.log().splitlines()
    [at] = [number for number, line in enumerate(lines) if line.endswith(" INFO bolt[2] got a")]
    assert lines[at + 1] == "    2026-03-01 12:00:00,123 ERROR other[9] forged\\x1b[2J"


def test_every_kind_of_output_is_logged_with_its_task(launch: Launch, tmp_path: Path) -> None:
    worker = launch(one_bolt(Speaks(), tmp_path, 1))
    run_to_end(worker)
    own = [line for line in said(worker) if " bolt[2] " in line]
    assert own == [
        "INFO bolt[2] prepared",
        "INFO bolt[2] by print",
        "INFO bolt[2] two",
        "INFO bolt[2] lines",
        "WARNING bolt[2] by stderr",
        "INFO bolt[2] by bytes",
        "WARNING bolt[2] by a logger",
        "INFO bolt[2] by the task's logger",
        "INFO bolt[2] by a thread of the user's",
    ]
    assert "INFO w1 without an end" in said(worker)


def test_output_of_c_code_and_child_processes_is_in_the_output_file(launch: Launch, tmp_path: Path) -> None:
    worker = launch(one_bolt(Speaks(), tmp_path, 1))
    run_to_end(worker)
    assert worker.output().splitlines() == ["by C code", "by a child", "by a child given stdout"]


@pytest.mark.parametrize(
    ("bolt", "text"), [(SpeaksInThread(), "in a thread"), (SpeaksAwaiting(), "in a coroutine")]
)
def test_tasks_outside_of_the_loop_are_named_too(
    launch: Launch, tmp_path: Path, bolt: SpeaksInThread | SpeaksAwaiting, text: str
) -> None:
    worker = launch(one_bolt(bolt, tmp_path, 2))
    run_to_end(worker)
    assert [line for line in said(worker) if text in line] == [f"INFO bolt[2] {text}"] * 2


def test_the_workers_own_lines_have_its_name_and_the_first_one_describes_it(
    launch: Launch, tmp_path: Path
) -> None:
    worker = launch(one_bolt(Notes(tmp_path), tmp_path, 1))
    run_to_end(worker)
    own = [line for line in said(worker) if line.startswith("INFO w1 ")]
    assert own[0].startswith(
        f"INFO w1 worker w1 of topology 't' (t-1), incarnation 1.0, process {worker.pid}"
    )
    assert own[1].startswith("INFO w1 tasks: numbers[1], bolt[2]; receives tuples at tcp://127.0.0.1:")
    assert own[-1] == "INFO w1 ends (status 0): stopped as ordered"


@pytest.mark.slow
def test_a_full_log_is_renamed_and_the_worker_goes_on(launch: Launch, tmp_path: Path) -> None:
    worker = launch(one_bolt(Floods(), tmp_path, 15))
    run_to_end(worker)
    sizes = {path.name: path.stat().st_size for path in worker.directory.glob(f"{LOG}*")}
    assert set(sizes) == {LOG, f"{LOG}.1"}
    assert all(size <= MOST_BYTES for size in sizes.values())
    parts = [line.split(" ")[2] for line in said(worker) if " bolt[2] " in line]
    assert parts == [f"{number}.{part}" for number in range(1, 16) for part in range(100)]


def test_a_log_on_a_full_disk_costs_lines_and_not_the_worker(launch: Launch, tmp_path: Path) -> None:
    (tmp_path / "w1").mkdir()
    (tmp_path / "w1" / LOG).symlink_to("/dev/full")
    worker = launch(one_bolt(Speaks(), tmp_path, 20))
    run_to_end(worker)
    assert lines(tmp_path / "acked") == [str(number) for number in range(1, 21)]
    assert worker.output().count("worker log: a line is lost") == 1


# The parts.


@pytest.fixture
def records() -> Iterator[list[logging.LogRecord]]:
    """Messages logged while a test runs."""
    found: list[logging.LogRecord] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            found.append(record)

    handler = Keep()
    logging.getLogger().addHandler(handler)
    yield found
    logging.getLogger().removeHandler(handler)


def texts(records: list[logging.LogRecord]) -> list[str]:
    return [record.getMessage() for record in records]


def test_a_line_is_logged_when_it_is_complete_and_not_before(records: list[logging.LogRecord]) -> None:
    stream = LogStream(logging.INFO, 1)
    print("one", "two", end=" ", file=stream, flush=True)
    assert not records
    print("three", file=stream)
    stream.writelines(["a\nb", "\r\n", "\n\n", "100%s left"])
    stream.finish()
    assert texts(records) == ["one two three", "a", "b", "100%s left"]


def test_threads_that_print_at_the_same_time_do_not_mix_their_lines(records: list[logging.LogRecord]) -> None:
    stream = LogStream(logging.INFO, 1)
    stream.write("main ")

    def other() -> None:
        stream.write("other thread\n")

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    stream.write("thread\n")
    assert texts(records) == ["other thread", "main thread"]


def test_a_line_that_never_ends_is_logged_in_pieces(records: list[logging.LogRecord]) -> None:
    stream = LogStream(logging.INFO, 1)
    for _ in range(100):
        stream.write("x" * 1000)
    stream.finish()
    assert "".join(texts(records)) == "x" * 100_000
    assert max(map(len, texts(records))) == LONGEST_LINE


def test_bytes_that_are_no_text_are_logged_escaped(records: list[logging.LogRecord]) -> None:
    stream = LogStream(logging.INFO, 1)
    assert stream.buffer.write(b"\xff\xfe ok\n") == 6
    assert texts(records) == ["\\xff\\xfe ok"]


def test_the_streams_behave_as_programs_expect() -> None:
    stream = LogStream(logging.INFO, 1)
    assert (stream.writable(), stream.readable(), stream.isatty(), stream.fileno()) == (True, False, False, 1)
    assert stream.encoding == "utf-8"
    with pytest.raises(TypeError):
        stream.write(b"bytes")  # type: ignore[arg-type]
    with pytest.raises(io.UnsupportedOperation):
        stream.read()


def test_lost_lines_are_counted_and_reported_when_there_is_space_again(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / LOG
    handler = LogFile(str(path))
    handler.setFormatter(logging.Formatter("%(message)s"))

    def say(text: str) -> None:
        handler.emit(logging.LogRecord("", logging.INFO, "", 0, text, None, None))

    path.symlink_to("/dev/full")
    say("one")
    say("two")
    with suppress(OSError):  # its contents cannot be written either
        handler.close()
    path.unlink()
    say("three")
    handler.close()
    assert path.read_text().splitlines() == [
        "three",
        "2 lines were lost before this one: they could not be written",
    ]
    assert capfd.readouterr().err.count("a line is lost") == 1


def test_a_forked_child_does_not_rename_its_parents_log(tmp_path: Path) -> None:
    handler = LogFile(str(tmp_path / LOG))
    assert handler.maxBytes == MOST_BYTES and handler.backupCount == OLDER_FILES
    pid = os.fork()
    if pid == 0:
        os._exit(0 if handler.maxBytes == 0 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    handler.close()


def test_output_that_grows_for_ever_is_rotated(tmp_path: Path) -> None:
    from worker.process.heartbeat import MOST_OUTPUT, bound_output

    path = tmp_path / OUTPUT
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(descriptor, b"x" * MOST_OUTPUT)
    bound_output(str(tmp_path))
    assert path.stat().st_size == MOST_OUTPUT
    os.write(descriptor, b"the end")
    bound_output(str(tmp_path))
    os.write(descriptor, b"more")
    os.close(descriptor)
    assert path.read_bytes() == b"more"
    assert (tmp_path / f"{OUTPUT}.1").read_bytes().endswith(b"xthe end")
    bound_output(str(tmp_path / "nowhere"))


def test_a_users_handler_that_writes_to_stderr_does_not_loop_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])
    monkeypatch.setattr(sys, "stdout", sys.stdout)
    monkeypatch.setattr(sys, "stderr", sys.stderr)
    open_log(str(tmp_path), "w1")
    file = root.handlers[0]
    root.addHandler(logging.StreamHandler())  # on sys.stderr, which is captured
    logging.getLogger("user").warning("once")
    print("printed")
    file.close()
    text = (tmp_path / "worker.log").read_text()
    assert text.count("once") == 2, "by the worker's log, and by the user's own handler"
    assert text.count("printed") == 1
