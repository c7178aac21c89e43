"""The read requests for a cluster and its topologies, over real HTTP."""

from __future__ import annotations

import dataclasses
import http.client
import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec.structs import replace

from nimbus.daemon import NimbusDaemon
from squall.cluster import paths
from squall.cluster.memory import InMemoryStore
from squall.cluster.registry import Registry
from squall.http.client import Client, Refused, at
from squall.packages.versions import own_versions
from squall.reports.error_reports import ErrorReport
from squall.reports.histogram import LatencyHistogram
from tests.nimbus_http.nimbuses import PlayedSupervisor, counters_of, submission, text_at, words

BOOM = ErrorReport("words", "count", 2, "execute", "ValueError: boom", "words.py:7", (), None, 1.0)

ROOT = Path(__file__).parents[2]


@pytest.fixture
def running(client: Client, supervisor: PlayedSupervisor) -> PlayedSupervisor:
    """A topology "words" whose worker is up and has counted."""
    client.post("topologies", submission(words(conf={"db.password": "swordfish", "greeting": "hello"})))
    supervisor.assignment()
    assert supervisor.say() == []
    supervisor.send(counters=counters_of(supervisor, 7, (BOOM,)))
    return supervisor


def test_the_cluster_is_described_in_numbers(client: Client, leader: NimbusDaemon, running: object) -> None:
    told = client.get("cluster")
    assert told["leader"] == {"id": leader.me.id, "url": leader.url}
    assert [each["leader"] for each in told["nimbuses"]] == [True]
    assert (told["supervisors"], told["topologies"], told["tasks"]) == (1, 1, 3)
    assert told["slots"] == {"total": 2, "used": 1, "free": 1}
    assert told["version"] == own_versions()["squall"] and told["python"] == own_versions()["python"]
    assert told["store"] == {"kind": "memory", "connected": True}
    assert len(told["id"]) == 32 and told["uptime_secs"] >= 0


def test_supervisors_are_listed_with_their_workers(client: Client, running: PlayedSupervisor) -> None:
    [told] = client.get("supervisors")["supervisors"]
    assert (told["id"], told["host"], told["slots"], told["used"]) == ("s1", "host-s1", 2, 1)
    assert told["drained"] is False and told["connected"] is False
    [worker] = told["workers"]
    assert worker == {"topology": "words", "worker": worker["worker"], "slot": worker["slot"], "tasks": 3}


def test_a_host_that_cannot_start_workers_is_listed_with_the_reason(
    client: Client, store: InMemoryStore, running: PlayedSupervisor
) -> None:
    [record] = Registry(store).all_supervisors()
    Registry(store).supervisors.put(replace(record, cannot_start="[Errno 30] Read-only file system"))
    [found] = client.get("supervisors")["supervisors"]
    assert found["cannot_start"] == "[Errno 30] Read-only file system"
    sample = 'squall_supervisor_cannot_start_workers{supervisor="s1",host="host-s1"} 1'
    assert sample in text_at(client, "/metrics").splitlines()
    Registry(store).supervisors.put(record)
    assert "squall_supervisor_cannot_start_workers{" not in text_at(client, "/metrics")


def test_connections_that_a_supervisor_closes_are_counted(
    client: Client, store: InMemoryStore, running: PlayedSupervisor
) -> None:
    metric = "squall_supervisor_http_connections_closed_total"
    assert f"{metric}{{" not in text_at(client, "/metrics")
    [record] = Registry(store).all_supervisors()
    Registry(store).supervisors.put(replace(record, connections_closed={"address": 7, "full": 1}))
    lines = text_at(client, "/metrics").splitlines()
    assert f'{metric}{{supervisor="s1",host="host-s1",reason="address"}} 7' in lines
    assert f'{metric}{{supervisor="s1",host="host-s1",reason="full"}} 1' in lines
    assert f"# TYPE {metric} counter" in lines


