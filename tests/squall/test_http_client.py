"""The client of the HTTP API against servers with real faults: they redirect, close, stay silent, send nonsense."""

from __future__ import annotations

import io
import socket
import threading
from collections.abc import Callable
from hashlib import sha256
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from squall.http.client import Refused, Unreachable, at
from tests.squall.http_servers import Served, connect, drop, page, unused_url
from topology_api.errors import SquallError


def test_requests_go_below_the_api_and_queries_omit_none(served: Served) -> None:
    served.pages["/api/v1/topologies/a%2Fb"] = page({"name": "a/b"})
    served.pages["/health"] = page({"status": "ok"})
    client = connect([served.url], lambda url: f"Bearer for {url}")
    assert client.get(at("topologies", "a/b"), wait_secs=None, limit=3) == {"name": "a/b"}
    assert client.get("/health") == {"status": "ok"}
    assert [path for _, path, _ in served.asked] == ["/api/v1/topologies/a%2Fb?limit=3", "/health"]
    assert {shown for _, _, shown in served.asked} == {f"Bearer for {served.url}"}


def test_connections_are_kept_and_a_dead_one_is_replaced(served: Served) -> None:
    served.pages["/api/v1/x"] = page({})
    client = connect([served.url])
    for _ in range(5):
        client.get("x")
    assert len(served.connections) == 1
    served.pages["/api/v1/last"] = page({}, Connection="close")
    client.get("last")
    client.get("x")
    assert len(served.connections) == 2


def test_a_read_is_repeated_when_a_kept_connection_turns_out_to_be_dead(served: Served) -> None:
    served.pages["/api/v1/x"] = page({})
    client = connect([served.url])
    client.get("x")
    served.pages["/api/v1/y"] = lambda handler: (
        drop(handler) if len(served.connections) == 1 else page({"again": True})(handler)
    )
    assert client.get("y") == {"again": True}


def test_a_change_that_may_have_arrived_is_not_sent_again(served: Served) -> None:
    served.pages["/api/v1/x"] = drop
    client = connect([served.url, served.url])
    with pytest.raises(Unreachable) as error:
        client.post("x")
    assert error.value.sent is True and "did not answer" in str(error.value)
    assert [method for method, _, _ in served.asked] == ["POST"]


def test_a_change_that_may_be_made_twice_is_sent_to_another_server(start: Callable[[], Served]) -> None:
    silent, second = start(), start()
    silent.pages["/api/v1/x"] = drop
    second.pages["/api/v1/x"] = page({"state": "ACTIVE"})
    assert connect([silent.url, second.url]).post("x", repeatable=True) == {"state": "ACTIVE"}
    assert [method for method, _, _ in second.asked] == ["POST"]


def test_each_address_is_tried_and_unavailable_ones_are_skipped(
    start: Callable[[], Served],
) -> None:
    first, second = start(), start()
    busy = {"error": {"kind": "NoLeader", "message": "nobody leads", "problems": []}}
    first.pages["/api/v1/x"] = page(busy, 503, Retry_After="1")
    second.pages["/api/v1/x"] = page({"from": "second"})
    client = connect([unused_url(), first.url, second.url])
    assert client.post("x") == {"from": "second"}
    client = connect([first.url, unused_url()])
    with pytest.raises(Refused, match="nobody leads") as refused:
        client.get("x")
    assert (refused.value.status, refused.value.retry_after) == (503, 1.0)


def test_one_redirect_is_followed_with_the_credentials_for_its_target(start: Callable[[], Served]) -> None:
    standby, leader = start(), start()
    standby.pages["/api/v1/x"] = page({}, 307, Location=f"{leader.url}/api/v1/x?a=1")
    leader.pages["/api/v1/x"] = page({"from": "leader"})
    client = connect([standby.url], lambda url: f"for {url}")
    assert client.post("x", {"a": 1}) == {"from": "leader"}
    assert leader.asked == [("POST", "/api/v1/x", f"for {leader.url}")]
    leader.pages["/api/v1/x"] = page({}, 307, Location=f"{standby.url}/api/v1/x")
    with pytest.raises(Refused) as refused:
        client.get("x")
    assert (refused.value.status, refused.value.kind) == (503, "NoLeader")


def test_no_server_gets_the_credentials_of_the_one_that_redirects_to_it(start: Callable[[], Served]) -> None:
    asked, stranger = start(), start()
    asked.pages["/api/v1/x"] = page({}, 307, Location=f"{stranger.url}/api/v1/x")
    client = connect([asked.url], lambda url: "mine" if url == asked.url else None)
    with pytest.raises(SquallError, match=f"redirects to the leader at {stranger.url}.*name all Nimbuses"):
        client.get("x")
    assert stranger.asked == []
    client = connect([asked.url], lambda url: None)
    stranger.pages["/api/v1/x"] = page({"public": True})
    assert client.get("x") == {"public": True}, "without credentials there is nothing to lose"


@pytest.mark.parametrize(
    "location",
    ["http://[", "http://a b/x", "http://a\x01b/x", "http://a..b/x", "//host/x", "x", "http://h:99999999/x"],
)
def test_a_redirect_to_nowhere_is_a_squall_error(served: Served, location: str) -> None:
    served.pages["/api/v1/x"] = page({}, 307, Location=location)
    with pytest.raises(SquallError, match=r"not (a|the) URL"):
        connect([served.url]).get("x")


