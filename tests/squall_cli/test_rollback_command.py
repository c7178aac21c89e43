"""`squall rollback`: asks for an earlier version, watches it like `squall submit --replace`, and says how it ends."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from msgspec import to_builtins

from squall.api.answers import SubmittedAnswer
from squall.reports.events import Event
from squall_cli.main import squall
from tests.squall_cli.fake_nimbus import Refusal, happened, topology
from tests.squall_cli.taking_nimbus import TakingNimbus, acked, scheduled, taking_nimbus, up


class ReturningNimbus(TakingNimbus):
    """It has a topology "words" with an earlier version, words-1."""

    def answer(self, method: str, path: str, query: dict[str, str], body: Any) -> Any:
        if (method, path) != ("POST", "topologies/words/rollback"):
            return super().answer(method, path, query, body)
        self.asked.append((method, path, query, body))
        fault = self.faults.popleft() if self.faults else None
        if isinstance(fault, Refusal):
            raise fault
        fresh = topology("words", workers=[], id="words-3")
        for each in fresh["components"].values():
            each.update(emitted=0, executed=0, acked=0, pending=0)
        self.put(fresh)
        if fault == "answer lost":
            raise ConnectionAbortedError
        changed = {"topology.workers": [4, 2]}
        return to_builtins(SubmittedAnswer("words", "words-3", "ACTIVE", changed=changed, repeats="words-1"))


def run(nimbus: TakingNimbus, *arguments: str) -> Result:
    return CliRunner().invoke(squall, ["rollback", *arguments], env={"SQUALL_NIMBUS": nimbus.url})


@pytest.fixture
def returning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr("squall_cli.packing.submission.PAUSE", 0.01)
    with taking_nimbus(tmp_path, ReturningNimbus) as nimbus:
        nimbus.put(topology("words", id="words-2"))
        yield nimbus


def test_the_version_and_the_seconds_are_sent_with_a_key(returning: ReturningNimbus) -> None:
    result = run(returning, "words", "1", "-w", "5")
    assert result.exit_code == 0, result.output
    [(_, _, _, body)] = returning.commands()
    assert len(body.pop("submission")) == 32 and body == {"version": "1", "wait_secs": 5}
    assert result.stderr.splitlines() == [
        "rolling back: words-1 returns as words-3",
        "changed: topology.workers: 4 -> 2",
    ]
    assert result.stdout == "words is ACTIVE: `squall status words`\n"


def test_with_wait_the_steps_of_the_version_are_shown(returning: ReturningNimbus) -> None:
    returning.story.extend([scheduled, up, acked])
    result = run(returning, "words", "--wait", "--json")
    assert result.exit_code == 0, result.output
    assert "2 workers up" in result.stderr and "first ack: 7 acked" in result.stderr
    found = json.loads(result.stdout)
    assert found.pop("up_secs") >= 0
    assert found == {
        "name": "words", "id": "words-3", "state": "ACTIVE", "repeats": "words-1", "failure": None,
        "changed": {"topology.workers": [4, 2]}, "rolled_back": None,
    }  # fmt: skip


def test_if_its_trial_fails_the_command_says_why_and_exits_with_1(returning: ReturningNimbus) -> None:
    event = Event("rolled_back", version="words-3", successor="words-2", error="its tuples fail")
    returning.story.extend([scheduled, lambda status: status.update(id="words-2", **happened(event))])
    result = run(returning, "words", "--wait")
    assert result.exit_code == 1
    assert "was rolled back, the previous version has the name again: its tuples fail" in result.stderr


@pytest.mark.parametrize("wait", [[], ["--wait"]])
def test_what_a_version_begins_with_is_said_once_it_is_known(
    returning: ReturningNimbus, wait: list[str]
) -> None:
    event = Event("rolled_back", version="words-3", successor="words-2", error="it does not keep epoch 7")
    returning.story.append(lambda status: status.update(id="words-2", **happened(event)))
    result = run(returning, "words", "--state", "@7", *wait)
    assert result.exit_code == 1 and "it does not keep epoch 7" in result.stderr
    assert "begins with" not in result.stderr
    returning.story.append(lambda status: status.update(epoch={"number": 7, "began": 7, "quiet": False}))
    returning.story.extend([scheduled, up, acked])
    result = run(returning, "words", "--state", "@7", *wait)
    assert result.exit_code == 0, result.output
    assert result.stderr.count("begins with epoch 7: what came after it in the input") == 1


def test_a_lost_answer_is_asked_for_again_with_the_same_key(returning: ReturningNimbus) -> None:
    returning.faults.append("answer lost")
    assert run(returning, "words").exit_code == 0
    first, second = (body["submission"] for _, _, _, body in returning.commands())
    assert first == second


def test_a_refusal_is_the_reason(returning: ReturningNimbus) -> None:
    returning.faults.append(
        Refusal(409, "NoRollback", "no version '9' is kept; kept are: words-1 (replaced)")
    )
    result = run(returning, "words", "9")
    assert result.exit_code == 1 and "kept are: words-1 (replaced)" in result.stderr


def test_timeout_needs_wait(returning: ReturningNimbus) -> None:
    assert run(returning, "words", "--timeout", "5").exit_code == 2


class NimbusWithTrial(ReturningNimbus):
    """Its topology is on trial: the answer is that words-1, which has the name again later, returns."""

    def answer(self, method: str, path: str, query: dict[str, str], body: Any) -> Any:
        if (method, path) != ("POST", "topologies/words/rollback"):
            return super().answer(method, path, query, body)
        self.topologies["words"]["state"] = "FAILED"
        return to_builtins(SubmittedAnswer("words", "words-1", "ACTIVE", rolled_back="words-2"))


@pytest.fixture
def on_trial(tmp_path: Path) -> Any:
    with taking_nimbus(tmp_path, NimbusWithTrial) as nimbus:
        nimbus.put(topology("words", id="words-2"))
        yield nimbus


def test_a_version_on_trial_ends_and_the_version_before_it_returns(on_trial: NimbusWithTrial) -> None:
    result = run(on_trial, "words")
    assert result.exit_code == 0, result.output
    assert result.stderr == "rolling back: words-2 is on trial and ends, words-1 returns\n"
    assert result.stdout == (
        "words-1 returns when the workers of words-2 have stopped: `squall status words`\n"
    )


def test_with_wait_the_return_is_watched_until_the_workers_are_up(on_trial: NimbusWithTrial) -> None:
    returned = topology("words", id="words-1")
    on_trial.story.extend([lambda status: None, lambda status: status.update(returned)])
    result = run(on_trial, "words", "--wait")
    assert result.exit_code == 0, result.output
    assert "waiting until the workers of words-2 have stopped" in result.stderr
    assert "words-1 has the name again" in result.stderr and "2 workers up" in result.stderr
    assert result.stdout == "words is ACTIVE: `squall status words`\n"