def test_topologies_are_listed_with_the_sums_of_their_counters(client: Client, running: object) -> None:
    [told] = client.get("topologies")["topologies"]
    assert {key: told[key] for key in ("name", "state", "tasks", "workers", "components")} == {
        "name": "words", "state": "ACTIVE", "tasks": 3, "workers": 1, "components": 2,
    }  # fmt: skip
    assert (told["emitted"], told["acked"], told["failed"], told["pending"]) == (7, 7, 0, 0)
    assert told["error"] is None and told["uptime_secs"] >= 0


def test_a_topology_is_shown_with_its_workers(client: Client, running: PlayedSupervisor) -> None:
    told = client.get("topologies/words")
    assert told["id"] == running.assignment().topology_id and told["state"] == "ACTIVE"
    assert told["components"]["lines"]["emitted"] == 7
    assert "boom" in told["errors"][0]
    [worker] = told["workers"]
    assert worker["tasks"] == [[1, "lines", 0], [2, "count", 0], [3, "count", 1]]
    assert (worker["supervisor"], worker["host"], worker["state"]) == ("s1", "host-s1", "RUNNING")
    assert worker["opened"] is True and worker["incarnation"] == [1, 0]
    assert client.get("topologies/words/workers") == {"workers": [worker]}


@pytest.mark.parametrize("way", ["neither", "null in the topology", "null by -o", "path"])
def test_bolts_whose_state_ends_with_their_worker_are_named(client: Client, way: str, tmp_path: Path) -> None:
    conf = {"neither": {}, "path": {"topology.state.path": f"file://{tmp_path}"}}.get(
        way, {"topology.state.path": None}
    )
    given = conf if way == "null in the topology" else {}
    spout, bolt = words().components
    keeping = dataclasses.replace(bolt, keeps={"key": ["line"], "states": {"times": {}}})
    body = submission(dataclasses.replace(words(), conf=given, components=(spout, keeping)))
    body["conf"] |= {"topology.state.path": None, **conf}
    body["options"] = {"topology": conf if way == "null by -o" else {}, "components": {}}
    client.post("topologies", body)
    told = client.get("topologies/words")
    assert told["state_in_memory"] == (["count"] if way == "neither" else [])
    assert told["state_path"] == conf.get("topology.state.path")


def test_a_component_is_shown_with_its_tasks_and_inputs(client: Client, running: object) -> None:
    told = client.get("topologies/words/components/count")
    assert (told["id"], told["kind"], told["parallelism"]) == ("count", "bolt", 2)
    assert [(task["task"], task["index"], task["host"]) for task in told["tasks"]] == [
        (2, 0, "host-s1"),
        (3, 1, "host-s1"),
    ]
    assert told["inputs"] == [{"source": "lines", "stream": "default", "grouping": "shuffle", "fields": []}]
    assert told["conf"]["db.password"] == "(hidden)" and told["conf"]["greeting"] == "hello"


def test_errors_are_sent_as_values_and_as_text_for_people(client: Client, running: object) -> None:
    [told] = client.get("topologies/words/errors")["errors"]
    assert (told["component"], told["task"], told["place"]) == ("count", 2, "words.py:7")
    assert told["text"] == BOOM.render()
    assert client.get("topologies/words/errors", component="count")["errors"] == [told]
    assert client.get("topologies/words/errors", component="lines") == {"errors": []}


def test_configurations_are_shown_without_their_secrets(client: Client, running: object) -> None:
    told = client.get("topologies/words/configuration")
    assert told["conf"]["greeting"] == "hello" and told["conf"]["topology.workers"] == 1
    assert set(told["component_confs"]) == {"lines", "count"}
    assert "swordfish" not in json.dumps(told)
    assert client.get("configuration")["conf"]["nimbus.supervisor.timeout.secs"] == 30


def test_counters_are_shown_for_each_worker(client: Client, running: PlayedSupervisor) -> None:
    told = client.get("topologies/words/counters")
    assert told["components"]["lines"]["emitted"] == 7
    [worker] = told["workers"]
    assert worker["components"]["lines"]["emitted"] == 7 and worker["incarnation"] == [1, 0]


