"""Work that moves: rebalance and drain, what they wait for, and their messages when there is no room."""

from __future__ import annotations

import json

import pytest

from tests.squall_cli.fake_nimbus import FakeNimbus, Refusal, Squall, supervisor, worker

NO_OTHER = "there is no other host for these workers: they stay until a supervisor is started on another host"


def test_rebalance_sends_workers_tasks_and_the_wait(nimbus: FakeNimbus, run: Squall) -> None:
    run("rebalance word_count -n 4 -e count=8 -e a=b=2 -w 60")
    body = {"workers": 4, "parallelism": {"count": 8, "a=b": 2}, "wait_secs": 60.0}
    assert nimbus.commands() == [("POST", "topologies/word_count/rebalance", {}, body)]
    run("rebalance word_count")
    assert nimbus.commands()[1][3] == {"workers": None, "parallelism": None, "wait_secs": None}


def test_rebalance_wait_returns_when_the_new_workers_run(nimbus: FakeNimbus, run: Squall) -> None:
    status = nimbus.topologies["word_count"]
    nimbus.changes += [
        lambda: None,
        lambda: status.update(
            state="ACTIVE",
            workers=[worker("w3", opened=False), worker("w4"), worker("w1", opened=False, state="STOPPING")],
        ),
        lambda: status["workers"][0].update(opened=True),
    ]
    result = run("rebalance word_count --wait")
    assert (result.exit_code, result.stdout) == (0, "word_count is ACTIVE again.\n")
    assert result.stderr.splitlines() == [
        "word_count drains: 30 trees pending",
        "word_count: 1 of 2 workers ready",
    ]


@pytest.mark.parametrize(
    ("tasks", "why"),
    [
        (1, "it has only 2 tasks"),
        (9, "no slot is free for more; its tasks are spread over more workers when a slot is free"),
    ],
)
def test_fewer_workers_than_requested_are_reported_with_the_reason(
    nimbus: FakeNimbus, run: Squall, tasks: int, why: str
) -> None:
    nimbus.supervisors = [supervisor("host-1", slots=2, used=2), supervisor("host-2", slots=1, used=1)]
    status = nimbus.topologies["word_count"]
    status["components"]["count"]["tasks"] = tasks
    nimbus.changes += [lambda: None, lambda: status.update(state="ACTIVE", workers_wanted=9)]
    said = f"2 of 9 workers: {why}"
    assert run("rebalance word_count -n 9 --wait").stdout == f"word_count is ACTIVE again, with {said}.\n"
    assert run("status word_count").stdout.splitlines()[-1] == said
    nimbus.changes += [lambda: None, lambda: status.update(state="ACTIVE")]
    result = run("rebalance word_count -n 9 --wait --json")
    told = json.loads(result.stdout)
    assert result.stderr.splitlines()[-1] == f"word_count: {said}"
    assert (told["state"], len(told["workers"]), told["workers_wanted"]) == ("ACTIVE", 2, 9)


def test_drain_accepts_a_host_an_id_or_the_beginning_of_one(nimbus: FakeNimbus, run: Squall) -> None:
    nimbus.supervisors += [supervisor("host-2", id="other")]
    for text, meant in (
        ("host-1", ["id-of-host-1"]),
        ("host-2", ["id-of-host-2", "other"]),
        ("oth", ["other"]),
    ):
        nimbus.asked.clear()
        assert run(f"drain {text}").exit_code == 0
        assert [path for _, path, _, _ in nimbus.commands()] == [
            f"supervisors/{each}/drain" for each in meant
        ]


def test_drain_refuses_an_unknown_or_ambiguous_name(nimbus: FakeNimbus, run: Squall) -> None:
    assert "there is no supervisor 'host-7'; did you mean" in run("drain host-7").stderr
    several = "'id-' is the beginning of 2 ids, give more characters: 'id-of-host-1', 'id-of-host-2'"
    assert several in run("drain id-").stderr
    assert nimbus.commands() == []


def test_drain_wait_returns_when_no_worker_is_left(nimbus: FakeNimbus, run: Squall) -> None:
    nimbus.changes += [
        lambda: None,
        lambda: None,
        lambda: nimbus.supervisors[0].update(used=0, workers=[]),
    ]
    result = run("drain host-1 --wait")
    assert (result.exit_code, result.stdout) == (0, "host-1 is drained: no worker is left there.\n")
    assert result.stderr == "host-1: 1 worker to move, of word_count\n"


def test_drain_wait_reports_that_no_other_host_has_room(nimbus: FakeNimbus, run: Squall) -> None:
    nimbus.supervisors[1].update(used=4)
    nimbus.supervisors[0].update(drained=True)
    nimbus.changes += [
        lambda: None,
        lambda: None,
        lambda: nimbus.supervisors[0].update(used=0, workers=[]),
    ]
    result = run("drain host-1 --wait")
    assert (result.exit_code, result.stdout) == (0, "host-1 is drained: no worker is left there.\n")
    assert result.stderr == "host-1: no slot is free on another host; 1 worker to move, of word_count\n"


