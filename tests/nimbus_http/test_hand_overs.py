"""Tuples that were pending at a rollback: the leader hands them to the version that has the name again, or says why not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from nimbus.http.hand_overs import HandOvers
from squall.cluster.memory import InMemoryStore
from squall.cluster.records import HeldLetters
from squall.reports.event_text import sentence
from supervisor.host_letters import LetterCount
from tests.nimbus_http.nimbuses import Cluster
from tests.nimbus_http.test_dead_letters_over_http import Host, There, id_of

ROLLED_BACK = "words-2-0"


class Returned(There):
    """The version that has the name again runs on s1; its leader hands over when the test says so."""

    def __init__(self, cluster: Cluster, store: InMemoryStore, folder: Path) -> None:
        super().__init__(cluster, store, folder)
        self.nimbus._hand_overs.stop()
        self.hand_overs: HandOvers = self.nimbus._hand_overs
        self.registry = self.one.played.registry
        self.submit()
        self.heir = self.record.id

    @property
    def record(self):  # type: ignore[no-untyped-def]
        found = self.registry.topologies.get("words")
        assert found is not None
        return found

    def left(self, host: Host, *numbers: int, **others: object) -> None:
        """Letters that a worker of the version that was rolled back has left on a host, and that its supervisor has counted."""
        host.give(*numbers, **{"topology_id": ROLLED_BACK, "heir": self.heir, **others})
        self.count(host)

    def count(self, host: Host) -> HeldLetters:
        held = LetterCount(host.letters, host.played.id, f"host-{host.played.id}").count(1500.0)
        self.registry.letters.put(held)
        return held

    def told(self) -> list[str]:
        """What was handed over, and what was kept."""
        return [sentence(note.fact) for note in self.record.notes if note.fact.kind == "handed_over"]


@pytest.fixture
def there(cluster: Cluster, store: InMemoryStore, tmp_path: Path) -> Iterator[Returned]:
    with ExitStack() as stack:
        found = Returned(cluster, store, tmp_path)
        stack.callback(found.one.server.stop)
        yield found


@pytest.fixture
def two(there: Returned) -> Iterator[Host]:
    host = Host(there.folder, there.store, there.nimbus, "s2")
    yield host
    host.server.stop()


def test_pending_tuples_are_handed_to_the_version_that_has_the_name_again_once(there: Returned) -> None:
    there.left(there.one, 1, 2)
    there.one.give(3)  # a dead letter of the version itself, which only an operator sends again
    for _ in range(2):  # the second time as another Nimbus, for which the count is still old
        there.hand_overs.round()
    assert sorted(there.one.waiting) == [(1, id_of(1)), (1, id_of(2))]
    assert there.told() == [
        f"2 tuples of lines that were pending in {ROLLED_BACK} were handed to {there.heir}"
    ]
    assert there.count(there.one).heirs == {}


def test_what_does_not_fit_is_kept_and_named(there: Returned) -> None:
    there.left(there.one, 1, fields=("old",))
    there.left(there.one, 2, component="gone")
    there.hand_overs.round()
    assert there.one.waiting == [] and there.count(there.one).heirs == {}
    notes = {each.id: each.note for each in there.one.letters.page("words").letters}
    assert notes == {
        id_of(1): "the fields of stream 'default' of lines are (line) now, and were (old)",
        id_of(2): "words has no component gone any more",
    }
    kept = f"that were pending in {ROLLED_BACK} are kept as dead letters:"
    assert there.told() == [
        f"1 tuple of gone {kept} {notes[id_of(2)]} (`squall dead-letters words list`)",
        f"1 tuple of lines {kept} {notes[id_of(1)]} (`squall dead-letters words list`)",
    ]


def test_tuples_on_a_host_without_the_spout_move_unless_they_are_pickled(there: Returned, two: Host) -> None:
    there.left(two, 1)
    there.left(two, 2, row=({1},))
    there.hand_overs.round()
    assert there.one.waiting == [(1, id_of(1))]
    (pickled,) = two.letters.page("words").letters
    assert "they do not leave supervisor s2" in pickled.note and len(there.told()) == 2


def test_tuples_on_a_host_that_is_away_wait_for_it(there: Returned, two: Host) -> None:
    there.left(two, 1)
    there.left(there.one, 2)
    there.registry.supervisors.drop("s2")
    there.hand_overs.round()
    assert there.one.waiting == [(1, id_of(2))]
    again = Host(there.folder, there.store, there.nimbus, "s2")
    try:
        there.hand_overs.round()
    finally:
        again.server.stop()
    assert sorted(there.one.waiting) == [(1, id_of(1)), (1, id_of(2))]


@pytest.mark.parametrize("change", ["another version", "inactive", "killed"])
def test_they_are_for_that_version_only_and_while_it_runs(there: Returned, change: str) -> None:
    there.left(there.one, 1)
    if change == "another version":
        there.heir = "words-9-0"
        there.left(there.one, 2)
    if change == "killed":
        there.nimbus._driver.call(
            lambda: there.nimbus._control.lead(lambda nimbus: nimbus.kill("words", 100.0))
        )
    if change == "inactive":
        there.nimbus._driver.call(
            lambda: there.nimbus._control.lead(lambda nimbus: nimbus.deactivate("words"))
        )
    there.hand_overs.round()
    assert there.one.waiting == ([] if change == "killed" else [(1, id_of(1))])