def test_a_number_that_json_does_not_have_is_sent_as_text(client: Client, running: PlayedSupervisor) -> None:
    [row] = counters_of(running, 8, number=2)
    row["counters"]["components"]["lines"]["gauges"] = {"ratio": "NaN"}
    running.send(counters=[row])
    metrics = client.get("topologies/words/components/lines")["metrics"]
    assert metrics == {"ratio": "NaN"}


def test_prometheus_gets_counters_of_each_component(client: Client, running: object) -> None:
    page = text_at(client, "/metrics")
    assert 'squall_component_emitted_total{topology="words",component="lines"} 7' in page.splitlines()
    assert 'squall_topology_state{topology="words",state="ACTIVE"} 1' in page.splitlines()
    assert "# TYPE squall_component_emitted_total counter" in page
    assert "squall_slots 2" in page and "squall_slots_used 1" in page


def test_a_supervisor_speaks_for_no_worker_of_another_host(
    client: Client, store: InMemoryStore, leader: NimbusDaemon, running: PlayedSupervisor
) -> None:
    stranger = PlayedSupervisor(store, leader, "s2")
    [place] = running.assignment().placements
    [refused] = stranger.say(crash="ValueError: made up")
    assert refused["worker"] == place.worker
    stranger.send(counters=counters_of(running, 1_000_000, number=99))
    shown = client.get("topologies/words")
    assert (shown["state"], shown["components"]["lines"]["emitted"]) == ("ACTIVE", 7)
    for worker in (place.worker, "w99"):  # of an assignment that has not begun
        [row] = counters_of(running, 1_000_000, number=99)
        stranger.send(counters=[row | {"worker": worker, "incarnation": [99, 0]}])
        assert client.get("topologies/words")["components"]["lines"]["emitted"] == 7
    assert running.send(counters=counters_of(running, 8, number=3)) == []
    assert client.get("topologies/words")["components"]["lines"]["emitted"] == 8
    Registry(store).supervisors.delete("s2")


def test_prometheus_gets_the_load_of_tasks_and_processes(client: Client, running: PlayedSupervisor) -> None:
    times = LatencyHistogram()
    times.add(0.25)
    [row] = counters_of(running, 8, number=2)
    row["counters"]["process"] = {"pid": 17, "cpu": 0.5, "rss": 2**20, "threads": 6}
    row["counters"]["components"]["lines"] |= {
        "execute": times.as_dict(),
        "loads": [
            {"task": 1, "busy": 0.75, "queue": 3, "call_since": 1000.0, "execute_p99": 0.5, "grew": 2**21}
        ],
        "down": {"1": [900.0, 'Away: no "answer" to 7 (/state/code/0a1b/store.py:17, in write\\all)']},
    }
    running.send(counters=[row])
    found = dict(line.rsplit(" ", 1) for line in text_at(client, "/metrics").splitlines())
    lines = 'topology="words",component="lines"'
    quantile = found[f'squall_component_execute_seconds{{{lines},quantile="0.99"}}']
    assert float(quantile) == pytest.approx(0.25, rel=0.02)
    assert found[f'squall_task_execute_seconds{{{lines},task="1",quantile="0.99"}}'] == "0.5"
    of_task = {"busy_ratio": 0.75, "queue": 3, "call_start_seconds": 1000, "down_since_seconds": 900}
    of_task["memory_growth_bytes"] = 2**21
    for name, value in of_task.items():
        assert float(found[f'squall_task_{name}{{{lines},task="1"}}']) == value
    error = r"Away: no # to # (store.py:17, in write\\all)"
    assert found[f'squall_task_down_info{{{lines},task="1",error="{error}"}}'] == "1"
    of_process = {"cpu_cores": 0.5, "resident_memory_bytes": 2**20, "threads": 6, "restarts": 0}
    for name, value in of_process.items():
        assert float(found[f'squall_worker_{name}{{topology="words",worker="w1"}}']) == value
    [worker] = client.get("topologies/words")["workers"]
    host = f'host="{worker["host"]}",pid="17"'
    assert found[f'squall_worker_info{{topology="words",worker="w1",{host}}}'] == "1"
    status = client.get("topologies/words")
    assert status["workers"][0]["restarts"] == 0
    assert status["now"] == pytest.approx(time.time(), abs=60)


