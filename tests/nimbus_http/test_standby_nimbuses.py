"""Two Nimbuses over one store: the standby answers and redirects, and leads when the other one is gone."""

from __future__ import annotations

import logging
import socket
import time

import pytest

from nimbus.daemon import NimbusDaemon
from squall.cluster.memory import InMemoryStore
from squall.cluster.registry import Registry
from squall.http.client import Refused
from squall.http.server import listen
from tests.flaky_store import FlakyStore
from tests.nimbus_http.nimbuses import (
    Cluster,
    PlayedSupervisor,
    client_of,
    closing,
    counters_of,
    submission,
    until,
)
from tests.nimbus_http.test_reads_over_http import raw


@pytest.fixture
def standby(cluster: Cluster, leader: NimbusDaemon, store: InMemoryStore) -> NimbusDaemon:
    return cluster.start_standby("standby", store.session())


def test_a_standby_answers_read_requests(
    standby: NimbusDaemon, leader: NimbusDaemon, store: InMemoryStore
) -> None:
    with closing(client_of(leader)) as client:
        client.post("topologies", submission())
    with closing(client_of(standby)) as client:
        assert [each["name"] for each in client.get("topologies")["topologies"]] == ["words"]
        assert client.get("cluster")["leader"]["id"] == leader.me.id
        assert client.get("/health")["leading"] is False


def test_a_standby_redirects_changes_to_the_leader(standby: NimbusDaemon, leader: NimbusDaemon) -> None:
    token = f"Bearer {standby.token}"
    for method, path in (
        ("POST", "/api/v1/topologies"),
        ("DELETE", "/api/v1/topologies/a%2Fb?wait_secs=3"),
        ("POST", "/api/v1/topologies/words/activate"),
        ("PUT", f"/api/v1/files/{'0' * 64}"),
    ):
        status, headers, _ = raw(standby, method, path, b"{}", Authorization=token)
        assert (status, headers["location"]) == (307, leader.url + path)


def test_a_client_of_a_standby_can_submit(standby: NimbusDaemon, store: InMemoryStore) -> None:
    with closing(client_of(standby)) as client:
        assert client.post("topologies", submission())["name"] == "words"
        assert client.delete("topologies/words", wait_secs=0)["name"] == "words"


def test_both_nimbuses_share_one_token(standby: NimbusDaemon, leader: NimbusDaemon) -> None:
    assert standby.token == leader.token
    with closing(client_of(leader, standby)) as client:
        assert client.get("topologies") == {"topologies": []}


def test_a_standby_counts_reports_of_supervisors_and_shows_them_when_it_leads(
    standby: NimbusDaemon, leader: NimbusDaemon, supervisor: PlayedSupervisor
) -> None:
    with closing(client_of(leader)) as client:
        client.post("topologies", submission())
    supervisor.assignment()
    supervisor.say()
    supervisor.send(counters=counters_of(supervisor, 7), daemon=standby)
    with closing(client_of(standby)) as client:
        assert client.get("topologies/words")["components"]["lines"]["emitted"] == 7
        leader.stop()
        until(lambda: standby.leading, "the lead")
        assert client.get("topologies/words")["components"]["lines"]["emitted"] == 7


def test_reports_to_a_standby_are_redirected_to_the_leader(
    standby: NimbusDaemon, leader: NimbusDaemon, supervisor: PlayedSupervisor
) -> None:
    with closing(client_of(leader)) as client:
        client.post("topologies", submission())
    supervisor.assignment()
    supervisor.daemon = standby
    assert supervisor.say() == []
    with closing(client_of(leader)) as client:
        assert client.get("topologies/words/workers")["workers"][0]["opened"] is True


def test_when_the_leader_stops_the_standby_leads_at_once_and_goes_on(
    standby: NimbusDaemon, leader: NimbusDaemon, store: InMemoryStore, supervisor: PlayedSupervisor
) -> None:
    with closing(client_of(leader)) as client:
        first = client.post("topologies", submission())
    supervisor.assignment()
    supervisor.say()
    with closing(client_of(standby)) as client:
        leader.stop()
        until(lambda: standby.leading, "the lead")
        assert client.get("cluster")["leader"] == {"id": standby.me.id, "url": standby.url}
        assert client.get("topologies/words")["id"] == first["id"]
        client.delete("topologies/words", wait_secs=600)
    supervisor.daemon = standby
    supervisor.say(drained=True)
    supervisor.say(stopped=True)
    assert Registry(store).all_topologies() == []


