"""Every route of Nimbus, with every kind of insufficient credentials: it refuses before it reads anything."""

from __future__ import annotations

import re
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from nimbus.http.app import make_app
from nimbus.http.auth import NIMBUS, OPERATOR, SUPERVISOR, Authenticator
from nimbus.http.handlers import Services
from nimbus.http.table import TABLE, AnyEndpoint
from nimbus.security.changes import ChangeFiles
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
from squall.security.tokens import bearer, make_token
from tests.security.asking import Answer, ask

TOKEN, EARLIER_TOKEN = make_token(), make_token()
ME, SUPERVISOR_PAIR, NIMBUS_PAIR, STRANGER = (KeyPair.make() for _ in range(4))
ROUTES = [pytest.param(endpoint, id=f"{endpoint.method} {endpoint.path}") for endpoint in TABLE]
CLOSED = [
    pytest.param(endpoint, id=f"{endpoint.method} {endpoint.path}") for endpoint in TABLE if endpoint.who
]


class Touched(AssertionError):
    """A request passed the authenticator."""


class Untouchable:
    """Services that must not be accessed."""

    def __getattr__(self, name: str) -> Any:
        raise Touched(name)


@pytest.fixture
def store() -> InMemoryStore:
    store = InMemoryStore()
    record = SupervisorRecord("s1", "host", 4, public_key=SUPERVISOR_PAIR.public)
    store.put(paths.supervisor("s1"), encode(record))
    store.put(paths.supervisor("keyless"), encode(SupervisorRecord("keyless", "host", 4)))
    store.put(paths.supervisor("low"), encode(SupervisorRecord("low", "host", 4, public_key="00" * 32)))
    store.put(paths.supervisor("broken"), b"no record")
    store.put(paths.nimbus("n2"), encode(NimbusRecord("n2", "http://n2:1", "host", NIMBUS_PAIR.public)))
    return store


@pytest.fixture
def files(tmp_path: Path) -> ChangeFiles:
    return ChangeFiles(tmp_path, time.time)


@pytest.fixture
def app(store: InMemoryStore, files: ChangeFiles) -> Any:
    return make_app(cast(Services, Untouchable()), Authenticator(lambda: TOKEN, ME, store), files)


def path_of(endpoint: AnyEndpoint) -> str:
    return re.sub(r"\{(\w+)\}", lambda found: "0" * 64 if found[1] == "sha256" else "s1", endpoint.path)


def asked(app: Any, endpoint: AnyEndpoint, authorization: str | None) -> Answer:
    return ask(
        app, endpoint.method, path_of(endpoint), authorization, b"{}" if endpoint.method == "POST" else b""
    )


def of_supervisor(
    pair: KeyPair = SUPERVISOR_PAIR, name: str = "s1", context: str = SUPERVISOR_TO_NIMBUS
) -> str:
    return daemon_header(name, pair.token_with(ME.public, context))


FALSE = {
    "nothing": None,
    "an empty header": "",
    "a false token": bearer(make_token()),
    "the token before it was renewed": bearer(EARLIER_TOKEN),
    "the token cut short": bearer(TOKEN[:-1]),
    "the token with more behind it": bearer(TOKEN + "x"),
    "an empty token": "Bearer ",
    "the token by another scheme": f"Basic {TOKEN}",
    "the token alone": TOKEN,
    "the token as a daemon": f"Squall-Daemon operator:{TOKEN}",
    "a daemon without a token": "Squall-Daemon s1:",
    "an unknown daemon": of_supervisor(name="s9"),
    "a stranger under a supervisor's id": of_supervisor(STRANGER),
    "a supervisor under a Nimbus's id": of_supervisor(name="n2"),
    "a supervisor without a key": of_supervisor(name="keyless"),
    "a supervisor with a worthless key": daemon_header("low", "0" * 64),
    "a supervisor whose record is broken": of_supervisor(name="broken"),
    "a token of the other direction": of_supervisor(context=NIMBUS_TO_SUPERVISOR),
    "a supervisor as a Nimbus": of_supervisor(context=NIMBUS_TO_NIMBUS),
    "an id that leads elsewhere in the store": of_supervisor(name="../nimbuses/n2"),
    "an id without end": daemon_header("s" * 5000, "0" * 64),
    "letters of no alphabet": "Bearer \xff\xfe",
}