def test_prometheus_gets_the_epochs_of_topologies_with_a_state_path_only(
    client: Client, running: PlayedSupervisor
) -> None:
    names = ("epoch", "rewinds", "state_keys", "parked", "uncommitted")
    page = text_at(client, "/metrics").splitlines()
    assert not [line for line in page if line.startswith(tuple(f"squall_{name}" for name in names))]
    [row] = counters_of(running, 8, number=2)
    row["counters"]["epochs"] = {
        "lead": {
            "rewind": 7, "number": 19, "committed": time.time() - 5, "duration": 0.25, "longest": 0.5, "bytes": 1200,
            "slowest": {"component": "lines", "task": 1, "secs": 0.125}, "rewinds": 2, "rewind_reason": "w2 has ended",
        },
        "waits": [{"what": "store", "since": 900.5, "why": "no space left on device"}],
    }  # fmt: skip
    row["counters"]["components"]["lines"] |= {"uncommitted": 70}
    running.send(counters=[row])
    found = dict(line.rsplit(" ", 1) for line in text_at(client, "/metrics").splitlines())
    values = {
        "epoch_number": 19,
        "epoch_seconds": 0.25,
        "epoch_longest_seconds": 0.5,
        "epoch_bytes": 1200,
        "rewinds_total": 2,
    }
    for name, value in (values | {"epoch_quiet": 0}).items():
        assert float(found[f'squall_{name}{{topology="words"}}']) == value
    assert float(found['squall_epoch_age_seconds{topology="words"}']) == pytest.approx(5, abs=60)
    lines = 'topology="words",component="lines"'
    assert found[f'squall_epoch_slowest_task_seconds{{{lines},task="1"}}'] == "0.125"
    assert found['squall_epoch_waits_since_seconds{topology="words",for="store"}'] == "900.5"
    assert found[f"squall_uncommitted_tuples{{{lines}}}"] == "70"
    shown = client.get("topologies/words")
    assert shown["epoch"]["waits"][0]["why"] == "no space left on device"
    assert (shown["epoch"]["rewind_reason"], shown["components"]["lines"]["uncommitted"]) == (
        "w2 has ended",
        70,
    )


def test_the_alert_rules_of_the_page_name_metrics_that_exist(client: Client, running: object) -> None:
    page = (ROOT / "docs" / "cluster.md").read_text()
    [block] = [each for each in re.findall(r"```yaml\n(.*?)```", page, re.S) if each.startswith("groups:")]
    [group] = yaml.safe_load(block)["groups"]
    by_rule = [re.findall(r"squall_\w+", rule["expr"]) for rule in group["rules"]]
    named = {name for names in by_rule for name in names}
    there = set(re.findall(r"^# TYPE (\S+) ", text_at(client, "/metrics"), re.M))
    assert all(by_rule) and named <= there


def test_prometheus_gets_the_users_own_metrics(client: Client, running: PlayedSupervisor) -> None:
    histogram = LatencyHistogram()
    for value in (1.0, 1.0, 3.0):
        histogram.add(value)
    [row] = counters_of(running, 8, number=2)
    lines = row["counters"]["components"]["lines"]
    lines["metrics"] = {
        'read "twice"': 3,
        "sizes": histogram.as_dict(),
        "none yet": LatencyHistogram().as_dict(),
    }
    lines["gauges"] = {"lag": 0.5, "full": True, "broken": "ValueError: no"}
    running.send(counters=[row])
    page = text_at(client, "/metrics").splitlines()
    where = 'topology="words",component="lines",metric='
    found = dict(line.rsplit(" ", 1) for line in page if where in line)
    plain = f"squall_component_metric{{{where}"
    assert found.pop(f'{plain}"read \\"twice\\""}}') == "3"
    assert (found.pop(f'{plain}"lag"}}'), float(found.pop(f'{plain}"full"}}'))) == ("0.5", 1)
    sizes = f"squall_component_histogram{{{where}" + '"sizes",quantile='
    assert float(found.pop(f'{sizes}"0.5"}}')) == pytest.approx(1.0, rel=0.02)
    assert float(found.pop(f'{sizes}"0.99"}}')) == pytest.approx(3.0, rel=0.02)
    counts = f"squall_component_histogram_count{{{where}"
    assert (found.pop(f'{counts}"sizes"}}'), found.pop(f'{counts}"none yet"}}')) == ("3", "0")
    assert found == {}, "values that are no numbers are omitted"


