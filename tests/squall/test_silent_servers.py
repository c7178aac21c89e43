"""The client and silent servers: the others are asked, and no server is waited for twice."""

from __future__ import annotations

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest

from squall.http.client import Refused, Unreachable
from tests.squall.http_servers import Frozen, Served, connect, drop, page, unused_url


def test_a_silent_server_is_asked_last_from_then_on(served: Served, frozen: Frozen) -> None:
    served.pages["/api/v1/x"] = page({})
    client = connect([frozen.url, served.url], timeout=0.1)
    for _ in range(3):
        assert client.get("x") == {}
    assert frozen.heard() == [b"GET /api/v1/x HTTP/1.1"]
    served.pages["/api/v1/x"] = page({}, 503)
    with pytest.raises(Refused):
        client.get("x")
    assert len(frozen.heard()) == 1, "it may have come back"


@pytest.mark.parametrize("how", [{"repeatable": False}, {"repeatable": True, "timeout": 2.0}])
def test_a_slow_or_unrepeatable_request_never_goes_to_a_silent_server(
    served: Served, frozen: Frozen, how: dict[str, Any]
) -> None:
    served.pages["/api/v1/x"] = page({"done": True})
    assert connect([frozen.url, served.url], timeout=0.5).post("x", {}, **how) == {"done": True}
    assert frozen.heard() == [b"HEAD /health HTTP/1.1"]
    with pytest.raises(Unreachable, match=r"did not answer: no answer within 0\.5 s$") as error:
        connect([frozen.url], timeout=0.5).post("x", {}, **how)
    assert error.value.sent is False


def test_an_answer_gets_its_own_time_limit_and_the_next_one_the_usual(served: Served) -> None:
    let_go = threading.Event()

    def slow(handler: BaseHTTPRequestHandler) -> None:
        let_go.wait(60.0 if handler.command == "GET" else 0.5)
        page({"done": True})(handler)

    served.pages["/api/v1/x"] = slow
    client = connect([served.url], timeout=0.2)
    try:
        assert client.post("x", timeout=60.0) == {"done": True}
        with pytest.raises(Unreachable, match=r"no answer within 0\.2 s"):
            client.get("x")
    finally:
        let_go.set()
    assert [method for method, _, _ in served.asked] == ["POST", "GET"], (
        "a silent one is not a dead connection"
    )


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_silent_leader_is_waited_for_once(served: Served, frozen: Frozen, order: tuple[int, int]) -> None:
    served.pages["/api/v1/x"] = page({}, 307, Location=f"{frozen.url}/api/v1/x")
    urls = [frozen.url, served.url]
    with pytest.raises(Unreachable) as error:
        connect([urls[place] for place in order], timeout=0.1).post("x", repeatable=True)
    assert str(error.value) == f"Nimbus at {frozen.url} did not answer: no answer within 0.1 s"
    assert frozen.heard() == [b"POST /api/v1/x HTTP/1.1"]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_redirect_to_a_dead_leader_reports_that_there_is_no_leader(
    start: Callable[[], Served], served: Served, order: tuple[int, int]
) -> None:
    dead = unused_url()
    served.pages["/api/v1/x"] = page({}, 307, Location=f"{dead}/api/v1/x")
    urls = [dead, served.url]
    with pytest.raises(
        Refused, match=f"{dead} cannot be reached; according to {served.url} it is the leader"
    ) as refused:
        connect([urls[place] for place in order]).post("x")
    assert (refused.value.status, refused.value.kind) == (503, "NoLeader")


def test_a_change_that_may_have_been_made_is_reported_though_another_server_answers(
    start: Callable[[], Served],
) -> None:
    first, second = start(), start()
    first.pages["/api/v1/x"] = drop
    busy = {"error": {"kind": "NoLeader", "message": "nobody leads", "problems": []}}
    second.pages["/api/v1/x"] = page(busy, 503)
    with pytest.raises(
        Unreachable, match=r"closed the connection without an answer.*; nobody leads$"
    ) as error:
        connect([first.url, second.url]).post("x", repeatable=True)
    assert error.value.sent is True


def test_https_is_suggested_only_where_http_was_never_answered(served: Served) -> None:
    served.pages["/api/v1/x"] = drop
    served.pages["/api/v1/y"] = page({})
    client = connect([served.url])
    with pytest.raises(Unreachable, match="its URL begins with https:"):
        client.get("x")
    client.get("y")
    with pytest.raises(Unreachable, match=r"without an answer$"):
        client.get("x")