@pytest.mark.parametrize("kind", FALSE)
@pytest.mark.parametrize("endpoint", CLOSED)
def test_no_route_is_open_without_a_right(app: Any, endpoint: AnyEndpoint, kind: str) -> None:
    answer = asked(app, endpoint, FALSE[kind])
    assert answer.status == 401
    assert answer.headers["www-authenticate"] == "Bearer"
    if endpoint.method != "HEAD":
        assert answer.error["kind"] == "Unauthorized"
        assert TOKEN not in answer.data.decode()


@pytest.mark.parametrize("endpoint", CLOSED)
def test_a_daemon_may_use_only_routes_for_daemons(app: Any, endpoint: AnyEndpoint) -> None:
    of_nimbus = daemon_header("n2", NIMBUS_PAIR.token_with(ME.public, NIMBUS_TO_NIMBUS))
    for kind, header in ((SUPERVISOR, of_supervisor()), (NIMBUS, of_nimbus)):
        answer = asked(app, endpoint, header)
        assert (answer.status != 401) == (kind in endpoint.who), (kind, answer)
        if answer.status == 401 and endpoint.who - {OPERATOR} and endpoint.method != "HEAD":
            assert f"this sender ({kind}) may not" in answer.error["message"]


@pytest.mark.parametrize("endpoint", CLOSED)
def test_an_operator_may_do_everything_but_report_for_a_supervisor(app: Any, endpoint: AnyEndpoint) -> None:
    answer = asked(app, endpoint, bearer(TOKEN))
    assert (answer.status != 401) == (OPERATOR in endpoint.who)
    assert (OPERATOR in endpoint.who) or endpoint.path.endswith("/reports")


def test_a_supervisor_cannot_report_for_another_one(store: InMemoryStore, files: ChangeFiles) -> None:
    services = SimpleNamespace(control=SimpleNamespace(leading=True))
    app = make_app(cast(Services, services), Authenticator(lambda: TOKEN, ME, store), files)
    answer = ask(app, "POST", "/api/v1/supervisors/s2/reports", of_supervisor(), b"{}")
    assert (answer.status, answer.error["message"]) == (401, "only supervisor 's2' may send its reports")


def test_routes_open_to_all_are_listed_by_name() -> None:
    assert {endpoint.path for endpoint in TABLE if not endpoint.who} == {"/health", "/api/v1/openapi.json"}


@pytest.mark.parametrize(
    "method", ["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT"]
)
@pytest.mark.parametrize("endpoint", ROUTES)
def test_no_other_method_of_a_route_bypasses_the_gate(app: Any, endpoint: AnyEndpoint, method: str) -> None:
    answer = ask(app, method, path_of(endpoint))
    open_to_all = {each.method for each in TABLE if each.path == endpoint.path and not each.who}
    assert answer.status in (401, 405) or method in {*open_to_all, "HEAD"}
    assert answer.status in (401, 405) or open_to_all


@pytest.mark.parametrize(
    "path", ["/api/v1/topologies/", "/api/v1//topologies", "//api/v1/topologies", "/api/v1/./topologies", "/API/v1/topologies",
             "/api/v1/topologies%2F", "/api/v1/health/../topologies", "/health/../api/v1/topologies", "/", "/docs", "/api"],
)  # fmt: skip
def test_no_other_spelling_of_a_path_bypasses_the_gate(app: Any, path: str) -> None:
    assert ask(app, "GET", path).status in (401, 404, 405)


def test_a_nimbus_that_does_not_know_the_token_yet_refuses_all(
    store: InMemoryStore, files: ChangeFiles
) -> None:
    app = make_app(cast(Services, Untouchable()), Authenticator(lambda: None, ME, store), files)
    for given in ("", "None", TOKEN):
        assert ask(app, "GET", "/api/v1/topologies", f"Bearer {given}").status in (401, 503)


@pytest.mark.parametrize("route", CLOSED)
def test_a_request_without_credentials_learns_that_there_is_no_token_yet(
    store: InMemoryStore, files: ChangeFiles, route: AnyEndpoint
) -> None:
    app = make_app(cast(Services, Untouchable()), Authenticator(lambda: None, ME, store), files)
    answer = ask(app, route.method, path_of(route))
    assert answer.status == 503
    if route.method != "HEAD":
        assert answer.error["kind"] == "NoLeader" and "ask again in a few seconds" in answer.error["message"]
