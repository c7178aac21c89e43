"""Requests, output and exit status of the commands that ask a cluster; Nimbus is a fake one over real HTTP."""

from __future__ import annotations

import json

import pytest

from squall.reports.event_text import sentence
from squall.reports.events import Event
from squall_cli.commands.status import MOST_LINES, wrapped
from squall_cli.terminal.formats import moment
from tests.squall_cli.fake_nimbus import (
    FakeNimbus,
    Refusal,
    Squall,
    component,
    happened,
    outline,
    reported,
    supervisor,
    topology,
)


def test_list_shows_a_line_for_each_topology_and_why_one_failed(nimbus: FakeNimbus, run: Squall) -> None:
    nimbus.put(topology("broken", "FAILED", error="count[2]: it\nbroke", workers=[]))
    result = run("list")
    assert result.exit_code == 0
    head, broken, good, why = result.stdout.splitlines()
    assert head.split() == [
        "NAME", "STATE", "UPTIME", "WORKERS", "TASKS", "EMITTED", "ACKED", "FAILED", "PENDING", "ERRORS",
    ]  # fmt: skip
    assert broken.split()[:4] == ["broken", "FAILED", "12m34s", "0"]
    assert good.split()[:6] == ["word_count", "ACTIVE", "12m34s", "2", "3", "120k"]
    assert why == "broken: count[2]: it broke"


def test_list_shows_a_topology_with_an_unreadable_record(nimbus: FakeNimbus, run: Squall) -> None:
    nimbus.topologies.clear()
    nimbus.put(topology("odd", "BAD", id="", components={}, workers=[], error="its record is of format 9"))
    result = run("list")
    assert result.stdout.splitlines()[1].split()[:2] == ["odd", "BAD"]
    assert result.stdout.splitlines()[2] == "odd: its record is of format 9"


def test_list_and_status_report_that_no_slot_is_free(nimbus: FakeNimbus, run: Squall) -> None:
    nimbus.supervisors = [supervisor("host-1", slots=2, used=2)]
    nimbus.put(topology("waits", workers=[]))
    nimbus.put(topology("new", workers=[], uptime_secs=0.5))
    nimbus.put(topology("ended", "COMPLETED", workers=[]))
    assert run("list").stdout.splitlines()[5:] == ["waits: it has no workers: no slot is free"]
    said = "it has no workers: no slot is free; `squall supervisors` shows what there is."
    assert run("status waits").stdout.splitlines()[-1] == said
    for name in ("new", "ended", "word_count"):
        assert said not in run(f"status {name}").stdout


def test_an_empty_name_is_wrong_usage(nimbus: FakeNimbus, run: Squall) -> None:
    for command in ("status", "kill", "activate", "deactivate", "rebalance", "errors", "logs", "config"):
        result = run(command, "")
        assert result.exit_code == 2
        assert "it is empty: give the name of a topology" in result.stderr
    assert nimbus.asked == []


@pytest.mark.parametrize("secs", ["nan", "inf", "-1", "1e10", "soon"])
def test_an_invalid_number_of_seconds_is_wrong_usage(nimbus: FakeNimbus, run: Squall, secs: str) -> None:
    result = run(f"kill word_count -w {secs}")
    assert result.exit_code == 2
    assert f"'{secs}': give a number of seconds from 0 to 1,000,000,000" in result.stderr
    assert nimbus.asked == []


@pytest.mark.parametrize("number", ["0", "two", "1.5"])
def test_an_invalid_whole_number_is_wrong_usage(nimbus: FakeNimbus, run: Squall, number: str) -> None:
    result = run(f"rebalance word_count -n {number}")
    assert result.exit_code == 2
    assert f"'{number}': give a whole number from 1 on" in result.stderr
    assert nimbus.asked == []


