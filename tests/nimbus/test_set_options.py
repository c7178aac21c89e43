"""What operators have set by `-o` and rebalance is kept by the next version of a topology."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from nimbus.leader.master import Nimbus
from nimbus.placement.tasks import count_tasks
from nimbus.submission.set_options import differences, kept_by, rebalanced, shown_options, with_options
from nimbus.submission.submission import Submission
from squall.clock import ManualClock
from squall.cluster.memory import InMemoryStore
from squall.cluster.records import SetOptions, TopologyRecord, decode, encode
from tests.nimbus.transcripts import a_topology
from topology_api.options import defaults

TIMEOUT, PENDING = "topology.message.timeout.secs", "topology.max.spout.pending"


def test_what_is_set_now_wins_and_what_belongs_to_a_component_that_is_gone_is_forgotten() -> None:
    before = SetOptions(
        {TIMEOUT: 10, PENDING: 5}, {"a": {"x": 1, "y": 2}, "gone": {"x": 1}}, {"a": 4, "gone": 2}
    )
    new = SetOptions({TIMEOUT: 20}, {"a": {"x": 7}, "b": {"x": 8}})
    assert kept_by(before, new, ["a", "b"]) == SetOptions(
        {TIMEOUT: 20, PENDING: 5}, {"a": {"x": 7, "y": 2}, "b": {"x": 8}}, {"a": 4}
    )


def test_options_win_over_the_code_and_those_of_a_component_over_those_of_the_topology() -> None:
    conf, own = with_options(
        {"x": 1, "y": 1}, {"a": {"x": 2, "z": 2}, "b": {"x": 1}}, SetOptions({"x": 3}, {"a": {"x": 4}})
    )
    assert (conf, own) == ({"x": 3, "y": 1}, {"a": {"x": 4, "z": 2}, "b": {"x": 3}})


def test_a_rebalance_is_recorded_and_one_without_changes_is_not() -> None:
    assert rebalanced(None, None, None) is None and rebalanced(None, None, {}) is None
    once = rebalanced(None, 3, {"count": 4})
    assert once == SetOptions({"topology.workers": 3}, {}, {"count": 4})
    assert rebalanced(once, None, {"lines": 2}) == SetOptions(
        {"topology.workers": 3}, {}, {"count": 4, "lines": 2}
    )
    assert shown_options(once) == {"topology.workers": 3, "count:tasks": 4}


def submission(count: int = 1, **changes: Any) -> Submission:
    topology = a_topology("words", 1, count)
    own: dict[str, dict[str, object]] = {each.id: dict(defaults()) for each in topology.components}
    return structs.replace(Submission(topology, dict(defaults()), own), **changes)


def with_set(options: SetOptions, **changes: Any) -> Submission:
    made = submission(**changes)
    conf, own = with_options(made.conf, made.component_confs, options)
    return structs.replace(made, conf=conf, component_confs=own, options=options)


@pytest.fixture
def nimbus() -> Nimbus:
    return Nimbus(InMemoryStore(), ManualClock())


def second(nimbus: Nimbus, submission: Submission) -> TopologyRecord:
    nimbus.submit(submission)
    return nimbus.registry.replacements.get("words") or nimbus.topology("words")


def test_a_new_version_keeps_options_workers_and_numbers_of_tasks(nimbus: Nimbus) -> None:
    first = nimbus.submit(with_set(SetOptions({PENDING: 77}, {"count": {TIMEOUT: 9, "db.password": "x"}})))
    nimbus.rebalance("words", workers=2, parallelism={"count": 3})
    running = nimbus.topology("words")
    assert running.set_options == SetOptions(
        {PENDING: 77, "topology.workers": 2}, {"count": {TIMEOUT: 9, "db.password": "x"}}, {"count": 3}
    )
    nimbus.tick()
    record = second(nimbus, submission(replace=True))
    assert record.id != first.id
    assert record.conf[PENDING] == 77 and record.conf["topology.workers"] == 2
    assert record.component_confs["count"]["db.password"] == "x"
    assert count_tasks(record.tasks) == {"lines": 1, "count": 3}
    assert decode(TopologyRecord, encode(record)) == record
    assert shown_options(record.set_options)["count:db.password"] != "x", "a secret is not shown"
    assert not [key for key in differences(running, record) if key.endswith("topology.workers")]


def test_reset_options_forgets_what_was_set_and_the_differences_say_so(nimbus: Nimbus) -> None:
    nimbus.submit(with_set(SetOptions({PENDING: 77})))
    running = nimbus.topology("words")
    record = second(nimbus, submission(replace=True, reset_options=True, count=2))
    assert record.conf[PENDING] == defaults()[PENDING] and record.set_options is None
    found = differences(running, record)
    assert found == {PENDING: [77, defaults()[PENDING]], "count:tasks": [1, 2]}
