"""A repeated submission is the same one; the remains of a failed one are removed."""

from __future__ import annotations

import pytest

from nimbus.leader.master import Nimbus
from nimbus.leader.steps import SWEEP_AFTER
from nimbus.lifecycle.progress import ANSWER_SECS
from nimbus.lifecycle.replacing import ReplacementWaits
from nimbus.submission.submission import Submission
from squall.clock import ManualClock
from squall.cluster import paths
from squall.cluster.blobs import put_bundle
from squall.cluster.memory import InMemoryStore
from squall.cluster.records import Assignment, Placement, SupervisorRecord, TopologyRecord, encode
from squall.cluster.registry import Registry
from squall.cluster.store import Unavailable
from squall.values import Incarnation, TopologyState
from tests.flaky_store import AFTER, BEFORE, FlakyStore, nothing_fails
from tests.nimbus.transcripts import a_topology
from topology_api.errors import InvalidConfig, NameTaken
from topology_api.options import defaults


class Desk:
    """A Nimbus over a store that can be made to fail."""

    def __init__(self) -> None:
        self.store = FlakyStore(InMemoryStore())
        self.clock = ManualClock()
        self.nimbus = Nimbus(self.store, self.clock, wall_clock=lambda: 1_000_000.0 + self.clock.now())

    def submit(self, key: str, name: str = "words", replace: bool = False) -> TopologyRecord:
        return self.nimbus.submit(Submission(
            a_topology(name, 1), defaults(), {}, key=key, files={"code": "c" * 64}, versions={"python": "3.11.2"},
            replace=replace,
        ))  # fmt: skip


@pytest.fixture
def desk() -> Desk:
    return Desk()


def test_a_repeated_submission_makes_one_topology(desk: Desk) -> None:
    first = desk.submit("key")
    assert desk.submit("key") == first == desk.nimbus.submitted("key")
    assert (first.submission, first.files, first.python) == ("key", {"code": "c" * 64}, "3.11")
    assert (first.id, first.submitted) == ("words-1-1000000", 1_000_000.0)
    assert desk.nimbus.submitted("other") is None and desk.nimbus.submitted("") is None
    with pytest.raises(NameTaken):
        desk.submit("other")
    with pytest.raises(NameTaken):
        desk.submit("")
    assert Registry(desk.store).known_ids() == {first.id}


def test_a_submission_that_waits_to_replace_another_can_be_repeated_too(desk: Desk) -> None:
    registry = Registry(desk.store)
    registry.supervisors.put(SupervisorRecord("s1", "s1", 1))
    first = desk.submit("one")
    second = desk.submit("two", replace=True)
    assert desk.nimbus.topology("words").id == first.id
    assert desk.submit("two", replace=True).id == second.id != first.id
    assert desk.nimbus.submitted("two") == registry.replacements.get("words")
    assert registry.known_ids() == {first.id, second.id}


def test_a_repeated_submission_takes_effect_though_its_first_answer_was_lost(
    desk: Desk,
) -> None:
    registry = Registry(desk.store.store)
    registry.supervisors.put(SupervisorRecord("s1", "s1", 1))
    desk.store.chooses = lambda call: AFTER if call.path == paths.topology("words") and call.write else None
    with pytest.raises(Unavailable):
        desk.submit("key")
    desk.store.chooses = nothing_fails
    assert registry.assignments.get(desk.submit("key").id) is not None


def test_another_version_cannot_wait_while_one_waits_already(desk: Desk) -> None:
    Registry(desk.store).supervisors.put(SupervisorRecord("s1", "s1", 1))
    first = desk.submit("one")
    desk.store.chooses = lambda call: BEFORE if call.path == paths.topology("words") and call.write else None
    second = desk.submit("two", replace=True)
    desk.store.chooses = nothing_fails
    with pytest.raises(
        ReplacementWaits, match="another version is already waiting to replace topology 'words'"
    ):
        desk.submit("three", replace=True)
    assert Registry(desk.store).known_ids() == {first.id, second.id}


