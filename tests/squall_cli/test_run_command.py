"""The promises of `squall run` to scripts: exit statuses, reasons, JSON, and an orderly end on request."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import pytest

from tests.squall_cli.run_process import CAP, TOPOLOGIES, command, environment, running, squall_run, topology


def test_a_topology_that_completes_exits_with_0_and_a_summary() -> None:
    result = squall_run(topology("finite"))
    assert (result.returncode, result.stderr.count("it has begun")) == (0, 2)
    lines = result.stdout.splitlines()
    assert lines[0] == "numbers: 2 components, 3 tasks, 1 worker; Ctrl-C drains"
    assert any(line.split()[:5] == ["source", "spout", "1", "100", "100"] for line in lines)
    assert any(line.split()[:6] == ["work", "bolt", "2", "0", "100", "100"] for line in lines)
    assert "100 trees acked, 0 failed" in result.stdout
    assert {"the spout is closed", "the bolt is cleaned up"} <= set(lines)


def test_arguments_after_two_dashes_reach_the_topology_as_strings() -> None:
    result = squall_run(topology("finite"), "--name", "trial", "--json", "--", "7")
    summary = json.loads(result.stdout)
    assert (summary["name"], summary["trees"]["acked"]) == ("trial", 7)


def test_a_name_that_a_topology_cannot_have_is_refused() -> None:
    result = squall_run(topology("finite"), "--name", "a/b")
    assert (result.returncode, result.stdout) == (1, "")
    assert "the topology's name 'a/b' " in result.stderr


def test_with_json_stdout_is_one_object_whatever_the_components_write() -> None:
    result = squall_run(topology("writes"), "--json")
    assert result.returncode == 0
    summary = json.loads(result.stdout)
    assert (summary["name"], summary["outcome"], summary["state"]) == ("numbers", "completed", "COMPLETED")
    assert (summary["exit_status"], summary["reason"]) == (0, None)
    assert summary["trees"] == {"acked": 1, "failed": 0, "left": 0, "replayed": 0}
    work = summary["components"]["work"]
    assert (work["kind"], work["tasks"], work["executed"], work["errors"]) == ("bolt", 2, 1, 0)
    for way in ("by print", "by write", "by the file's number", "by a child"):
        assert way in result.stderr


def test_trees_that_failed_for_good_are_counted_with_the_first_reason() -> None:
    result = squall_run(topology("refuses"))
    assert result.returncode == 1
    last = result.stderr.splitlines()[-1]
    assert last.startswith(
        "squall run: 3 trees failed for good; the first: spout 'source', message id 7: failed in work["
    )
    assert "after 2 attempts: ValueError: 7 is refused (" in last
    assert f"{TOPOLOGIES}:" in last
    assert "27 trees acked, 3 failed" in result.stdout
    assert (
        "  3 dead letters, kept until the end of this run:\n    1 failed in work: ValueError: 7 is"
        in result.stdout
    )


@pytest.mark.parametrize("allowed", [False, True])
def test_tuples_that_a_bolt_with_epochs_gave_up_are_counted_too(tmp_path: Path, allowed: bool) -> None:
    options = ["-o", f"topology.state.path=file://{tmp_path}", *(["--allow-failures"] if allowed else [])]
    result = squall_run(topology("refuses"), "--json", *options)
    summary = json.loads(result.stdout)
    assert result.returncode == summary["exit_status"] == (0 if allowed else 1)
    assert (summary["trees"]["failed"], summary["failed_in_bolts"], summary["dead_letters"]) == (0, 3, 3)
    if not allowed:
        said = "squall run: 3 tuples failed for good in bolts; the first: failed in work: ValueError: "
        assert result.stderr.splitlines()[-1].startswith(said)


@pytest.mark.parametrize(("path", "named"), [("file://{}", 1), ("null", 0)])
def test_a_spout_that_cannot_rewind_is_named_if_state_is_kept(tmp_path: Path, path: str, named: int) -> None:
    result = squall_run(topology("counts"), "-o", f"topology.state.path={path.format(tmp_path)}")
    said = "spout 'source' cannot rewind: what such a spout emits again after its own worker has died may count twice"
    assert (result.returncode, result.stderr.count(said)) == (0, named), result.stderr


def test_failures_can_be_allowed() -> None:
    result = squall_run(topology("refuses"), "--json", "--allow-failures")
    summary = json.loads(result.stdout)
    assert (result.returncode, summary["exit_status"], summary["reason"]) == (0, 0, None)
    assert summary["trees"] == {"acked": 27, "failed": 3, "left": 0, "replayed": 3}
    assert summary["dead_letters"] == 3
    assert "message id 7: failed in work[" in summary["first_failure"]


def test_tuples_that_a_spout_could_not_emit_make_the_run_fail() -> None:
    result = squall_run(topology("cannot_emit"))
    assert result.returncode == 1
    last = result.stderr.splitlines()[-1]
    assert last == "squall run: next_tuple() of source raised errors: tuples may be missing"
    assert squall_run(topology("cannot_emit"), "--allow-failures").returncode == 0


def test_an_error_is_shown_once_in_full_and_then_counted() -> None:
    result = squall_run(topology("refuses"), "--", "1000")
    assert result.stderr.count("execute() raised ValueError") == 1
    assert "200 errors in work, run_topologies.py:" in result.stdout
    assert "Traceback" not in result.stderr


def test_a_topology_that_crashes_exits_with_1_and_its_report() -> None:
    result = squall_run(topology("crashes"), "--json", "--allow-failures")
    summary = json.loads(result.stdout)
    assert (result.returncode, summary["outcome"], summary["state"]) == (1, "failed", "FAILED")
    assert "execute() raised ValueError: 7 is refused" in summary["error"]
    ending = result.stderr.splitlines()[-3:]
    assert ending[0] == "squall run: topology 'numbers' failed:"
    assert "of topology 'numbers': execute() raised ValueError: 7 is refused" in ending[1]
    # In full, or in brief if the watching thread has shown the report in full just before the end.
    assert ending[2].startswith((f'  File "{TOPOLOGIES}", line ', f"  at {TOPOLOGIES}:"))


def test_a_component_that_cannot_be_opened_fails_the_topology() -> None:
    result = squall_run(topology("cannot_open"))
    assert result.returncode == 1
    assert "open() raised ConnectionError: the source is down" in result.stderr
    assert "numbers failed after" in result.stdout


def test_after_its_seconds_a_topology_is_drained_and_done() -> None:
    result = squall_run(topology("endless"), "--seconds", "0.2", "--json")
    summary = json.loads(result.stdout)
    assert (result.returncode, summary["outcome"], summary["trees"]["left"]) == (0, "drained", 0)
    assert summary["trees"]["acked"] == summary["components"]["source"]["emitted"] > 0
    assert "0.2 s have passed: draining" in result.stderr
    assert "the bolt is cleaned up" in result.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_first_signal_drains(number: signal.Signals) -> None:
    with running(topology("endless")) as process:
        process.wait_for("printed by a bolt")
        process.signal(number)
        process.wait_for("draining")
        name = "Ctrl-C" if number == signal.SIGINT else "SIGTERM"
        assert f"{name}: draining, " in process.lines[-1]
        assert "ends at once" in process.lines[-1]
        assert process.end() == 0
        assert "the spout is closed\n" in process.lines
        assert "the bolt is cleaned up\n" in process.lines
        assert "numbers interrupted after" in process.text
        assert "0 failed\n" in process.text


def test_trees_left_after_the_drain_make_the_run_fail() -> None:
    with running(topology("keeps"), "--", "0.3") as process:
        process.wait_for("kept")
        process.signal(signal.SIGINT)
        assert process.end() == 1
        assert "had not been acked or failed when the topology was stopped" in process.lines[-1]
        assert "the spout is closed\n" in process.lines


def test_a_second_signal_ends_at_once() -> None:
    with running(topology("keeps"), "--", "1000") as process:
        process.wait_for("kept")
        process.signal(signal.SIGINT)
        process.wait_for("draining")
        process.signal(signal.SIGINT)
        assert process.end() == 1
        assert "had not been acked or failed when the topology was cut off" in process.lines[-1]


def test_a_second_signal_ends_even_a_call_that_never_returns() -> None:
    with running(topology("hangs"), "--", "1000") as process:
        process.wait_for("hanging")
        process.signal(signal.SIGINT)
        process.wait_for("draining")
        process.signal(signal.SIGINT)
        assert process.end() == 1
        assert "numbers cut off after" in process.text


@pytest.mark.slow
def test_a_drain_held_up_by_a_call_ends_after_the_deadline_and_shows_where_the_call_is() -> None:
    with running(topology("hangs"), "--", "0.1") as process:
        process.wait_for("hanging")
        process.signal(signal.SIGINT)
        process.wait_for("does not end, because a call has not returned")
        assert f"it is at {TOPOLOGIES}:" in process.lines[-1]
        assert ", in execute" in process.lines[-1]
        assert process.end() == 1


def test_settings_reach_topology_and_component(tmp_path: Path) -> None:
    site = tmp_path / "site.yaml"
    site.write_text("topology.workers: 2\n")
    result = squall_run(
        topology("rests"), "--json", "--seconds", "0.1", "--config", str(site), "-o", "work:mine=1"
    )
    assert result.returncode == 0
    assert "numbers: 2 components, 3 tasks, 2 workers" in result.stderr
    wrong = squall_run(topology("rests"), "-o", "wrok:mine=1", "-o", "topology.wrokers=2")
    assert wrong.returncode == 2
    assert "topology.workers" in wrong.stderr
    wrong = squall_run(topology("rests"), "-o", "wrok:mine=1")
    assert wrong.returncode == 1
    assert "there is no component 'wrok'; did you mean 'work'?" in wrong.stderr


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (["no_such_file.py"], "there is no file 'no_such_file.py'"),
        ([str(TOPOLOGIES.with_suffix(".txt"))], "there is no file"),
        ([str(TOPOLOGIES.parent)], "is a folder"),
        ([topology("finite"), "--", "1", "2"], "finite(count: 'str' = '100') -> 'Topology'"),
        ([topology("finite"), "--seconds", "0"], "--seconds"),
        ([topology("finite"), "--workers", "0"], "--workers"),
        ([topology("finite"), "--workers", "2", "-o", "topology.workers=3"], "contradict each other"),
        ([], "Missing argument"),
    ],
)
def test_wrong_usage_exits_with_2(arguments: list[str], what: str) -> None:
    result = squall_run(*arguments)
    assert (result.returncode, result.stdout) == (2, "")
    assert what in result.stderr
    assert "Traceback" not in result.stderr


def test_the_help_has_an_example() -> None:
    result = squall_run("--help")
    assert result.returncode == 0
    assert "squall run word_count.py -- book.txt" in result.stdout


def test_output_limited_to_ascii_breaks_nothing() -> None:
    result = subprocess.run(
        command(topology("refuses")),
        env=environment(PYTHONIOENCODING="ascii:strict"),
        cwd="/",
        capture_output=True,
        timeout=CAP,
        check=False,
    )
    assert result.returncode == 1
    assert b"27 trees acked, 3 failed" in result.stdout
    assert b"Traceback" not in result.stderr


@pytest.mark.slow
def test_a_reader_that_goes_away_ends_the_run_in_good_order(tmp_path: Path) -> None:
    process = subprocess.Popen(
        command(topology("endless")),
        env=environment(),
        cwd="/",
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline()
        process.stdout.close()
        errors = process.stderr.read()
        assert process.wait(CAP) == 1
        assert "Traceback" not in errors