@pytest.mark.parametrize(
    ("said", "understood"),
    [("3", 3.0), ("\xb2", None), ("9" * 400, None), ("Fri, 31 Dec 1999 23:59:59 GMT", None), ("-1", None)],
)
def test_a_retry_time_is_a_number_of_seconds_or_none(
    served: Served, said: str, understood: float | None
) -> None:
    served.pages["/api/v1/x"] = page({}, 503, Retry_After=said)
    with pytest.raises(Refused) as refused:
        connect([served.url]).get("x")
    assert refused.value.retry_after == understood


def test_another_protocol_is_shown_in_a_few_harmless_characters(served: Served) -> None:
    def speak(handler: BaseHTTPRequestHandler) -> None:
        handler.wfile.write(b"\x1b[2J" + b"x" * 10_000 + b"\r\n")
        handler.close_connection = True

    served.pages["/api/v1/x"] = speak
    with pytest.raises(Unreachable, match="does not speak HTTP") as error:
        connect([served.url]).get("x")
    assert str(error.value).isprintable() and len(str(error.value)) < 200


def test_an_unreachable_server_is_reported_with_advice() -> None:
    url = unused_url()
    with pytest.raises(Unreachable) as error:
        connect([url]).get("cluster")
    assert str(error.value) == (
        f"Nimbus at {url} cannot be reached: connection refused; is it running? Start it with `squall nimbus`"
        " or `squall dev`, or say where it is with --nimbus URL"
    )
    assert error.value.sent is False
    with pytest.raises(Unreachable, match=r"^supervisor s1 at .*: connection refused$"):
        connect([url], what="supervisor s1", advice="").get("/logs")


def test_a_server_that_stays_silent_is_given_up_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with pytest.raises(Unreachable, match=r"no answer within 0\.1 s"):
            connect([url], timeout=0.1).get("cluster")


def test_errors_are_reported_as_the_server_sends_them(served: Served) -> None:
    served.pages["/api/v1/x"] = page(
        {"error": {"kind": "InvalidTopology", "message": "it has 2 problems", "problems": ["a", "b"]}}, 422
    )
    served.pages["/api/v1/y"] = page(b"<html>go away</html>", 403)
    client = connect([served.url])
    with pytest.raises(Refused, match="it has 2 problems") as refused:
        client.get("x")
    error = refused.value
    assert (error.status, error.kind, error.problems) == (422, "InvalidTopology", ("a", "b"))
    with pytest.raises(Refused, match="answered 403 Forbidden: <html>go away") as refused:
        client.get("y")
    assert refused.value.status == 403


@pytest.mark.parametrize("data", [b"<html>", b"[" * 100_000, b"\xff"])
def test_an_answer_that_is_no_json_is_a_squall_error(served: Served, data: bytes) -> None:
    served.pages["/api/v1/x"] = page(data)
    with pytest.raises(SquallError, match="not JSON"):
        connect([served.url]).get("x")


@pytest.mark.parametrize(
    "url",
    ["127.0.0.1:6627", "ftp://host", "http://", "http://host:port", "http://user:hunter2@host", "http://h/p", "http://[",
     "http://a b", "http://host\n", "http://a..b", f"http://{'a' * 64}", "http://\x1b[2J"],
)  # fmt: skip
def test_an_invalid_url_of_a_nimbus_is_refused_and_no_password_is_shown(url: str) -> None:
    with pytest.raises(SquallError) as error:
        connect([url])
    assert "hunter2" not in str(error.value) and "http" in str(error.value)


def test_any_name_is_quoted() -> None:
    assert at("topologies", "a/b é", "errors") == "topologies/a%2Fb%20%C3%A9/errors"
    assert at("topologies", "\udcff") == "topologies/%FF", "bytes of a shell that are no UTF-8"


def test_a_resource_exists_or_it_does_not(served: Served) -> None:
    served.pages["/api/v1/there"] = page({})
    served.pages["/api/v1/gone"] = page({}, 404)
    served.pages["/api/v1/closed"] = page({}, 401)
    client = connect([served.url])
    assert client.exists("there") and not client.exists("gone")
    with pytest.raises(Refused):
        client.exists("closed")


def test_a_file_is_fetched_completely_or_not_at_all(served: Served) -> None:
    data = bytes(range(256)) * 4000
    served.pages["/api/v1/file"] = page(data)
    client = connect([served.url])
    target = io.BytesIO()
    assert client.get_file("file", target) == sha256(data).hexdigest()
    assert target.getvalue() == data
    with pytest.raises(SquallError, match="larger than the 1000 bytes"):
        client.get_file("file", io.BytesIO(), limit=1000)

    def cut_off(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", "1000")
        handler.end_headers()
        handler.wfile.write(b"half")
        handler.close_connection = True

    served.pages["/api/v1/file"] = cut_off
    with pytest.raises(Unreachable, match="ended within the answer"):
        client.get_file("file", io.BytesIO())


def test_a_full_disk_is_the_callers_own_error(served: Served) -> None:
    served.pages["/api/v1/file"] = page(b"data")

    class Full(io.BytesIO):
        def write(self, data: Any) -> int:
            raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        connect([served.url]).get_file("file", Full())


def test_a_refusal_is_received_though_the_file_was_not_read(served: Served, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(1000))
    served.pages["/api/v1/file"] = page(
        {"error": {"kind": "TooLarge", "message": "too large", "problems": []}}, 413
    )
    client = connect([served.url])
    with pytest.raises(Refused, match="too large"):
        client.put_file("file", path)


def test_threads_share_a_client(served: Served) -> None:
    served.pages["/api/v1/x"] = page({})
    client = connect([served.url])
    answers: list[Any] = []
    threads = [
        threading.Thread(target=lambda: answers.extend(client.get("x") for _ in range(20))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [{}] * 80 and len(served.connections) <= 4