def test_a_leader_whose_session_has_expired_leads_no_more_and_writes_nothing(
    cluster: Cluster, store: InMemoryStore
) -> None:
    session = store.session()
    leader = cluster.start_leader("first", session)
    standby = cluster.start_standby("second", store.session())
    session.close()
    until(lambda: standby.leading, "the lead")
    with closing(client_of(leader)) as client, pytest.raises(Refused) as refused:
        client.post("topologies", submission())
    assert refused.value.status == 503
    assert Registry(store).all_topologies() == []


def test_leader_and_standby_agree_on_how_long_the_previous_version_is_kept_and_on_times_of_notes(
    cluster: Cluster, store: InMemoryStore
) -> None:
    trial = 600.0
    conf = {"nimbus.replace.timeout.secs": trial}
    leader = cluster.start_leader("first", store.session(), conf=conf)
    standby = cluster.start_standby("second", store.session(), conf=conf)
    supervisor = PlayedSupervisor(store, leader)
    began = time.time()
    with closing(client_of(leader)) as client:
        first = client.post("topologies", submission())
        supervisor.assignment()
        supervisor.say(note="it died")
        second = client.post("topologies", submission(submission="again", replace=True, wait_secs=0))
        until(lambda: Registry(store).topologies.get("words").state == "REPLACING")  # type: ignore[union-attr]
        supervisor.say(stopped=True)
        until(lambda: client.get("topologies/words")["id"] == second["id"], "the second version")
        supervisor.assignment()
        supervisor.say(opened=False, note="it died")
    for daemon in (leader, standby):
        with closing(client_of(daemon)) as client:
            told = until(lambda: (found := client.get("topologies/words"))["notes"] and found, "the note")
            assert told["stands_by"]["id"] == first["id"]
            passed = time.time() - began
            assert trial - passed - 1 <= told["stands_by"]["secs"] <= trial
            assert 0 <= told["state_secs"] <= passed
            assert began - 1 <= told["note_times"][0] <= began + passed + 1
            (summary,) = client.get("topologies")["topologies"]
            assert trial - passed - 1 <= summary["stands_by"]["secs"] <= trial


def test_a_submission_that_is_retried_with_the_next_leader_is_the_same(
    standby: NimbusDaemon, leader: NimbusDaemon, store: InMemoryStore
) -> None:
    body = submission()
    with closing(client_of(leader)) as client:
        first = client.post("topologies", body)
    with closing(client_of(standby)) as client:
        leader.stop()
        until(lambda: standby.leading, "the lead")
        assert client.post("topologies", body) == first
    assert len(Registry(store).all_topologies()) == 1


def test_without_a_leader_changes_are_503_and_reads_go_on(cluster: Cluster, store: InMemoryStore) -> None:
    leader = cluster.start_leader("first", store.session())
    standby = cluster.start_standby("second", store.session())
    # The store belongs to another cluster from now on, so it does not lead.
    standby._state.cluster.id = "another"
    leader.stop()
    with closing(client_of(standby)) as client:
        assert client.get("topologies") == {"topologies": []}
        with pytest.raises(Refused, match="no Nimbus leads") as refused:
            client.post("topologies", submission())
    assert (refused.value.status, refused.value.kind, refused.value.retry_after) == (503, "NoLeader", 1.0)
    assert not standby.leading


