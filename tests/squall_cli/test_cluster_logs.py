"""The end of a remote log: found, followed, filtered, and merged with those of other workers."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from squall.api.answers import LogAnswer
from squall.values import Incarnation
from squall_cli.cluster.cluster_client import connect
from squall_cli.cluster.log_tail import FIRST, LogEntry, Tail, entries, merged
from squall_cli.commands.logs import LAST_WORDS, LogReader
from squall_cli.main import squall
from tests.squall_cli.fake_nimbus import FakeNimbus, fake_nimbus, topology, worker
from tests.squall_cli.run_process import running_squall


class Log:
    """A log of bytes with a supervisor's answers; `most`: the limit of bytes in one answer."""

    def __init__(self, text: str = "", most: int = 1 << 30) -> None:
        self.data = text.encode()
        self.most = most

    def ask(self, offset: int, limit: int) -> LogAnswer:
        start = max(0, len(self.data) + offset) if offset < 0 else min(offset, len(self.data))
        piece = self.data[start : start + min(limit, self.most)]
        return LogAnswer("w1", Incarnation(1, 0), start, start + len(piece), len(self.data), piece.decode())

    def tail(self) -> Tail:
        return Tail("w1", "host-1", self.ask)


def line(number: int, place: str = "count[2]", text: str = "text") -> str:
    return f"2026-03-01 12:00:00,{number % 1000:03} INFO {place} {text} {number}\n"


def texts(found: list[LogEntry]) -> list[str]:
    return [entry.text for entry in found]


def test_lines_without_a_time_belong_to_the_entry_before() -> None:
    found = entries("w", "h", ["odd", *line(1).splitlines(), "  more", "", "and more"])
    assert texts(found) == ["odd", "text 1\n  more\n\nand more"]
    assert found[1].lines == [line(1).rstrip(), "      more", "    ", "    and more"]
    assert (found[1].time, found[1].level, found[1].place) == ("2026-03-01 12:00:00,001", "INFO", "count[2]")


@given(st.integers(0, 60), st.integers(0, 40), st.integers(1, 3000))
def test_the_last_entries_are_found_however_the_log_is_cut(total: int, wanted: int, most: int) -> None:
    log = Log("".join(line(number, text="x" * 700) for number in range(total)), most)
    found = log.tail().last(wanted)
    assert [int(text.rpartition(" ")[2]) for text in texts(found)] == list(range(total))[-wanted or total :]


def test_the_last_entries_of_a_component_are_searched_further_back() -> None:
    log = Log(line(0, "words[1]") + "".join(line(number) for number in range(1, 2000)))
    assert len(log.data) > 2 * FIRST
    assert texts(log.tail().last(5, "words")) == ["text 0"]
    assert log.tail().last(5, "word") == []


def test_a_log_is_followed_from_its_end_and_no_line_is_cut_in_two() -> None:
    log = Log(line(1) + line(2)[:30])
    tail = log.tail()
    assert texts(tail.last(10)) == ["text 1"]
    assert tail.more() == []
    log.data += line(2)[30:].encode() + line(3)[:10].encode()
    assert texts(tail.more()) == ["text 2"]
    log.data += line(3)[10:].encode()
    assert texts(tail.more()) == ["text 3"]


@given(st.lists(st.integers(0, 200), max_size=20), st.integers(1, 100))
def test_following_shows_every_line_once(pieces: list[int], most: int) -> None:
    whole = "".join(line(number) for number in range(40)).encode()
    log, ends, found = Log(most=most), 0, []
    tail = log.tail()
    tail.last(0)
    for piece in [*pieces, len(whole)]:
        ends += piece
        log.data = whole[:ends]
        while fresh := tail.more():
            found += texts(fresh)
    while tail.offset != len(whole):
        found += texts(tail.more())
    assert found == [f"text {number}" for number in range(40)]


def test_an_incomplete_line_is_shown_when_there_is_no_waiting_for_its_end() -> None:
    assert texts(Log(line(1) + "Killed").tail().last(5, following=False)) == ["text 1\nKilled"]
    assert texts(Log("Killed").tail().last(5, following=False)) == ["Killed"]


def test_a_log_that_starts_again_is_read_from_its_beginning() -> None:
    log = Log(line(1) + line(2))
    tail = log.tail()
    tail.last(10)
    log.data = line(3).encode()  # rotated
    assert texts(tail.more()) == ["text 3"]


