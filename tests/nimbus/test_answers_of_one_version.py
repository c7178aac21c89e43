"""An answer about a topology never mixes two of its versions, whenever the name goes to another one."""

from __future__ import annotations

from msgspec.structs import replace

from nimbus.counters.counting import Counters
from nimbus.http.views import Views
from squall.cluster import paths
from squall.cluster.records import TopologyRecord, encode
from tests.nimbus.transcripts import Scenario


class Overtaken(Views):
    """Another version gets the name just after the record was read."""

    def record(self, name: str) -> TopologyRecord:
        record = super().record(name)
        self.store.put(paths.topology(name), encode(replace(record, id="words-9", state="KILLED")))
        return record


def test_a_status_is_of_the_version_whose_id_it_has() -> None:
    scenario = Scenario()
    scenario.say("@ 0 supervisor s1 slots=2; submit words tasks=2 workers=2; report words w1 opened")
    (before,) = scenario.registry.all_topologies()
    answer = Overtaken(scenario.store, Counters(), scenario.clock.now).topology("words")
    assert (answer.id, answer.state, len(answer.workers)) == (before.id, before.state, 2)
    after = Views(scenario.store, Counters(), scenario.clock.now).record("words")
    assert after.id == "words-9", "the name has gone to the other version"