def test_a_failed_submission_postpones_nothing_that_is_due_before_its_removal(desk: Desk) -> None:
    Registry(desk.store).supervisors.put(SupervisorRecord("s1", "s1", 1))
    desk.submit("key")
    # The second kill gives it more time than is left until the remains of the first failure are removed.
    for wait_secs, due in ((SWEEP_AFTER - 5, SWEEP_AFTER - 5), (SWEEP_AFTER + 5, SWEEP_AFTER + ANSWER_SECS)):
        desk.nimbus.kill("words", wait_secs)
        desk.clock.move_to(desk.clock.now() + ANSWER_SECS)
        desk.nimbus.tick()
        desk.store.fail_write(1, BEFORE)
        with pytest.raises(Unavailable):
            desk.submit("another key", name="other")
        assert desk.nimbus.due == due


@pytest.mark.parametrize("write", range(1, 7))
@pytest.mark.parametrize("how", [BEFORE, AFTER])
def test_whichever_write_fails_a_repeated_submission_exists_once(desk: Desk, write: int, how: str) -> None:
    desk.store.fail_write(write, how)
    try:
        first = desk.submit("key")
    except Unavailable:
        first = desk.submit("key")
    assert [record.id for record in desk.nimbus.registry.all_topologies()] == [first.id]
    assert desk.submit("key").id == first.id
    desk.clock.move_to(SWEEP_AFTER + 1)
    desk.nimbus.tick()
    assert Registry(desk.store).known_ids() == {first.id}


def test_the_remains_of_a_submission_go_when_it_is_known_to_have_failed(desk: Desk) -> None:
    desk.store.fail_write(4, BEFORE)
    with pytest.raises(Unavailable):
        desk.submit("key")
    assert desk.store.children(paths.BLOBS) == ["words-1-1000000"]
    assert desk.nimbus.due is not None
    desk.clock.move_to(SWEEP_AFTER - 0.5)
    desk.nimbus.tick()
    assert desk.store.children(paths.BLOBS) == ["words-1-1000000"]
    desk.clock.move_to(SWEEP_AFTER)
    desk.nimbus.tick()
    assert desk.store.children(paths.BLOBS) == []
    assert desk.nimbus.due is None


def test_a_command_that_was_written_takes_effect_though_the_store_fails_right_after(desk: Desk) -> None:
    desk.submit("key")
    desk.store.chooses = lambda call: BEFORE if desk.store.writes > before else None
    before = desk.store.writes + 1
    desk.nimbus.deactivate("words")
    desk.store.chooses = lambda call: None
    assert desk.nimbus.topology("words").state == "INACTIVE"


def test_a_nimbus_that_takes_over_removes_orphans() -> None:
    store = InMemoryStore()
    registry = Registry(store)
    put_bundle(store, "words-7-0", a_topology("words", 1))
    registry.save_sealed_keys("words-7-0", "s1", b"sealed")
    registry.save_sealed_keys(paths.OPERATOR, "n1", b"sealed")
    registry.assignments.write(Assignment("old-3-0", 2, (Placement("w1", "s1", 0, Incarnation(2, 0), (1,)),)))
    registry.leaving.write(Assignment("old-3-0", 2, (Placement("w2", "s1", 0, Incarnation(2, 0), (1,)),)))
    store.put(paths.report("old-3-0", "w1"), b"whatever")
    for path in (paths.replacement("nobody"), paths.replaced("nobody")):
        store.put(
            path,
            encode(
                TopologyRecord("x-1-0", "x", TopologyState.ACTIVE, None, defaults(), {}, (), 0, None, None, 0)
            ),
        )
    Nimbus(store, ManualClock())
    assert store.children("/") == ["cluster", "keys"]
    assert store.children(paths.KEYS) == [paths.OPERATOR]


@pytest.mark.parametrize("wait_secs", [-1, float("nan"), float("inf")])
def test_an_invalid_wait_is_refused(desk: Desk, wait_secs: float) -> None:
    with pytest.raises(InvalidConfig, match=r"wait_secs is .*: give a number of seconds, at least 0"):
        desk.nimbus.submit(
            Submission(a_topology("words", 1), defaults(), {}, replace=True, wait_secs=wait_secs)
        )
    desk.submit("key")
    with pytest.raises(InvalidConfig, match=r"wait_secs is .*: give a number of seconds, at least 0"):
        desk.nimbus.rebalance("words", wait_secs=wait_secs)