def test_a_nimbus_that_finds_another_cluster_does_not_lead_until_an_operator_allows_it(
    cluster: Cluster, store: InMemoryStore, tmp_path: object, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.start_leader("first").stop()
    emptied = InMemoryStore()
    stranger = cluster.start("first", emptied)
    until(lambda: "--new-cluster" in caplog.text, "the advice")
    assert not stranger.leading
    stranger.stop()
    assert cluster.start_leader("first", emptied.session(), new_cluster=True).leading


def test_two_nimbuses_on_one_state_directory_are_refused(cluster: Cluster, leader: NimbusDaemon) -> None:
    with pytest.raises(Exception, match="give this Nimbus its own with --state"):
        cluster.start("nimbus")


def test_an_address_in_use_is_named(cluster: Cluster, leader: NimbusDaemon) -> None:
    port = int(leader.url.rpartition(":")[2])
    with pytest.raises(Exception, match=f"127.0.0.1:{port}: another program listens there"):
        cluster.start("second", port=port)


def test_the_address_for_others_is_the_advertised_one_and_is_a_url(cluster: Cluster) -> None:
    leader = cluster.start_leader(advertise="http://nimbus-1.example.org:6627/")
    assert leader.url == leader.me.url == "http://nimbus-1.example.org:6627"
    with pytest.raises(Exception, match="looks like http"):
        cluster.start("second", advertise="nimbus-1.example.org")


def test_a_nimbus_that_others_cannot_reach_by_its_name_reports_it(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("nimbus.daemon.listen", lambda host, port: listen("127.0.0.1", port))
    monkeypatch.setattr(socket, "getfqdn", lambda: "localhost")
    monkeypatch.setattr(socket, "gethostname", lambda: "vm")
    assert cluster.start("first", host="0.0.0.0", insecure=True).url.startswith("http://vm:")
    assert "--advertise" not in caplog.text
    monkeypatch.setattr(socket, "gethostname", lambda: "localhost")
    assert cluster.start("second", host="0.0.0.0", insecure=True).url.startswith("http://localhost:")
    assert "means that machine itself: give --advertise" in caplog.text
    caplog.clear()
    cluster.start("third", host="0.0.0.0", insecure=True, advertise="http://nimbus-3.example.org:6627")
    cluster.start("fourth", host="localhost")
    assert "--advertise" not in caplog.text


def test_a_nimbus_listens_on_an_ipv6_address(cluster: Cluster) -> None:
    with socket.socket(socket.AF_INET6) as probe:
        try:
            probe.bind(("::1", 0))
        except OSError:
            pytest.skip("this machine has no IPv6")
    leader = cluster.start_leader(host="::1")
    with closing(client_of(leader)) as client:
        assert leader.url.startswith("http://[::1]:") and client.get("topologies") == {"topologies": []}


def test_a_restarted_nimbus_keeps_its_id_and_its_counters(cluster: Cluster, store: InMemoryStore) -> None:
    leader = cluster.start_leader("nimbus", store.session())
    supervisor = PlayedSupervisor(store, leader)
    with closing(client_of(leader)) as client:
        client.post("topologies", submission())
        supervisor.assignment()
        supervisor.say()
        supervisor.send(counters=counters_of(supervisor, 7))
    leader.stop()
    again = cluster.start_leader("nimbus", store.session())
    assert (again.me.id, again.me.public_key, again.token) == (
        leader.me.id,
        leader.me.public_key,
        leader.token,
    )
    with closing(client_of(again)) as client:
        assert client.get("topologies/words")["components"]["lines"]["emitted"] == 7


class TestStoreAway:
    """The store does not answer."""

    @pytest.fixture
    def flaky(self, store: InMemoryStore) -> FlakyStore:
        return FlakyStore(store.session())

    def test_submit_and_health_report_unavailable_and_both_recover(
        self, cluster: Cluster, flaky: FlakyStore, caplog: pytest.LogCaptureFixture
    ) -> None:
        leader = cluster.start_leader("nimbus", flaky)
        with closing(client_of(leader)) as client:
            flaky.away = True
            began = time.monotonic()
            with pytest.raises(Refused) as refused:
                client.post("topologies", submission())
            assert (refused.value.status, refused.value.kind) == (503, "StoreUnavailable")
            assert time.monotonic() - began < 5, "within the promised time, which is tested here"
            with pytest.raises(Refused) as refused:
                client.get("topologies")
            assert refused.value.status == 503
            flaky.away = False
            until(lambda: _submitted(leader), "recovery")
        assert not [record for record in caplog.records if record.levelno >= logging.ERROR]

    def test_a_store_that_reports_no_connection_makes_health_503(
        self, cluster: Cluster, flaky: FlakyStore
    ) -> None:
        leader = cluster.start_leader("nimbus", flaky)
        flaky.connected = False  # type: ignore[attr-defined]
        status, _, body = raw(leader, "GET", "/health")
        assert (status, body["status"], body["store"]["connected"]) == (503, "unavailable", False)

    def test_operators_are_recognised_while_the_store_is_away(
        self, cluster: Cluster, flaky: FlakyStore
    ) -> None:
        leader = cluster.start_leader("nimbus", flaky)
        flaky.away = True
        with closing(client_of(leader)) as client:
            assert client.get("configuration")["id"] == leader.me.id


def _submitted(leader: NimbusDaemon) -> bool:
    try:
        with closing(client_of(leader)) as client:
            return bool(client.post("topologies", submission())["id"])
    except Refused:
        return False
