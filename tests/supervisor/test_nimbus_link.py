"""The reports of a supervisor reach the leader, late if necessary, and never block the supervisor."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest
from msgspec.structs import replace

from squall.cluster import paths
from squall.cluster.memory import InMemoryStore
from squall.cluster.records import NimbusRecord, SupervisorRecord, WorkerReport
from squall.cluster.registry import Registry
from squall.security.sealing import KeyPair
from squall.values import Incarnation
from supervisor import nimbus_http
from supervisor.nimbus_http import HttpNimbusLink, Nimbuses
from tests.flaky_store import FlakyStore
from tests.supervisor.nimbus_over_http import FakeNimbus
from tests.supervisor.programs import until

REPORT = WorkerReport("w1", Incarnation(1, 0), True, False, False, False, None)


class Said:
    """A link, and its Nimbuses. None of them knows a topology: their posts are the messages that came."""

    def __init__(self) -> None:
        self.memory = InMemoryStore()
        self.store = FlakyStore(self.memory)
        self.pair = KeyPair.make()
        Registry(self.memory).supervisors.put(SupervisorRecord("s1", "h", 1, public_key=self.pair.public))
        self.nimbuses: dict[str, FakeNimbus] = {}
        self.link = HttpNimbusLink(Nimbuses(self.store, "s1", self.pair), "s1")

    def add(self, id: str) -> FakeNimbus:
        self.nimbuses[id] = FakeNimbus(self.memory, id, leads=False)
        return self.nimbuses[id]

    def leads(self, id: str) -> None:
        self.memory.put(paths.LEADER, id.encode())

    def end(self) -> None:
        self.link.close()
        for nimbus in self.nimbuses.values():
            nimbus.close()


@pytest.fixture
def said() -> Iterator[Said]:
    made = Said()
    yield made
    made.end()


def reported(nimbus: FakeNimbus) -> list[tuple[str, str, bool]]:
    return [
        (each["topology"], each["report"]["worker"], each["report"]["stopped"])
        for each in nimbus.said("reports")
    ]


def counted(nimbus: FakeNimbus) -> dict[tuple[str, str], object]:
    """The latest counters of each worker."""
    return {
        (each["topology_id"], each["worker"]): each["counters"].get("number")
        for each in nimbus.said("counters")
    }


def test_reports_go_to_the_leader_and_counters_to_every_nimbus(said: Said) -> None:
    leader, standby = said.add("n1"), said.add("n2")
    said.leads("n1")
    said.link.start()
    said.link.report("words", "w1", REPORT)
    said.link.count("words-1-0", "w1", Incarnation(1, 0), b'{"number":7}')
    until(lambda: reported(leader) == [("words", "w1", False)])
    until(lambda: counted(leader) == counted(standby) == {("words-1-0", "w1"): 7})
    assert reported(standby) == []


def test_a_heartbeat_goes_to_the_leader_without_any_report(said: Said) -> None:
    leader, standby = said.add("n1"), said.add("n2")
    said.leads("n1")
    said.link.start()
    said.link.heard("s1")
    until(lambda: leader.posts)
    assert leader.posts[0] == {"reports": [], "counters": []}
    assert standby.posts == []


def test_the_new_leader_gets_reports_that_the_old_one_did_not_accept(said: Said) -> None:
    old, new = said.add("n1"), said.add("n2")
    old.answer_with = 503
    said.leads("n1")
    said.link.start()
    said.link.report("words", "w1", REPORT)
    said.link.report("words", "w2", replace(REPORT, worker="w2"))
    said.leads("n2")
    said.link.heard("s1")
    until(lambda: {worker for _, worker, _ in reported(new)} == {"w1", "w2"})
    assert old.posts == []


def test_of_unsent_reports_only_the_latest_is_sent_later(said: Said) -> None:
    leader = said.add("n1")
    said.leads("n1")
    leader.down()
    said.link.start()
    for number in range(50):
        said.link.count("words-1-0", "w1", Incarnation(1, 0), b'{"number":%d}' % number)
        said.link.report("words", "w1", replace(REPORT, stopped=number == 49))
    leader.up()
    until(lambda: counted(leader) == {("words-1-0", "w1"): 49})
    until(lambda: reported(leader)[-1:] == [("words", "w1", True)])
    assert len(reported(leader)) < 50


def test_a_later_nimbus_gets_the_existing_counters(said: Said) -> None:
    first = said.add("n1")
    said.leads("n1")
    said.link.start()
    said.link.count("words-1-0", "w1", Incarnation(1, 0), b'{"number":3}')
    until(lambda: counted(first))
    second = said.add("n2")
    until(lambda: counted(second) == {("words-1-0", "w1"): 3})


def test_a_nimbus_that_never_answers_blocks_no_other_message(said: Said) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        Registry(said.memory).nimbuses.put(NimbusRecord("n0", url, "here", KeyPair.make().public))
        other = said.add("n1")
        said.leads("n0")
        said.link.start()
        said.link.report("words", "w1", REPORT)
        said.link.count("words-1-0", "w1", Incarnation(1, 0), b'{"number":1}')
        until(lambda: counted(other) == {("words-1-0", "w1"): 1})


def test_a_file_comes_from_another_nimbus_when_the_leader_never_answers(
    said: Said, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert nimbus_http.FILE <= 10, "no longer than a session, after which another one leads"
    monkeypatch.setattr(nimbus_http, "FILE", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        Registry(said.memory).nimbuses.put(NimbusRecord("n0", url, "here", KeyPair.make().public))
        other = said.add("n1")
        said.leads("n0")
        name = sha256(b"a file").hexdigest()
        other.files[name] = b"a file"
        files = nimbus_http.NimbusFiles(Nimbuses(said.store, "s1", said.pair), 1000)
        files.fetch(name, tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == b"a file"


def test_a_report_that_nimbus_will_never_accept_is_sent_once(said: Said) -> None:
    leader = said.add("n1")
    leader.answer_with = 400
    said.leads("n1")
    said.link.start()
    said.link.report("words", "bad", replace(REPORT, worker="bad"))
    said.link.flush(30)
    leader.answer_with = 200
    said.link.report("words", "w1", REPORT)
    until(lambda: reported(leader) == [("words", "w1", False)])


def test_a_message_that_nimbus_rejects_takes_no_other_with_it(said: Said) -> None:
    leader = said.add("n1")
    leader.rejects = "bad"
    said.leads("n1")
    said.link.heard("s1")
    for name in ("w1", "bad", "w2"):
        said.link.report("words", name, replace(REPORT, worker=name))
        said.link.count("words-1-0", name, Incarnation(1, 0), b'{"number":1}')
    said.link.start()
    until(lambda: {worker for _, worker, _ in reported(leader)} == {"w1", "w2"})
    assert set(counted(leader)) == {("words-1-0", "w1"), ("words-1-0", "w2")}
    assert {"reports": [], "counters": []} in leader.posts, "the heartbeat"


def test_while_the_store_is_away_the_last_known_leader_is_used(said: Said) -> None:
    leader = said.add("n1")
    said.leads("n1")
    said.link.start()
    said.link.heard("s1")
    until(lambda: leader.posts)
    said.store.away = True
    said.link.report("words", "w1", REPORT)
    until(lambda: reported(leader) == [("words", "w1", False)])


def test_counters_that_are_no_json_affect_nothing_else(said: Said) -> None:
    leader = said.add("n1")
    said.leads("n1")
    said.link.start()
    said.link.count("words-1-0", "w1", Incarnation(1, 0), b"{damaged")
    said.link.count("words-1-0", "w2", Incarnation(1, 0), b'{"number":2}')
    until(lambda: counted(leader).get(("words-1-0", "w2")) == 2)


def test_many_workers_are_reported_in_pieces(said: Said) -> None:
    leader = said.add("n1")
    said.leads("n1")
    for number in range(200):
        said.link.count("words-1-0", f"w{number}", Incarnation(1, 0), b'{"number":1}')
    said.link.start()
    until(lambda: len(counted(leader)) == 200)
    assert max(len(post["counters"]) for post in leader.posts) <= 64


def test_its_threads_end_with_it(said: Said) -> None:
    said.add("n1")
    said.leads("n1")
    said.link.start()
    said.link.heard("s1")
    until(lambda: said.nimbuses["n1"].posts)
    said.link.close()
    names = ("squall-nimbus-link", "squall-to-n1")
    until(lambda: not [each for each in threading.enumerate() if each.name in names])