def test_an_empty_cluster_is_reported_on_stderr_with_advice(nimbus: FakeNimbus, run: Squall) -> None:
    nimbus.topologies.clear()
    nimbus.supervisors.clear()
    for line, advice in (("list", "squall submit FILE"), ("supervisors", "squall supervisor")):
        result = run(line)
        assert (result.exit_code, result.stdout) == (0, "")
        assert advice in result.stderr


@pytest.mark.parametrize(
    "line",
    [
        "list", "status word_count", "errors word_count", "supervisors", "top --delay 0.2", "logs word_count",
        "kill word_count", "activate word_count", "deactivate word_count", "rebalance word_count", "version",
        "drain host-1", "drain host-1 --undo",
    ],
)  # fmt: skip
def test_with_json_stdout_has_nothing_else(nimbus: FakeNimbus, run: Squall, line: str) -> None:
    nimbus.logs["word_count-w1", "worker"] = b"2026-03-01 12:00:00,123 INFO count[2] a line\n"
    result = run(f"{line} --json")
    assert result.exit_code == 0, result.stderr
    assert isinstance(json.loads(result.stdout), dict)


def test_status_shows_components_workers_errors_and_notes(nimbus: FakeNimbus, run: Squall) -> None:
    status = nimbus.topologies["word_count"]
    status["components"]["count"]["errors"] = 3
    status["error_reports"] = [outline("count", 2, "execute", "ValueError: no\nof several lines")]
    status["notes"] = ["worker word_count-w2 on host-2 was killed"]
    status["note_times"] = [1_790_000_000.5]
    status["workers"][1].update(opened=False, state="STARTING", incarnation=[1, 2])
    result = run("status word_count")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0] == "word_count  ACTIVE for 12 min 34 s, 2 workers on 2 hosts  (word_count-1)"
    words = [line.split() for line in lines]
    assert ["words", "spout", "1", "120,000", "119,000", "0", "30", "2.00ms", "40.0ms"] in words
    assert ["word_count-w1", "host-1", "0", "RUNNING", "0", "words", "1,", "count", "2"] in words
    assert ["word_count-w2", "host-2", "0", "STARTING", "2", "count", "3"] in words
    assert lines[-3:] == [
        "3 errors in count, the newest: execute() raised ValueError: no",
        "`squall errors word_count` shows them.",
        f"{moment(1_790_000_000)}  worker word_count-w2 on host-2 was killed",
    ]
    assert moment(1_790_000_000).startswith("2026-09-2")


def test_status_names_the_bolts_whose_state_ends_with_their_worker(nimbus: FakeNimbus, run: Squall) -> None:
    said = "is in memory and ends with its worker: set topology.state.path"
    assert said not in run("status word_count").stdout
    nimbus.topologies["word_count"]["state_in_memory"] = ["count"]
    shown = " ".join(run("status word_count").stdout.split())
    assert f"the state of 'count' {said}" in shown


def test_status_shows_the_time_in_the_state_and_the_time_of_submission(
    nimbus: FakeNimbus, run: Squall
) -> None:
    nimbus.put(topology("rests", "INACTIVE", uptime_secs=1680.0, state_secs=12.3))
    assert run("status rests").stdout.startswith(
        "rests  INACTIVE for 12.3 s, submitted 28 min 00 s ago, 2 workers on 2 hosts"
    )
    nimbus.put(topology("older", "INACTIVE", uptime_secs=1680.0))
    del nimbus.topologies["older"]["state_secs"]  # an older Nimbus
    assert run("status older").stdout.startswith("older  INACTIVE, submitted 28 min 00 s ago, 2 workers")


def test_notes_without_times_are_shown_unchanged(nimbus: FakeNimbus, run: Squall) -> None:
    nimbus.topologies["word_count"]["notes"] = ["one", "two"]
    del nimbus.topologies["word_count"]["note_times"]
    assert run("status word_count").stdout.splitlines()[-2:] == ["one", "two"]


