"""Requests that our clients never make, over real HTTP: each gets an answer, and none causes an error in Nimbus."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from hashlib import sha256

import pytest

from nimbus.daemon import NimbusDaemon
from squall.cluster.memory import InMemoryStore
from squall.http.client import Client, Refused, at
from squall.http.pool import Address
from tests.nimbus_http.nimbuses import Cluster, submission, until
from tests.nimbus_http.test_reads_over_http import raw

CAP_SECS = 30.0
HUGE = "1" + "0" * 400


@pytest.fixture(autouse=True)
def no_error_of_nimbus_itself(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    yield
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


def connect(nimbus: NimbusDaemon) -> socket.socket:
    address = Address.of(nimbus.url)
    return socket.create_connection((address.host, address.port), timeout=CAP_SECS)


def said(nimbus: NimbusDaemon, head: str, body: bytes = b"") -> bytes:
    """The response until the connection is closed, as the request asks."""
    with connect(nimbus) as connection:
        connection.sendall(f"{head}\r\nConnection: close\r\n\r\n".encode("latin-1") + body)
        answer = b""
        while piece := connection.recv(65536):
            answer += piece
    return answer


def authorized(nimbus: NimbusDaemon) -> dict[str, str]:
    return {"Authorization": f"Bearer {nimbus.token}"}


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", f"topologies/words/workers/w1/log?limit=-{HUGE}", None),
        ("GET", "topologies/words/workers/w1/log?offset=" + "9" * 5000, None),
        ("DELETE", f"topologies/words?wait_secs={HUGE}", None),
        ("DELETE", "topologies/words?wait_secs=1e300", None),
        ("DELETE", "topologies/words?wait_secs=nan", None),
        ("DELETE", "topologies/words", '{"wait_secs": true}'),
        ("GET", "topologies/words/workers/w1/log?version=", None),
        ("POST", "topologies/words/rebalance", f'{{"wait_secs": {HUGE}}}'),
        ("POST", "topologies/words/rebalance", '{"wait_secs": 1e999}'),
        ("POST", "topologies/words/rebalance", '{"workers": ' + "9" * 5000 + "}"),
        ("POST", "topologies/words/rebalance", '{"\\ud800": 1}'),
        ("POST", "topologies/words/activate", '{"a":' * 5000 + "1" + "}" * 5000),
        ("POST", "topologies/words/activate", "[" * 101 + "]" * 101),
        ("POST", "topologies/words/activate", "\x1f\x8b\x08\x00 gzip"),
    ],
)
def test_numbers_and_shapes_beyond_all_bounds_are_400(
    shared_leader: NimbusDaemon, method: str, path: str, body: str | None
) -> None:
    data = None if body is None else body.encode("latin-1")
    status, _, answer = raw(shared_leader, method, f"/api/v1/{path}", data, **authorized(shared_leader))
    assert (status, answer["error"]["kind"]) == (400, "BadRequest")
    assert len(answer["error"]["message"]) < 6000


def test_a_body_that_is_nested_too_deeply_is_refused(shared_leader: NimbusDaemon) -> None:
    for levels, problem in (
        (101, "100 levels deep"),
        (100_000, "100 levels deep"),
        (100, "a JSON object was"),
    ):
        data = b"[" * levels + b"]" * levels
        path = "/api/v1/topologies/words/activate"
        _, _, answer = raw(shared_leader, "POST", path, data, **authorized(shared_leader))
        assert problem in answer["error"]["message"], levels


def test_a_topology_with_an_absurd_timeout_is_refused(shared_client: Client) -> None:
    conf = {"topology.workers": 1, "topology.message.timeout.secs": 10**400}
    with pytest.raises(Refused, match=r"topology\.message\.timeout\.secs") as refused:
        shared_client.post("topologies", submission(conf=conf))
    assert (refused.value.status, refused.value.kind) == (422, "InvalidConfig")


def test_one_of_two_authorizations_does_not_count(shared_leader: NimbusDaemon) -> None:
    head = "GET /api/v1/topologies HTTP/1.1\r\nHost: nimbus"
    good = f"\r\nAuthorization: Bearer {shared_leader.token}"
    assert said(shared_leader, head + good).startswith(b"HTTP/1.1 200")
    for both in (f"{good}\r\nAuthorization: Bearer x", f"\r\nAuthorization: Bearer x{good}", good + good):
        answer = said(shared_leader, head + both)
        assert answer.startswith(b"HTTP/1.1 401") and b"send one" in answer


@pytest.mark.parametrize("host", ["[", "nimbus?x=1", "evil.example/x?y#", "a b"])
def test_a_redirect_points_to_the_leader_with_the_same_query_whatever_the_host_header_says(
    cluster: Cluster, store: InMemoryStore, host: str
) -> None:
    leader = cluster.start_leader()
    standby = cluster.start_standby("standby", store.session())
    path = "/api/v1/topologies/a%2Fb?wait_secs=3&x=%0d%0aSet-Cookie:y"
    head = f"DELETE {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {standby.token}"
    answer = said(standby, head)
    assert answer.startswith(b"HTTP/1.1 307")
    assert f"\r\nlocation: {leader.url}{path}\r\n".encode() in answer


@pytest.mark.parametrize(
    "head",
    [
        "Content-Length: 4\r\nContent-Length: 5",
        "Content-Length: -4",
        "Content-Length: \xb2",
        "Transfer-Encoding: gzip",
        "Host: another",
        "Two words: x",
        "X: a\x00b",
    ],
)
def test_an_ambiguous_head_is_400_and_closes_the_connection(shared_leader: NimbusDaemon, head: str) -> None:
    asked = f"POST /api/v1/topologies HTTP/1.1\r\nHost: nimbus\r\n{head}"
    answer = said(shared_leader, asked, b"GET /health HTTP/1.1\r\nHost: nimbus\r\n\r\n")
    assert answer.startswith((b"HTTP/1.1 400", b"HTTP/1.1 501")) and answer.count(b"HTTP/1.1") == 1


def test_two_clients_that_send_the_same_file_at_once_both_succeed(
    client: Client, leader: NimbusDaemon
) -> None:
    data = os.urandom(200_000)
    name = sha256(data).hexdigest()
    head = (
        f"PUT /api/v1/files/{name} HTTP/1.1\r\nHost: nimbus\r\nAuthorization: Bearer {leader.token}\r\n"
        f"Content-Length: {len(data)}\r\nConnection: close\r\n\r\n"
    ).encode()
    with ExitStack() as stack:
        both = [stack.enter_context(connect(leader)) for _ in range(2)]
        for connection in both:
            connection.sendall(head + data[:100_000])
        # Who sends a file that is there already is answered before it is read, and may miss the answer.
        until(lambda: len(list(leader.files.directory.iterdir())) == 2, "both files that come in")
        for connection in both:
            connection.sendall(data[100_000:])
        answers = [connection.makefile("rb").read() for connection in both]
    assert all(answer.startswith((b"HTTP/1.1 201", b"HTTP/1.1 200")) for answer in answers), answers
    assert [path.name for path in leader.files.directory.iterdir()] == [name]
    assert client.exists(at("files", name))


def test_a_file_whose_sender_disconnects_leaves_nothing(client: Client, leader: NimbusDaemon) -> None:
    name = "0" * 64
    head = f"PUT /api/v1/files/{name} HTTP/1.1\r\nHost: n\r\nAuthorization: Bearer {leader.token}\r\n"
    with connect(leader) as connection:
        connection.sendall(f"{head}Content-Length: 1000000\r\n\r\n".encode() + bytes(300_000))
        until(lambda: list(leader.files.directory.iterdir()), "the file that comes in")
    until(lambda: not list(leader.files.directory.iterdir()), "the end of what came in")
    assert not client.exists(at("files", name))