def test_a_worker_that_is_restarted_continues_in_its_log() -> None:
    log = Log(line(1) + line(2))
    tail = log.tail()
    tail.last(10)
    log.data += line(3).encode()
    assert texts(tail.more()) == ["text 3"]


def test_logs_are_merged_by_time_and_each_keeps_its_order() -> None:
    a = entries("a", "h", [line(1).strip(), line(5).strip(), line(3).strip()])
    b = entries("b", "h", [line(2).strip(), line(4).strip()])
    assert texts(merged([a, b])) == ["text 1", "text 2", "text 4", "text 5", "text 3"]


# The command


@pytest.fixture
def nimbus(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeNimbus]:
    monkeypatch.chdir(tmp_path)
    with fake_nimbus() as there:
        monkeypatch.setenv("SQUALL_NIMBUS", there.url)
        there.put(topology("word_count"))
        there.logs["word_count-w1", "worker"] = (line(1) + line(3, "words[1]")).encode()
        there.logs["word_count-w2", "worker"] = (line(2, "count[3]") + "  more\n").encode()
        yield there


def run(line: str) -> Result:
    return CliRunner().invoke(squall, line.split(), prog_name="squall")


def test_logs_of_all_workers_are_shown_with_their_names(nimbus: FakeNimbus) -> None:
    assert run("logs word_count").stdout.splitlines() == [
        "word_count-w1 | 2026-03-01 12:00:00,001 INFO count[2] text 1",
        "word_count-w2 | 2026-03-01 12:00:00,002 INFO count[3] text 2",
        "word_count-w2 |       more",
        "word_count-w1 | 2026-03-01 12:00:00,003 INFO words[1] text 3",
    ]
    assert run("logs word_count --lines 1").stdout.splitlines() == [
        "word_count-w1 | 2026-03-01 12:00:00,003 INFO words[1] text 3"
    ]


def test_logs_of_one_worker_or_one_component_are_selected(nimbus: FakeNimbus) -> None:
    assert run("logs word_count --worker word_count-w2").stdout.splitlines() == [
        "2026-03-01 12:00:00,002 INFO count[3] text 2",
        "      more",
    ]
    assert "text 3" not in run("logs word_count --component count").stdout
    assert run("logs word_count --component words").stdout == line(3, "words[1]")


def test_an_unknown_worker_or_component_is_answered_with_the_nearest(nimbus: FakeNimbus) -> None:
    result = run("logs word_count --worker word_count-w3")
    assert result.exit_code == 1
    assert "has no running worker 'word_count-w3'; did you mean 'word_count-w" in result.stderr
    assert "did you mean 'count'?" in run("logs word_count --component cuont").stderr


def test_an_unreadable_log_does_not_affect_the_others(nimbus: FakeNimbus) -> None:
    del nimbus.logs["word_count-w1", "worker"]
    result = run("logs word_count")
    assert result.exit_code == 0
    assert result.stderr == "word_count-w1 on host-1: word_count-w1 has written no such log yet\n"
    assert "text 2" in result.stdout
    result = run("logs word_count --file output")
    assert result.exit_code == 1
    assert result.stderr.endswith("squall logs: no log of word_count could be read\n")


def test_a_topology_without_workers_has_no_log_with_a_reason(nimbus: FakeNimbus) -> None:
    nimbus.topologies["word_count"].update(state="COMPLETED", workers=[])
    result = run("logs word_count")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("squall logs: word_count is COMPLETED and has no workers at the moment")


def test_a_build_log_is_shown_once_per_host_and_not_per_worker(nimbus: FakeNimbus) -> None:
    status = nimbus.topologies["word_count"]
    status["files"] = {"requirements": "0" * 64}
    status["workers"].append(worker("word_count-w3", "host-2"))
    nimbus.logs["word_count-w1", "build"] = b"# 2026-03-01\n$ pip install\n"
    nimbus.logs["word_count-w2", "build"] = nimbus.logs["word_count-w3", "build"] = b"$ uv pip install\n"
    assert sorted(run("logs word_count --file build").stdout.splitlines()) == [
        "host-1 | # 2026-03-01",
        "host-1 | $ pip install",
        "host-2 | $ uv pip install",
    ]
    assert run("logs word_count --file build --worker word_count-w3").stdout == "$ uv pip install\n"