def test_notes_are_wrapped_below_their_time_and_do_not_repeat_the_name(
    nimbus: FakeNimbus, run: Squall, monkeypatch: pytest.MonkeyPatch
) -> None:
    event = Event(
        "not_started", 1_790_000_000.5, "word_count", "w1", part="environment", error="there is no such wheel"
    )
    nimbus.topologies["word_count"].update(happened(event))
    monkeypatch.setattr("squall_cli.terminal.lines.NO_LIMIT", 80)
    first, second = run("status word_count").stdout.splitlines()[-2:]
    assert first.startswith(f"{moment(1_790_000_000)}  worker w1 cannot be started: ")
    assert (second[:21].strip(), len(first) <= 80, len(second) <= 80) == ("", True, True)
    assert f"{first[21:]} {second[21:]}" == sentence(event, named=False)


def test_a_note_of_several_lines_keeps_them_and_a_long_word_stays_whole() -> None:
    path = "/a" * 50
    assert wrapped(f"no {path} here", 40) == ["no", path, "here"]
    many = wrapped("word " * 1000, 40)
    assert len(many) == MOST_LINES and many[-1].endswith(" …")
    assert wrapped("", 40) == [""]


def test_status_of_a_newer_nimbus_is_understood(nimbus: FakeNimbus, run: Squall) -> None:
    nimbus.topologies["word_count"]["components"]["count"]["capacity"] = 0.5
    assert run("status word_count").exit_code == 0


def test_an_unknown_name_is_answered_with_the_nearest(run: Squall) -> None:
    for line in (
        "status word_cuont", "kill word_cuont", "activate word_cuont", "errors word_cuont", "logs word_cuont",
        "rebalance word_cuont", "deactivate word_cuont",
    ):  # fmt: skip
        result = run(line)
        assert (result.exit_code, result.stdout) == (1, "")
        assert result.stderr == (
            f"squall {line.split()[0]}: there is no topology named 'word_cuont'; did you mean 'word_count'?\n"
        )


def test_kill_shows_how_long_the_topology_may_drain(nimbus: FakeNimbus, run: Squall) -> None:
    result = run("kill word_count -w 2.5")
    assert nimbus.commands() == [("DELETE", "topologies/word_count", {"wait_secs": "2.5"}, None)]
    assert result.stdout == "word_count is being killed: it drains, then it is gone.\n"
    run("kill word_count")
    assert nimbus.commands()[1][2] == {}


@pytest.mark.parametrize("epoch", [None, {"number": 7, "on_trial": True}])
def test_kill_says_what_it_means_for_a_trial(
    nimbus: FakeNimbus, run: Squall, epoch: dict[str, object] | None
) -> None:
    standby = {"id": "words-0", "secs": 9.0, "suspended": False}
    nimbus.put(topology("words", stands_by=standby, epoch=epoch))
    said = "words was on trial: the previous version (words-0) does not run again"
    committed = ", and what this one has processed when it has drained is committed" if epoch else ""
    assert run("kill words").stderr == f"{said}{committed}\n"
    assert run("kill word_count").stderr == ""


def test_kill_wait_returns_when_the_name_is_free(nimbus: FakeNimbus, run: Squall) -> None:
    status = nimbus.topologies["word_count"]
    nimbus.changes += [
        lambda: None,
        lambda: None,
        lambda: status["components"]["words"].update(pending=0),
        lambda: [each.update(state="STOPPING") for each in status["workers"]],
        nimbus.topologies.clear,
    ]
    result = run("kill word_count --wait")
    assert (result.exit_code, result.stdout) == (0, "word_count is gone.\n")
    assert result.stderr.splitlines() == [
        "word_count drains: 30 trees pending",
        "word_count drains",
        "word_count: its workers stop",
    ]


def test_kill_wait_is_not_fooled_by_another_submission_under_the_name(
    nimbus: FakeNimbus, run: Squall
) -> None:
    nimbus.changes += [lambda: None, lambda: nimbus.put(topology("word_count", id="word_count-2"))]
    assert run("kill word_count --wait").stdout == "word_count is gone.\n"