def test_health_and_the_openapi_document_need_no_credentials(leader: NimbusDaemon) -> None:
    stranger = Client([leader.url])
    assert stranger.get("/health") == {
        "status": "ok",
        "leading": True,
        "store": {"kind": "memory", "connected": True},
    }
    document = stranger.get("openapi.json")
    assert document["openapi"].startswith("3.") and "/api/v1/topologies/{name}" in document["paths"]
    stranger.close()


def test_an_unreadable_record_is_listed_as_bad_and_can_be_killed(
    client: Client, store: InMemoryStore, running: object
) -> None:
    store.put(paths.topology("broken"), b"no record at all")
    listed = {each["name"]: each for each in client.get("topologies")["topologies"]}
    assert listed["words"]["state"] == "ACTIVE"
    assert listed["broken"]["state"] == "BAD" and "no TopologyRecord" in listed["broken"]["error"]
    told = client.get("topologies/broken")
    assert told["state"] == "BAD" and told["workers"] == []
    with pytest.raises(Refused, match="squall kill broken") as refused:
        client.post("topologies/broken/activate")
    assert (refused.value.status, refused.value.kind) == (409, "BadTopology")
    client.delete("topologies/broken")
    assert [each["name"] for each in client.get("topologies")["topologies"]] == ["words"]


def test_a_topology_with_a_damaged_description_is_bad_and_the_others_are_shown(
    client: Client, store: InMemoryStore, running: PlayedSupervisor
) -> None:
    damaged = client.post("topologies", submission(words("damaged")))["id"]
    store.put(paths.description(damaged), b"no blob at all")
    listed = {each["name"]: each["state"] for each in client.get("topologies")["topologies"]}
    assert listed == {"words": "ACTIVE", "damaged": "BAD"}
    assert "is not a blob" in client.get("topologies/damaged")["error"]
    assert "squall_topology_state" in text_at(client, "/metrics")


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("topologies/nobody", "NoSuchTopology"),
        ("topologies/nobody/workers", "NoSuchTopology"),
        ("topologies/nobody/errors", "NoSuchTopology"),
        ("topologies/nobody/counters", "NoSuchTopology"),
        ("topologies/nobody/configuration", "NoSuchTopology"),
        ("topologies/nobody/components/lines", "NoSuchTopology"),
        ("topologies/words/components/nothing", "NotFound"),
        ("topologies/words/errors?component=nothing", "NotFound"),
        ("topologies/words/workers/w99/log", "NotFound"),
        (f"files/{'0' * 64}", "NotFound"),
        ("nothing", "NotFound"),
        ("topologies/", "NotFound"),
    ],
)
def test_a_missing_object_is_404_by_name(client: Client, running: object, path: str, kind: str) -> None:
    with pytest.raises(Refused) as refused:
        client.get(path)
    assert (refused.value.status, refused.value.kind) == (404, kind)
    assert refused.value.message


@pytest.mark.parametrize(
    "path",
    [
        "topologies/words?colour=red",
        "topologies/words/workers/w1/log?offset=soon",
        "topologies/words/workers/w1/log?limit=0",
        "topologies/words/workers/w1/log?file=secrets",
        f"files/{'Z' * 64}",
    ],
)
def test_an_undescribed_query_is_400(client: Client, running: object, path: str) -> None:
    with pytest.raises(Refused) as refused:
        client.get(path)
    assert (refused.value.status, refused.value.kind) == (400, "BadRequest")


def test_a_method_that_a_path_does_not_accept_is_405_and_names_the_accepted_ones(
    leader: NimbusDaemon,
) -> None:
    status, headers, body = raw(leader, "PATCH", "/api/v1/topologies")
    assert status == 405 and body["error"]["kind"] == "WrongMethod"
    assert {"GET", "POST"} <= set(headers["allow"].replace(",", " ").split())


