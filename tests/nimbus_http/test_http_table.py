"""The table of the API, and the documents made from it: Nimbus does what they say."""

from __future__ import annotations

import re
from typing import Any

import pytest

from nimbus.daemon import NimbusDaemon
from nimbus.http import errors
from nimbus.http.errors import MEANINGS, answer_of
from nimbus.http.openapi import document, statuses
from nimbus.http.requests import read_query
from nimbus.http.table import API, TABLE, AnyEndpoint
from nimbus.submission.parse import BadRequest
from scripts.http_api_page import as_markdown
from squall.api.requests import LogQuery
from squall.cluster.store import Conflict, Deposed, TooBig, Unavailable
from squall.daemon.command_loop import NotInTime, Stopped
from squall.http.client import Refused
from tests.certificates import make_certificates
from tests.nimbus_http.nimbuses import Cluster, client_of, closing
from tests.nimbus_http.test_reads_over_http import raw
from topology_api.errors import InvalidTopology, NameTaken, NoSuchTopology, SquallError

ENDPOINTS = [pytest.param(endpoint, id=f"{endpoint.method} {endpoint.path}") for endpoint in TABLE]


@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_every_row_of_the_table_exists_and_answers_as_described(
    shared_leader: NimbusDaemon, endpoint: AnyEndpoint
) -> None:
    names = {
        "name": "nobody",
        "component": "c",
        "worker": "w1",
        "id": "s1",
        "supervisor": "s1",
        "sha256": "0" * 64,
    }
    path = re.sub(r"\{(\w+)\}", lambda found: names[found[1]], endpoint.path)
    status, _, body = raw(
        shared_leader, endpoint.method, path, b"", Authorization=f"Bearer {shared_leader.token}"
    )
    assert status in {*endpoint.answers, *statuses(endpoint)}
    if status >= 400 and endpoint.method != "HEAD":
        assert set(body["error"]) == {"kind", "message", "problems"}


def test_everything_in_the_contract_with_users_is_in_the_table() -> None:
    promised = """GET cluster | GET supervisors | GET topologies | POST topologies | GET topologies/{name}
        | DELETE topologies/{name} | POST topologies/{name}/activate | POST topologies/{name}/deactivate
        | POST topologies/{name}/rebalance | GET topologies/{name}/components/{component} | GET topologies/{name}/errors
        | GET openapi.json"""
    there = {(endpoint.method, endpoint.path) for endpoint in TABLE}
    for row in promised.split("|"):
        method, path = row.split()
        assert (method, f"{API}/{path}") in there
    assert {("GET", "/metrics"), ("GET", "/health")} <= there


def test_the_openapi_document_describes_every_row() -> None:
    described = document()
    operations: list[dict[str, Any]] = []
    for endpoint in TABLE:
        operation = described["paths"][endpoint.path][endpoint.method.lower()]
        operations.append(operation)
        in_path = {each["name"] for each in operation["parameters"] if each["in"] == "path"}
        assert in_path == set(re.findall(r"\{(\w+)\}", endpoint.path))
        assert {str(status) for status in endpoint.answers} <= set(operation["responses"])
        assert bool(operation["security"]) == bool(endpoint.who)
    assert len(operations) == len(TABLE)


def test_the_page_for_people_has_every_row_and_every_error() -> None:
    page = as_markdown()
    for endpoint in TABLE:
        assert f"### {endpoint.method} {endpoint.path}\n" in page
    for status, kind, _ in errors.TABLE:
        assert f"`{kind}`" in page and status in MEANINGS


@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [
        (NoSuchTopology("x"), 404, "NoSuchTopology"),
        (NameTaken("x"), 409, "NameTaken"),
        (InvalidTopology(["a", "b"]), 422, "InvalidTopology"),
        (TooBig("big"), 413, "TooLarge"),
        (Unavailable("away"), 503, "StoreUnavailable"),
        (Conflict("/x", 1, 2), 503, "Busy"),
        (Deposed("gone"), 503, "NoLeader"),
        (NotInTime("busy", False), 503, "Busy"),
        (Stopped("stopped"), 503, "Stopping"),
        (Refused(418, "Teapot", "short and stout"), 418, "Teapot"),
        (SquallError("something else"), 500, "Failed"),
    ],
)
def test_each_error_has_its_status(error: Exception, status: int, kind: str) -> None:
    found, body = answer_of(error)
    assert (found, body.error.kind) == (status, kind)
    assert str(error) in body.error.message
    assert body.error.problems == list(getattr(error, "problems", ()))


def test_the_store_describes_itself() -> None:
    _, body = answer_of(Unavailable("the store in store.sqlite fails: database or disk is full"))
    assert "disk is full" in body.error.message and "ZooKeeper" not in body.error.message


def test_details_of_an_internal_error_are_not_sent() -> None:
    status, body = answer_of(ValueError("the password is hunter2"))
    assert status == 500 and "hunter2" not in str(body) and "log" in body.error.message


def test_a_query_is_read_as_the_table_says() -> None:
    assert read_query(LogQuery, []) == LogQuery("worker", 0, 65_536)
    assert read_query(LogQuery, [("offset", "-10"), ("file", "build")]) == LogQuery("build", -10, 65_536)
    with pytest.raises(BadRequest) as error:
        read_query(LogQuery, [("offset", "1.5"), ("file", "x"), ("y", "z")])
    assert len(error.value.problems) == 3


def test_everything_works_over_https(cluster: Cluster, tmp_path: Any) -> None:
    made = make_certificates(tmp_path / "certificates")
    conf = {
        "squall.tls.certificate": made.certificate,
        "squall.tls.key": made.key,
        "squall.tls.ca": made.ca,
    }
    leader = cluster.start_leader("first", conf=conf)
    standby = cluster.start_standby("second", cluster.store.session(), conf=conf)  # type: ignore[attr-defined]
    assert leader.url.startswith("https://")
    with closing(client_of(standby)) as client:
        client._pool.ca = made.ca
        assert client.get("topologies") == {"topologies": []}
        with pytest.raises(Refused) as refused:  # redirected to the leader
            client.post("topologies/nobody/activate")
        assert refused.value.status == 404
