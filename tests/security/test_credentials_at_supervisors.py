"""A supervisor's HTTP answers only Nimbuses of its cluster, and serves only logs."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from squall.cluster import paths
from squall.cluster.memory import InMemoryStore
from squall.cluster.records import NimbusRecord, SupervisorRecord, encode
from squall.security.sealing import (
    NIMBUS_TO_NIMBUS,
    NIMBUS_TO_SUPERVISOR,
    SUPERVISOR_TO_NIMBUS,
    KeyPair,
    daemon_header,
)
from supervisor.directories import Directories
from supervisor.log_server import LogServer
from supervisor.nimbus_http import Nimbuses

OWN, NIMBUS, STRANGER = (KeyPair.make() for _ in range(3))
SECRET = "s3cret"
LOG = "/logs/words-1-0/w1"


class Server:
    """A supervisor's HTTP with one worker, and a registered Nimbus."""

    def __init__(self, state: Path) -> None:
        self.store = InMemoryStore()
        self.store.put(paths.nimbus("n1"), encode(NimbusRecord("n1", "http://n1:1", "host", NIMBUS.public)))
        self.store.put(paths.nimbus("keyless"), encode(NimbusRecord("keyless", "http://n3:1", "host")))
        record = SupervisorRecord("s2", "host", 4, public_key=STRANGER.public)
        self.store.put(paths.supervisor("s2"), encode(record))
        directories = Directories(state)
        worker = directories.make_worker("words-1-0", "w1")
        (worker / "worker.log").write_text("a line\n")
        (worker / "keys.json").write_text(SECRET)
        (state / "key").write_text(SECRET)
        self.state, self.worker = state, worker
        nimbuses = Nimbuses(self.store, "s1", OWN)
        self.http = LogServer("127.0.0.1", 0, directories, lambda topology: None, nimbuses.comes_from_one)

    def ask(self, path: str, authorization: str | None, method: str = "GET") -> tuple[int, dict[str, Any]]:
        connection = http.client.HTTPConnection("127.0.0.1", self.http.port, timeout=10)
        try:
            headers = {} if authorization is None else {"Authorization": authorization}
            connection.request(method, path, headers=headers)
            answer = connection.getresponse()
            data = answer.read()
            assert SECRET.encode() not in data
            return answer.status, json.loads(data or b"{}")
        finally:
            connection.close()


def of_nimbus(pair: KeyPair = NIMBUS, name: str = "n1", context: str = NIMBUS_TO_SUPERVISOR) -> str:
    return daemon_header(name, pair.token_with(OWN.public, context))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("state"))
    server.http.start()
    yield server
    server.http.stop()


FALSE = {
    "nothing": None,
    "an empty header": "",
    "an operator's token": "Bearer abc",
    "a daemon without a token": "Squall-Daemon n1:",
    "an unknown Nimbus": of_nimbus(name="n9"),
    "a Nimbus without a key": of_nimbus(name="keyless"),
    "a stranger under a Nimbus's id": of_nimbus(STRANGER),
    "another supervisor": of_nimbus(STRANGER, name="s2"),
    "a token of the other direction": of_nimbus(context=SUPERVISOR_TO_NIMBUS),
    "a token for Nimbuses": of_nimbus(context=NIMBUS_TO_NIMBUS),
    "an id that leads elsewhere in the store": of_nimbus(STRANGER, name="../supervisors/s2"),
}


def test_a_nimbus_of_the_cluster_reads_logs(server: Server) -> None:
    status, body = server.ask(LOG, of_nimbus())
    assert (status, body["text"]) == (200, "a line\n")


@pytest.mark.parametrize("kind", FALSE)
@pytest.mark.parametrize("path", [LOG, f"{LOG}?file=output", "/logs/x/y", "/", "/logs", "/keys.json"])
def test_no_other_client_can_read_anything(server: Server, path: str, kind: str) -> None:
    assert server.ask(path, FALSE[kind])[0] == 401


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_only_reading_is_possible(server: Server, method: str) -> None:
    assert server.ask(LOG, of_nimbus(), method)[0] == 405


def test_health_says_nothing_else(server: Server) -> None:
    assert server.ask("/health", None) == (200, {"status": "ok"})


@pytest.mark.parametrize(
    "names",
    [("..", ".."), ("../..", "w1"), ("words-1-0", "../../../key"), ("words-1-0", "w1/../../../.."),
     ("words-1-0", "w1/keys.json"), ("/etc", "passwd"), ("words-1-0", "..")],
)  # fmt: skip
@pytest.mark.parametrize("file", ["worker", "output", "build"])
def test_no_name_leads_out_of_the_logs(server: Server, names: tuple[str, str], file: str) -> None:
    for path in ("/logs/" + "/".join(quote(name, safe="") for name in names), "/logs/" + "/".join(names)):
        assert server.ask(f"{path}?file={file}", of_nimbus())[0] == 404


@pytest.mark.parametrize("file", ["keys.json", "../keys.json", "orders.json", "worker.log/../keys.json", ""])
def test_no_other_file_of_a_worker_is_served(server: Server, file: str) -> None:
    assert server.ask(f"{LOG}?file={quote(file, safe='')}", of_nimbus())[0] in (400, 404) or not file


def test_a_worker_that_replaces_its_log_by_a_link_exposes_nothing(server: Server) -> None:
    for name in ("output.log", "output.log.1"):
        (server.worker / name).symlink_to(server.state / "key")
    for query in ("file=output", "file=output&offset=99"):
        status, body = server.ask(f"{LOG}?{query}", of_nimbus())
        assert status == 404, body


def test_a_nimbus_removed_from_the_store_is_refused(tmp_path: Path) -> None:
    store = InMemoryStore()
    for name, pair in (("n1", NIMBUS), ("n2", STRANGER)):
        store.put(paths.nimbus(name), encode(NimbusRecord(name, f"http://{name}:1", "host", pair.public)))
    nimbuses = Nimbuses(store, "s1", OWN)
    assert nimbuses.comes_from_one(of_nimbus())
    store.delete(paths.nimbus("n1"))
    assert not nimbuses.comes_from_one(of_nimbus())