def test_waiting_survives_a_nimbus_that_is_unavailable_for_a_moment(nimbus: FakeNimbus, run: Squall) -> None:
    def away() -> None:
        nimbus.refusal = Refusal(503, "NoLeader", "no Nimbus leads at this moment")

    def back() -> None:
        nimbus.refusal = None
        nimbus.topologies.clear()

    nimbus.changes += [lambda: None, away, back]
    result = run("kill word_count --wait")
    assert (result.exit_code, result.stdout) == (0, "word_count is gone.\n")
    assert "no Nimbus leads at this moment" in result.stderr


@pytest.mark.parametrize(
    "line",
    ["kill word_count", "activate word_count", "deactivate word_count", "rebalance word_count -n 1", "drain host-1"],
)  # fmt: skip
def test_commands_survive_a_moment_without_a_leader(
    nimbus: FakeNimbus, run: Squall, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    monkeypatch.setattr("squall_cli.cluster.waiting.PAUSES", (0.0, 0.0))
    nimbus.refused_changes += [Refusal(503, "NoLeader", "no Nimbus leads at this moment")] * 3
    result = run(line)
    assert result.exit_code == 0, result.stderr
    assert "asking again in a moment: no Nimbus leads at this moment" in result.stderr
    assert nimbus.refused_changes == []


@pytest.mark.parametrize("kind, secs", [("NoLeader", 0.0), ("StoreUnavailable", 60.0)])
def test_commands_wait_only_for_a_leader_and_not_for_ever(
    nimbus: FakeNimbus, run: Squall, monkeypatch: pytest.MonkeyPatch, kind: str, secs: float
) -> None:
    monkeypatch.setattr("squall_cli.cluster.waiting.TAKEOVER_SECS", secs)
    monkeypatch.setattr("squall_cli.cluster.waiting.PAUSES", (0.0, 0.0))
    nimbus.refusal = Refusal(503, kind, "not at this moment")
    result = run("kill word_count")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "not at this moment" in result.stderr


def test_deactivate_wait_returns_when_nothing_is_in_flight(nimbus: FakeNimbus, run: Squall) -> None:
    spout = nimbus.topologies["word_count"]["components"]["words"]
    nimbus.changes += [
        lambda: spout.update(pending=7),
        lambda: spout.update(pending=0, idle="source empty"),  # counters from before the command
        lambda: spout.update(pending=0, idle="inactive"),
    ]
    result = run("deactivate word_count --wait")
    assert (result.exit_code, result.stdout) == (0, "word_count is INACTIVE.\n")
    assert len(nimbus.changes) == 0


def test_deactivate_reports_tuples_in_flight_when_the_time_is_over(nimbus: FakeNimbus, run: Squall) -> None:
    result = run("deactivate word_count -w 0.2")
    assert result.exit_code == 1
    assert "word_count is INACTIVE, but 30 trees had not been acked or failed after 0.2 s" in result.stderr


@pytest.mark.parametrize(
    ("command", "doing"),
    [
        ("kill word_count", "word_count drains: 30 trees pending"),
        (
            "deactivate word_count",
            "word_count is INACTIVE, but 30 trees had not been acked or failed after 0.2 s",
        ),
        ("rebalance word_count", "word_count drains: 30 trees pending"),
        ("drain host-1", "host-1: 1 worker to move, of "),
    ],
)
def test_a_wait_with_a_timeout_ends_with_what_is_not_done(
    nimbus: FakeNimbus, run: Squall, command: str, doing: str
) -> None:
    result = run(f"{command} --wait --timeout 0.2")
    assert (result.exit_code, result.stdout) == (1, "")
    assert doing in result.stderr
    assert "after 0.2 s" in result.stderr
    alone = run(f"{command} --timeout 0.2")
    assert alone.exit_code == 2
    assert "--timeout says how long --wait may take: give both options" in alone.stderr


def test_the_shorter_of_two_limits_of_deactivate_holds(nimbus: FakeNimbus, run: Squall) -> None:
    result = run("deactivate word_count -w 30 --timeout 0.2")
    assert result.exit_code == 1
    assert "had not been acked or failed after 0.2 s" in result.stderr


def test_list_and_status_show_that_the_previous_version_is_kept(nimbus: FakeNimbus, run: Squall) -> None:
    found = nimbus.topologies["word_count"]
    found["stands_by"] = {"id": "word_count-0", "secs": 54.04}
    is_up = "the previous version (word_count-0) runs again if the tuples of this one fail"
    assert run("status word_count").stdout.splitlines()[-1] == is_up
    found["workers"][0]["opened"] = False
    said = "the previous version (word_count-0) runs again unless this one starts within 54.0 s and processes its tuples"
    assert run("status word_count").stdout.splitlines()[-1] == said
    assert run("list").stdout.splitlines()[-1] == f"word_count: {said}"


def test_rebalance_wait_ends_when_the_topology_does(nimbus: FakeNimbus, run: Squall) -> None:
    nimbus.changes += [lambda: nimbus.topologies["word_count"].update(state="KILLED")]
    result = run("rebalance word_count --wait")
    assert result.exit_code == 1
    assert "word_count is KILLED by now" in result.stderr


def test_a_state_that_does_not_allow_the_command_is_reported_by_nimbus(
    nimbus: FakeNimbus, run: Squall
) -> None:
    nimbus.refusal = Refusal(409, "IllegalTransition", "cannot activate topology 'word_count': it is KILLED")
    result = run("activate word_count")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "squall activate: cannot activate topology 'word_count': it is KILLED\n"


def test_errors_are_shown_with_their_times_the_newest_last(nimbus: FakeNimbus, run: Squall) -> None:
    nimbus.errors = [
        reported("count", "count[2]: later\n  at a.py:4", 1_700_000_060.0, 3),
        reported("words", "words[1]: sooner", 1_700_000_000.0, 1),
    ]
    blocks = run("errors word_count").stdout.split("\n\n")
    assert [block.splitlines()[0].partition(" ")[2].partition(" ")[2] for block in blocks] == [
        "words[1]: sooner",
        "count[2]: later",
    ]
    components = nimbus.topologies["word_count"]["components"]
    components["words"]["errors"], components["count"]["errors"] = 1, 3260
    told = run("errors word_count").stderr
    assert told == "count: the latest 3 of 3,260 errors; earlier ones are not kept\n"
    assert "later" in run("errors word_count --component count").stdout
    assert "sooner" not in run("errors word_count --component count").stdout
    nimbus.errors.clear()
    assert "has reported no errors" in run("errors word_count").stderr


def test_supervisors_shows_which_are_away_and_which_are_drained(nimbus: FakeNimbus, run: Squall) -> None:
    nimbus.supervisors = [
        supervisor("c", drained=True),
        supervisor("b", drained=True, used=0, workers=[]),
        supervisor("a", connected=False, resources={}, versions={}),
    ]
    result = run("supervisors")
    assert [line.split()[:2] for line in result.stdout.splitlines()[1:]] == [
        ["a", "away"],
        ["b", "drained"],
        ["c", "draining"],
    ]
    assert result.stderr == "3 supervisors; 2 of 12 slots used, 0 free\n"


def test_supervisors_shows_which_cannot_start_workers_and_why(nimbus: FakeNimbus, run: Squall) -> None:
    why = "[Errno 30] Read-only file system: '/var/lib/squall/topologies'"
    nimbus.supervisors = [supervisor("a"), supervisor("b", cannot_start=why, drained=True)]
    result = run("supervisors")
    assert [line.split()[:3] for line in result.stdout.splitlines()[1:]] == [
        ["a", "ready", "1"],
        ["b", "cannot", "start"],
    ]
    assert result.stderr == (f"2 supervisors; 2 of 8 slots used, 3 free\nb cannot start workers: {why}\n")
    assert json.loads(run("supervisors --json").stdout)["supervisors"][1]["cannot_start"] == why


def test_top_puts_the_busiest_component_first(nimbus: FakeNimbus, run: Squall) -> None:
    nimbus.put(topology("busy", components={"hot": component(executed=10)}))
    nimbus.changes += [lambda: None] * 6
    nimbus.changes.append(lambda: nimbus.topologies["busy"]["components"]["hot"].update(executed=5000))
    result = run("top --delay 0.3")
    summary, head, first, *_ = result.stdout.splitlines()
    assert "2 topologies, 2 supervisors, 2 of 8 slots used" in summary
    assert head.split()[:3] == ["TOPOLOGY", "COMPONENT", "KIND"]
    assert first.split()[:3] == ["busy", "hot", "bolt"]
    assert first.split()[4] != "0"


def test_the_local_version_is_shown_when_no_cluster_answers(run: Squall) -> None:
    result = run("version --nimbus http://127.0.0.1:1")
    assert result.exit_code == 1
    assert result.stdout.startswith("squall ")
    assert "cannot be reached" in result.stderr
    assert run("version --json --nimbus http://127.0.0.1:1").stdout == ""


def test_version_names_the_daemons_of_a_cluster_and_the_leading_nimbus(
    nimbus: FakeNimbus, run: Squall
) -> None:
    assert run("version").stdout.splitlines()[2:] == [
        f"nimbus on host-0 at {nimbus.url}, leads: squall 0.1.0",
        "supervisor on host-1: squall 0.1.0, python 3.11.7",
        "supervisor on host-2: squall 0.1.0, python 3.11.7",
    ]


def test_config_shows_the_settings_of_a_topology_and_the_changes_of_its_components(
    nimbus: FakeNimbus, run: Squall
) -> None:
    nimbus.answers["topologies/word_count/configuration"] = {
        "conf": {"topology.workers": 4, "topology.debug": False, "db.password": "(hidden)"},
        "component_confs": {
            "count": {"topology.workers": 4, "topology.debug": True, "db.password": "(hidden)"},
            "words": {"topology.workers": 4, "topology.debug": False, "db.password": "(hidden)"},
        },
    }
    rows = [line.split() for line in run("config word_count").stdout.splitlines()]
    assert rows[1:] == [
        ["topology.workers", "4", "workers", "set"],
        ["topology.debug", "false", "default"],
        ["db.password", '"(hidden)"', "set"],
        ["count:topology.debug", "true", "component"],
    ]
    assert "did you mean 'word_count'" in run("config wordcount").stderr


def test_config_asks_a_nimbus_only_when_it_is_named(nimbus: FakeNimbus, run: Squall) -> None:
    nimbus.answers["configuration"] = {"id": "n1", "conf": {"nimbus.url": "http://h:1"}}
    assert "site file: none" in run("config").stdout
    assert nimbus.asked == []
    there = json.loads(run(f"config --nimbus {nimbus.url} --json").stdout)
    assert there == {"nimbus.url": {"value": "http://h:1", "from": "set"}}
    assert run("config word_count -o a=1").exit_code == 2


def test_names_are_quoted_in_requests(nimbus: FakeNimbus, run: Squall) -> None:
    nimbus.put(topology("a/b?c"))
    assert run("status a/b?c").stdout.startswith("a/b?c  ACTIVE")


def test_names_do_not_move_the_cursor(nimbus: FakeNimbus, run: Squall) -> None:
    nimbus.put(topology("bad", error="\x1b[2J\x07gone", state="FAILED"))
    for line in ("list", "status bad"):
        assert "\x1b" not in run(line).stdout
        assert "\\x1b[2J\\x07gone" in run(line).stdout
