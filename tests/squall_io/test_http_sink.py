"""HttpSink against a server of this process: what each answer means, keys, and rows in topologies."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from local_cluster import LocalCluster
from local_cluster.testing import ScriptedSpout
from squall_io.http import HttpSink
from squall_io.http.answers import LONGEST_ASKED, meaning, retry_after
from squall_io.http.targets import filled, key_of, resolved_headers
from squall_io.kit.secrets import NoSecret
from tests.zookeeper_servers import eventually
from topology_api import FailTuple, InvalidConfig, InvalidTopology, Replay, TopologyBuilder
from topology_api.guarantees import guarantees

pytest.importorskip("httpx")


class Receiver(ThreadingHTTPServer):
    """Keeps requests, and answers by the script: a list of (status, headers, body), then 204. "drop": no answer; "trickle": one
    without an end."""

    daemon_threads = True

    def __init__(self) -> None:
        self.requests: list[tuple[str, str, dict[str, str], bytes]] = []
        self.script: list[Any] = []
        self.over = threading.Event()
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Receiver

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.server.requests.append((self.command, self.path, headers, body))
        script = self.server.script
        answer = script.pop(0) if script else (204, {}, b"")
        if answer == "drop":
            self.close_connection = True
            return
        if answer == "trickle":
            self.send_response(200)
            self.send_header("Content-Length", "100000")
            self.end_headers()
            with suppress(OSError):  # the client has ended the connection
                while not self.server.over.wait(0.1):
                    self.wfile.write(b"x")
            self.close_connection = True
            return
        status, more, said = answer
        self.send_response(status)
        for name, value in {"Content-Length": str(len(said)), **more}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(said)

    do_POST = do_PUT = _answer

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with Receiver() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        yield server
        server.over.set()
        server.shutdown()
        thread.join()


def posting(sink: HttpSink, rows: list[tuple[Any, ...]], attempts: int = 1) -> TopologyBuilder:
    builder = TopologyBuilder("posts")
    spout = ScriptedSpout(("id", "price"), rows)
    spout.replay = Replay(max_attempts=attempts, first_delay=0.1)
    builder.set_spout("rows", spout)
    builder.set_bolt("post", sink).shuffle_grouping("rows")
    return builder


def sent(sink: HttpSink, rows: list[tuple[Any, ...]]) -> list[str]:
    """Run rows through a sink; return why tuples failed for good."""
    with LocalCluster() as cluster:
        cluster.submit(posting(sink, rows).build())
        cluster.wait("posts", 60)
        return [str(letter.failure) for letter in cluster.dead_letters("posts")]


def test_a_row_is_sent_with_its_key_and_its_secret(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("API_TOKEN", "s3cret")
    headers = {"Authorization": "Bearer env:API_TOKEN", "X-Source": "shop"}
    sink = HttpSink(f"{receiver.url}/orders/{{id}}?p={{price}}", key="id", headers=headers)
    assert sent(sink, [("a/b c", 5)]) == []
    [(method, path, seen, body)] = receiver.requests
    assert (method, path) == ("POST", "/orders/a%2Fb%20c?p=5")
    assert json.loads(body) == {"id": "a/b c", "price": 5}
    assert seen["authorization"] == "Bearer s3cret"
    assert seen["content-type"] == "application/json"
    assert seen["idempotency-key"] == key_of(["id"], {"id": "a/b c"})


@pytest.mark.parametrize("secret", ["", "s3cret ", "s3cret\n", "s3cr\u00e9t", "s3\x00cret"])
def test_a_secret_that_no_header_can_have_is_refused_and_not_shown(
    secret: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "token").write_text(f"{secret}\n")
    sink = HttpSink("http://h/", headers={"Authorization": f"Bearer file:{tmp_path}/token"})
    with pytest.raises(NoSecret, match="headers\\['Authorization'\\] is file:") as error:
        resolved_headers(sink.headers)
    assert "s3" not in str(error.value)


def test_what_the_client_says_of_a_header_is_not_shown(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("squall_io.http.sink.resolved_headers", lambda headers: {"x": "s3cret\n"})
    [reason] = sent(HttpSink(receiver.url), [(1, 1)])
    assert "breaks the rules of HTTP" in reason and "s3cret" not in reason
    assert receiver.requests == []


def test_what_may_be_taken_later_is_sent_again_with_the_same_key(receiver: Receiver) -> None:
    receiver.script += [(503, {}, b""), "drop", (429, {"Retry-After": "1"}, b""), (408, {}, b"")]
    assert sent(HttpSink(receiver.url, fields="price", encode="str", method="PUT"), [(1, "x")]) == []
    assert len(receiver.requests) == 5
    assert len({headers["idempotency-key"] for _, _, headers, _ in receiver.requests}) == 1
    assert {(method, body) for method, _, _, body in receiver.requests} == {("PUT", b"x")}


def test_a_refused_row_fails_alone_with_what_the_receiver_says(receiver: Receiver) -> None:
    receiver.script += [(422, {}, b"no  such\nprice " + b"x" * 500)]
    [reason] = sent(HttpSink(receiver.url, max_concurrency=1), [(1, 1), (2, 2)])
    assert "422: no such price xxx" in reason and "x" * 200 not in reason
    assert len(receiver.requests) == 2


def test_a_redirect_is_not_followed(receiver: Receiver) -> None:
    receiver.script += [(307, {"Location": "http://127.0.0.1:1/"}, b"")]
    [reason] = sent(HttpSink(receiver.url), [(1, 1)])
    assert "307" in reason and "http://127.0.0.1:1/" in reason and "not followed" in reason


def test_a_row_that_is_not_taken_within_the_patience_fails(receiver: Receiver) -> None:
    receiver.script += [(500, {}, b"broken")] * 100
    with LocalCluster() as cluster:
        cluster.submit(posting(HttpSink(receiver.url, patience=0.3), [(1, 1)], attempts=1000).build())
        errors = eventually(lambda: cluster.status("posts").errors, 30)
        assert "has not taken the request within 0.3 s: it answers 500: broken" in errors[-1].render()
        receiver.script.clear()
        cluster.wait("posts", 60)
        assert cluster.dead_letters("posts") == []


def test_an_answer_that_trickles_in_does_not_exceed_the_patience_by_more_than_a_timeout(
    receiver: Receiver,
) -> None:
    receiver.script += ["trickle"]
    with LocalCluster() as cluster:
        sink = HttpSink(receiver.url, patience=0.2, timeout=0.5)
        cluster.submit(posting(sink, [(1, 1)], attempts=1000).build())
        errors = eventually(lambda: cluster.status("posts").errors, 30)
        assert "its answer does not come to its end" in errors[-1].render()
        cluster.wait("posts", 60)


def test_a_value_that_cannot_be_sent_fails_its_tuple(receiver: Receiver) -> None:
    reasons = sent(
        HttpSink(f"{receiver.url}/{{id}}", fields="price", encode="str"), [(None, "x"), (1, 2), (3, "y")]
    )
    assert sorted("cannot stand in a URL" in each for each in reasons) == [False, True]
    assert [path for _, path, _, _ in receiver.requests] == ["/3"]


def test_a_replay_after_a_restart_has_the_same_key(receiver: Receiver) -> None:
    for _ in range(2):
        sent(HttpSink(receiver.url, key=["id", "price"]), [("a", 1.5)])
    assert len({headers["idempotency-key"] for _, _, headers, _ in receiver.requests}) == 1


@pytest.mark.parametrize(
    ("status", "verdict"),
    [(200, "done"), (204, "done"), (301, "never"), (400, "never"), (401, "login"), (404, "never"), (408, "later"),
     (409, "never"), (425, "later"), (429, "later"), (500, "later"), (501, "never"), (503, "later"), (599, "later")],
)  # fmt: skip
def test_what_a_status_means(status: int, verdict: str) -> None:
    assert meaning(status, {}, "", 0.0).verdict == verdict


def test_retry_after_is_seconds_or_a_date() -> None:
    assert retry_after("7", 0.0) == 7
    assert retry_after("Thu, 01 Jan 1970 00:01:00 GMT", 20.0) == 40
    assert retry_after("Thu, 01 Jan 1970 00:01:00 GMT", 90.0) == 0
    assert retry_after("99999", 0.0) == LONGEST_ASKED
    assert retry_after("soon", 0.0) is retry_after(None, 0.0) is None


def test_a_field_cannot_lead_to_another_path() -> None:
    url = filled("http://h/a/{x}/b?q={x}")
    assert url({"x": "../?#&"}) == "http://h/a/..%2F%3F%23%26/b?q=..%2F%3F%23%26"
    assert url({"x": ".."}) == "http://h/a/%2E%2E/b?q=%2E%2E"
    for value in (None, True, "", b"x", "\ud800"):
        with pytest.raises(FailTuple):
            url({"x": value})


def test_keys_of_different_rows_differ() -> None:
    rows: list[Any] = ["a", "b", "", "a b", "ä", 1.0, None, ["a"], "x" * 300]
    keys = [key_of(["k"], {"k": row}) for row in rows]
    assert len(set(keys)) == len(rows)
    assert keys[0] == "a"
    assert all(key.isascii() and key.isprintable() for key in keys)


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"url": "ftp://h/"}, "give http://HOST/PATH"),
        ({"url": "http://u:s3cret@h/"}, "url has a password"),
        ({"url": "http://{host}/"}, "not in its host"),
        ({"url": "http://h/{"}, "a brace belongs to a field"),
        ({"headers": {"Authorization": "Bearer s3cret"}}, "may be a secret"),
        ({"headers": {"Content-Length": "1"}}, "sets itself"),
        ({"headers": {"X": "a\nb"}}, "printable ASCII"),
        ({"headers": {"X": "a "}}, "without spaces around it"),
        ({"method": "GET"}, "method is 'GET'"),
        ({"fields": []}, "fields is"),
        ({"timeout": 0}, "timeout is 0"),
        ({"max_concurrency": 0}, "max_concurrency is 0"),
        ({"encode": "xml"}, "encode is 'xml'"),
        ({"ca": "ca.pem"}, "absolute path"),
    ],
)
def test_wrong_arguments_are_refused_where_the_topology_is_built(wrong: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidConfig, match=text) as error:
        HttpSink(**{"url": "http://h/", **wrong})
    assert "s3cret" not in str(error.value)


def test_a_field_that_the_stream_lacks_is_refused() -> None:
    with pytest.raises(InvalidTopology, match="has no field 'name' to send"):
        posting(HttpSink("http://h/{name}"), []).build()


def test_explain_says_on_what_it_depends_that_a_row_counts_once() -> None:
    [pair] = guarantees(posting(HttpSink("http://h/", key="id"), []).build(), {}).pairs
    assert pair.level == "at-least-once"
    assert any("Idempotency-Key" in each for each in pair.conditions)