def test_without_requirements_there_is_no_build_log_with_a_reason(nimbus: FakeNimbus) -> None:
    result = run("logs word_count --file build")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == (
        "squall logs: word_count has no requirements, so no environment was built for it\n"
    )


def test_a_worker_that_leaves_while_its_log_is_followed_is_reported_briefly(
    nimbus: FakeNimbus, capsys: pytest.CaptureFixture[str]
) -> None:
    client = connect(nimbus.url, None)
    reader = LogReader(client, "word_count", None, None, "worker")
    reader.find()
    assert len(reader.last(10, True)) == 3
    workers = nimbus.topologies["word_count"]["workers"]
    gone = workers.pop()
    assert reader.more() == []
    assert capsys.readouterr().err == "word_count-w2 is gone.\n"
    reader.find()
    assert reader.more() == [] and capsys.readouterr().err == ""
    workers.append(gone)  # its log may be another one
    reader.find()
    assert [entry.worker for entry in reader.more()] == ["word_count-w2"]
    workers.clear()
    reader.find()
    assert sorted(capsys.readouterr().err.splitlines()) == [
        "word_count-w1 is gone.",
        "word_count-w2 is gone.",
    ]
    client.close()


def test_json_has_the_lines_as_fields(nimbus: FakeNimbus) -> None:
    lines = json.loads(run("logs word_count --json").stdout)["lines"]
    assert lines[1] == {
        "worker": "word_count-w2", "host": "host-2", "time": "2026-03-01 12:00:00,002", "level": "INFO",
        "place": "count[3]", "text": "text 2\n  more",
    }  # fmt: skip


@pytest.mark.slow
def test_following_includes_new_workers_until_the_topology_is_gone(
    nimbus: FakeNimbus,
) -> None:
    with running_squall("logs", "word_count", "-f", "--lines", "1", SQUALL_NIMBUS=nimbus.url) as process:
        process.wait_for("text 3")
        nimbus.logs["word_count-w1", "worker"] += line(4).encode()
        process.wait_for("text 4")
        nimbus.logs["w9", "worker"] = line(5).encode()
        nimbus.topologies["word_count"]["workers"].append(worker("w9", "host-3"))
        process.wait_for("w9 | 2026-03-01 12:00:00,005 INFO count[2] text 5")
        nimbus.topologies.clear()
        assert process.end() == 0
        assert process.lines[-1] == "word_count is gone.\n"


def test_following_an_ended_topology_shows_its_logs_and_ends_with_a_message(nimbus: FakeNimbus) -> None:
    nimbus.topologies["word_count"].update(state="COMPLETED")
    nimbus.logs["word_count-w1", "worker"] += b"Killed"
    result = run("logs word_count -f")
    assert result.exit_code == 0
    assert "text 3" in result.stdout and result.stdout.endswith("| Killed\n")
    assert result.stderr == (
        "word_count is COMPLETED: nothing more is logged; its logs stay until it is killed.\n"
    )


def test_a_topology_that_completed_just_now_is_still_followed(nimbus: FakeNimbus) -> None:
    reader = LogReader(connect(nimbus.url, None), "word_count", None, None, "worker")
    status = nimbus.topologies["word_count"]
    assert reader.over() == ""
    status.update(state="COMPLETED", state_secs=0.1)
    assert reader.over() == ""
    status.update(state_secs=LAST_WORDS)
    assert "COMPLETED" in reader.over()
    reader.client.close()


def test_following_without_workers_reports_what_it_waits_for(nimbus: FakeNimbus) -> None:
    nimbus.topologies["word_count"]["workers"].clear()
    with running_squall("logs", "word_count", "-f", SQUALL_NIMBUS=nimbus.url) as process:
        process.wait_for("word_count is ACTIVE and has no workers at the moment; waiting for them.")
        nimbus.topologies.clear()
        assert process.end() == 0


def test_ctrl_c_ends_following_silently(nimbus: FakeNimbus) -> None:
    arguments = ("logs", "word_count", "-f", "--json")
    with running_squall(*arguments, SQUALL_NIMBUS=nimbus.url) as process:
        process.wait_for("text 3")
        process.signal(signal.SIGINT)
        assert process.end() == 0
        assert [json.loads(each)["worker"] for each in process.lines] == [
            "word_count-w1",
            "word_count-w2",
            "word_count-w1",
        ]