def test_drain_of_the_last_host_is_not_waited_for(nimbus: FakeNimbus, run: Squall) -> None:
    nimbus.supervisors[1].update(drained=True)
    result = run("drain host-1 --wait")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == (
        f"squall drain: host-1 gets no more work, but has 1 worker to move, of word_count, and {NO_OTHER};"
        " `squall drain host-1 --undo` takes it back\n"
    )


def test_drain_without_wait_reports_at_once_that_there_is_no_room(nimbus: FakeNimbus, run: Squall) -> None:
    nimbus.supervisors[1].update(used=4)
    for_now = "no slot is free on another host: the workers stay until a slot is free, or until a new supervisor is started"
    assert run("drain host-1").stdout == f"host-1 is being drained: 1 worker to move, but {for_now}.\n"
    told = run("drain host-1 --json")
    assert (json.loads(told.stdout)["supervisors"][0]["used"], told.stderr) == (1, f"host-1: {for_now}\n")
    nimbus.supervisors[1].update(drained=True)
    assert run("drain host-1").stdout == f"host-1 is being drained: 1 worker to move, but {NO_OTHER}.\n"
    nimbus.supervisors[0].update(used=0, workers=[])
    assert run("drain host-1").stdout == "host-1 is drained: no worker is left there.\n"


def test_a_drain_that_is_undone_is_not_waited_for(nimbus: FakeNimbus, run: Squall) -> None:
    nimbus.changes += [lambda: None, lambda: None, lambda: nimbus.supervisors[0].update(drained=False)]
    result = run("drain host-1 --wait")
    assert result.exit_code == 1
    assert "host-1 is no longer drained: another command has undone it" in result.stderr


def test_drain_ignores_an_answer_from_before_it(nimbus: FakeNimbus, run: Squall) -> None:
    nimbus.changes += [
        lambda: None,
        lambda: nimbus.supervisors[0].update(drained=False),  # from a standby that has not noticed it yet
        lambda: nimbus.supervisors[0].update(drained=True),
        lambda: nimbus.supervisors[0].update(used=0, workers=[]),
    ]
    assert run("drain host-1 --wait").stdout == "host-1 is drained: no worker is left there.\n"


def test_rebalance_ignores_an_answer_from_before_it(nimbus: FakeNimbus, run: Squall) -> None:
    status = nimbus.topologies["word_count"]
    nimbus.changes += [
        lambda: status.update(state="ACTIVE"),  # from a standby that has not noticed it yet
        lambda: status.update(state="REBALANCING"),
        lambda: status.update(state="ACTIVE", workers=[worker("w3")], workers_wanted=1),
    ]
    result = run("rebalance word_count --wait --json")
    assert [each["worker"] for each in json.loads(result.stdout)["workers"]] == ["w3"]


def test_deactivate_ignores_an_answer_from_before_it(nimbus: FakeNimbus, run: Squall) -> None:
    status = nimbus.topologies["word_count"]
    nimbus.changes += [
        lambda: status.update(state="ACTIVE"),  # from a standby that has not noticed it yet
        lambda: status.update(state="INACTIVE"),
        lambda: status["components"]["words"].update(pending=0, idle="inactive"),
    ]
    result = run("deactivate word_count --wait")
    assert (result.exit_code, result.stdout) == (0, "word_count is INACTIVE.\n")
    assert "waiting for Nimbus to list word_count as INACTIVE" in result.stderr


#: Free slots on undrained hosts, own workers, requested workers, tasks -> the message.
ROOM = {
    "tasks are fewer": (6, 2, 9, 5, "5 of 9 workers: it has only 5 tasks"),
    "slots are fewer": (
        1,
        2,
        9,
        20,
        "3 of 9 workers: slots are free only on the drained host host-2, where nothing new is placed; its tasks are spread"
        " over more workers when another slot is free",
    ),
    "enough": (2, 2, 4, 20, ""),
    "no place at all": (0, 0, 4, 20, ""),
}


@pytest.mark.parametrize("case", ROOM)
def test_rebalance_without_wait_reports_that_fewer_workers_are_possible(
    case: str, nimbus: FakeNimbus, run: Squall
) -> None:
    free, own, wanted, tasks, said = ROOM[case]
    workers = [
        {"topology": "word_count", "worker": f"w{slot}", "slot": slot, "tasks": 1} for slot in range(own)
    ]
    nimbus.supervisors = [
        supervisor("host-1", slots=own + free, used=own, workers=workers),
        supervisor("host-2", drained=True),
        supervisor("host-3", connected=False),
    ]
    if not free + own:
        nimbus.supervisors[1].update(slots=0, used=0, workers=[])
    line = f"rebalance word_count -n {wanted} -e count={tasks - 1}"
    over = f", over {said}" if said else ""
    assert run(line).stdout == (
        f"word_count is being rebalanced: it drains, then its tasks are placed again{over}.\n"
    )
    assert run(f"{line} --json").stderr == (f"word_count: {said}\n" if said else "")


def test_a_rebalance_with_an_unknown_outcome_has_begun_nevertheless(nimbus: FakeNimbus, run: Squall) -> None:
    def away() -> None:
        nimbus.refusal = Refusal(503, "NoLeader", "no Nimbus leads at this moment")

    nimbus.changes.append(away)
    result = run("rebalance word_count -n 9")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.startswith("word_count is being rebalanced: ")