def test_without_credentials_everything_else_is_401(leader: NimbusDaemon) -> None:
    status, headers, body = raw(leader, "GET", "/api/v1/topologies")
    assert (status, body["error"]["kind"]) == (401, "Unauthorized")
    assert headers["www-authenticate"] == "Bearer"


def test_names_with_special_characters_are_one_name(client: Client, supervisor: PlayedSupervisor) -> None:
    name = "a b%2Fü"
    client.post("topologies", submission(words(name)))
    assert client.get(at("topologies", name))["name"] == name


def raw(
    daemon: NimbusDaemon, method: str, path: str, body: bytes | None = None, **headers: str
) -> tuple[int, dict[str, str], Any]:
    """A request without our client."""
    connection = http.client.HTTPConnection(daemon.url.removeprefix("http://"), timeout=10)
    try:
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        data = response.read()
        found = {name.lower(): value for name, value in response.getheaders()}
        is_json = found.get("content-type") == "application/json"
        return response.status, found, json.loads(data) if data and is_json else None
    finally:
        connection.close()


@pytest.mark.parametrize(("said", "state"), [({"ended": True}, "COMPLETED"), ({"crash": "boom"}, "FAILED")])
def test_the_last_workers_of_an_ended_topology_are_shown_until_it_is_killed(
    client: Client, store: InMemoryStore, running: PlayedSupervisor, said: dict[str, Any], state: str
) -> None:
    [before] = client.get("topologies/words/workers")["workers"]
    running.say(**said)
    [leaving] = client.get("topologies/words/workers")["workers"]
    assert leaving["state"] == "STOPPING"
    topology_id = client.get("topologies/words")["id"]
    running.say(stopped=True)
    assert store.get(paths.leaving(topology_id)) is None
    told = client.get("topologies/words")
    assert told["state"] == state
    assert told["workers"] == [{**before, "state": "STOPPED", "opened": False}]
    assert client.get("supervisors")["supervisors"][0]["workers"] == []
    with pytest.raises(Refused, match="supervisor s1 on host-s1 does not serve logs"):  # the path exists
        client.get(at("topologies", "words", "workers", before["worker"], "log"))
    with pytest.raises(Refused, match="has no worker 'w9'"):
        client.get("topologies/words/workers/w9/log")
    store.put(paths.former(topology_id), b"no record at all")
    assert client.get("topologies/words")["workers"] == []
    client.delete("topologies/words", wait_secs=0)
    assert store.get(paths.former(topology_id)) is None


def test_errors_counters_and_workers_of_a_killed_topology_are_shown(
    client: Client, running: PlayedSupervisor
) -> None:
    topology_id = client.get("topologies/words")["id"]
    with pytest.raises(Refused, match="no version of 'words' has ended"):
        client.get("topologies/words/previous")
    client.delete("topologies/words", wait_secs=0)
    running.say(stopped=True)
    with pytest.raises(Refused, match="no topology"):
        client.get("topologies/words")
    told = client.get("topologies/words/previous")
    assert (told["id"], told["how"], told["error"]) == (topology_id, "killed", None)
    assert told["components"]["lines"]["emitted"] == 7
    assert [each["text"] for each in told["errors"]] == [BOOM.render()]
    [worker] = told["workers"]
    assert (worker["supervisor"], worker["host"], worker["state"]) == ("s1", "host-s1", "STOPPED")
    with pytest.raises(Refused, match="supervisor s1 on host-s1 does not serve logs"):  # the path exists
        client.get(at("topologies", "words", "workers", worker["worker"], "log"), version=topology_id)
    with pytest.raises(Refused, match="nothing is kept of a version 'words-9-9'"):
        client.get(at("topologies", "words", "workers", worker["worker"], "log"), version="words-9-9")

    client.post(
        "topologies", submission(words())
    )  # another topology with the name: the killed one is the previous one
    assert client.get("topologies/words/previous")["id"] == topology_id
