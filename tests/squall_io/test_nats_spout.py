"""The NATS spout on a real server: a durable consumer that several tasks share, and a server that goes and comes."""

from __future__ import annotations

import itertools
import os
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from squall_io.kit.server_address import tls_context
from squall_io.nats import NatsSpout
from tests.certificates import make_certificates
from tests.nats_accounts import make_accounts
from tests.nats_servers import MOST_BYTES, PASSWORDS, NatsServer
from tests.squall_io.queue_tasks import SpoutTask
from tests.zookeeper_servers import eventually
from topology_api import InvalidConfig

pytest.importorskip("nats")

_names = itertools.count(1)


def place() -> str:
    """A stream that no other test uses."""
    return f"place-{os.getpid()}-{next(_names)}"


def task(server: NatsServer, stream: str, index: int = 0, tasks: int = 1, **more: Any) -> SpoutTask:
    given = {"url": server.url, "consumer": "shop", "decode": "str", "ack_wait": 2, **more}
    return SpoutTask(NatsSpout(stream, **given), index, tasks)


def test_what_is_acked_is_acknowledged_and_all_else_comes_again(nats_server: NatsServer) -> None:
    stream = place()
    nats_server.create(stream)
    nats_server.send(f"{stream}.a", ["1", "2", "3"])
    with task(nats_server, stream) as first:
        assert first.read(3) == ["1", "2", "3"]
        assert nats_server.pending(stream, "shop") == (0, 3)
        first.ack(0)
    assert nats_server.pending(stream, "shop") == (0, 2)
    with task(nats_server, stream) as second:
        assert second.read(2) == ["2", "3"]
        second.ack()
    assert nats_server.pending(stream, "shop") == (0, 0)


def test_messages_in_flight_are_prolonged_and_terminated_ones_are_gone(nats_server: NatsServer) -> None:
    stream = place()
    nats_server.create(stream)
    nats_server.send(f"{stream}.a", ["1", "2"])
    with task(nats_server, stream, ack_wait=1) as one:
        one.read(2)
        end = datetime.now().timestamp() + 2.5
        one.until(lambda: datetime.now().timestamp() > end)
        assert one.values() == ["1", "2"], "what is in flight is not delivered again after ack_wait"
        one.fail(0, "exception")
        one.ack(1)
    assert nats_server.pending(stream, "shop") == (0, 0)
    assert one.metrics.counts["messages rejected"] == 1


def test_tasks_share_the_messages_within_their_limits(nats_server: NatsServer) -> None:
    stream = place()
    nats_server.create(stream)
    with (
        task(nats_server, stream, 0, 2, max_in_flight=4) as left,
        task(nats_server, stream, 1, 2, max_in_flight=4) as right,
    ):
        nats_server.send(f"{stream}.a", map(str, range(20)))
        left.until(lambda: right.stepped() and len(left.values()) == len(right.values()) == 4)
        left.nothing_more()
        right.nothing_more()
        for each in (left, right):
            each.ack()
        left.until(lambda: right.stepped() and len(left.values()) == len(right.values()) == 8)


def test_a_consumer_that_is_created_begins_where_start_says(nats_server: NatsServer) -> None:
    stream = place()
    nats_server.create(stream)
    nats_server.send(f"{stream}.a", ["1"])
    now = datetime.now(timezone.utc)
    nats_server.send(f"{stream}.b", ["2", "3"])
    for name, more, wanted in (
        ("all", {}, ["1", "2", "3"]),
        ("third", {"start": 3}, ["3"]),
        ("later", {"start": now}, ["2", "3"]),
        ("some", {"subject": f"{stream}.a"}, ["1"]),
    ):
        with task(nats_server, stream, consumer=name, **more) as one:
            assert one.read(len(wanted)) == wanted
    with task(nats_server, stream, consumer="new", start="latest") as one:
        one.connects()
        nats_server.send(f"{stream}.a", ["4"])
        assert one.read(1) == ["4"]
    with task(nats_server, stream, consumer="some", subject=f"{stream}.b") as one:
        one.until(lambda: one.errors)
        assert f"was created for subject '{stream}.a', not '{stream}.b'" in one.errors[0]


def test_all_that_a_message_has_can_be_a_field(nats_server: NatsServer) -> None:
    stream = place()
    nats_server.create(stream)
    nats_server.send(f"{stream}.a", ["{", '{"id": 1}'], color="red")
    fields = ["value", "subject", "headers", "sequence", "timestamp", "deliveries"]
    with task(nats_server, stream, fields=fields, decode="json") as one:
        one.until(lambda: len(one.emitted) == 2)
        assert one.emitted[0][:2] == ("unreadable", (f"{stream}.a", 1, b"{", one.emitted[0][1][3]))
        value, subject, headers, number, when, deliveries = one.emitted[1][1]
        assert (value, subject, headers, number, deliveries) == (
            {"id": 1},
            f"{stream}.a",
            {"color": "red"},
            2,
            1,
        )
        assert abs((datetime.now(timezone.utc) - when).total_seconds()) < 60
        one.ack()
        one.until(lambda: one.errors)
        assert "cannot be decoded" in one.errors[0]
        eventually(lambda: one.stepped() and nats_server.pending(stream, "shop") == (0, 0))


def test_a_large_message_is_read(nats_server: NatsServer) -> None:
    stream = place()
    nats_server.create(stream)
    nats_server.send(f"{stream}.a", ["x" * MOST_BYTES])
    with task(nats_server, stream) as one:
        assert len(one.read(1)[0]) == MOST_BYTES


def test_a_missing_stream_a_wrong_password_and_missing_rights_are_errors_that_say_so(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORD", "wrong")
    with task(nats_server, "missing") as one:
        one.until(lambda: one.errors)
        assert "has no stream 'missing': create it" in one.errors[0]
    stream = place()
    nats_server.create(stream)
    with task(nats_server, stream, url=nats_server.login_as("app"), password="env:WORD") as one:
        one.until(lambda: one.errors)
        assert "refuses the login" in one.errors[0]
        assert "wrong" not in one.errors[0]
    monkeypatch.setenv("WORD", PASSWORDS["guest"])
    with task(nats_server, stream, url=nats_server.login_as("guest"), password="env:WORD") as one:
        one.until(lambda: one.errors)
        assert "give the user the rights" in one.errors[0]


def test_a_user_with_credentials_of_an_account(tmp_path: Path) -> None:
    accounts = make_accounts(tmp_path)
    client = {"user_credentials": accounts.credentials}
    with NatsServer(tmp_path, accounts.settings, client=client) as server:
        server.create("orders")
        server.send("orders.a", ["1"])
        with task(server, "orders", credentials=accounts.credentials) as one:
            assert one.read(1) == ["1"]


@pytest.mark.parametrize("text", [None, "-----BEGIN USER NKEY SEED-----\nSU"])
def test_a_file_without_credentials_is_an_error_that_says_so(
    nats_server: NatsServer, tmp_path: Path, text: str | None
) -> None:
    path = tmp_path / "creds"
    if text is not None:
        path.write_text(text)
    with task(nats_server, "any", credentials=str(path)) as one:
        one.until(lambda: one.errors)
        wanted = "cannot be read on this host" if text is None else "have no NATS USER JWT"
        assert wanted in one.errors[0]


def test_tls_is_used_where_the_url_says_so_and_never_left_out(
    nats_server: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = make_certificates(tmp_path / "certificates")
    tls = f'tls {{ cert_file: "{files.certificate}", key_file: "{files.key}", ca_file: "{files.ca}", verify: true }}\n'
    names = {"ca": files.ca, "certificate": files.certificate, "key": files.key}
    with NatsServer(tmp_path, more=tls, client={"tls": tls_context(names)}) as server:
        server.create("orders")
        server.send("orders.a", ["1"])
        url = server.url.replace("nats:", "tls:")
        with task(server, "orders", url=url, tls=names) as one:
            assert one.read(1) == ["1"]
        other = make_certificates(tmp_path / "other")
        with task(server, "orders", url=url, tls={**names, "ca": other.ca}) as one:
            one.until(lambda: one.errors)
            assert "agree on no TLS" in one.errors[0]
    monkeypatch.setenv("WORD", "hunter2")
    plain = nats_server.login_as("app").replace("nats:", "tls:")
    with task(nats_server, "orders", url=plain, password="env:WORD") as one:
        one.until(lambda: one.errors)
        assert "does not ask for TLS" in one.errors[0]


@pytest.mark.parametrize("fault", ["killed", "frozen"])
def test_a_server_that_goes_is_waited_for(nats_server: NatsServer, fault: str) -> None:
    stream = place()
    nats_server.create(stream)
    nats_server.send(f"{stream}.a", ["1", "2"])
    with task(nats_server, stream) as one:
        one.read(2)
        (nats_server.kill if fault == "killed" else nats_server.freeze)()
        one.ack(0)
        try:
            one.until(lambda: one.shown.startswith(f"waiting for stream {stream} of NATS at 127.0.0.1"))
        finally:
            (nats_server.start if fault == "killed" else nats_server.thaw)()
        nats_server.send(f"{stream}.a", ["3"])
        one.until(lambda: "3" in one.values())
        one.ack()
        eventually(lambda: one.stepped() and nats_server.pending(stream, "shop") == (0, 0))
        assert one.errors == []
        assert one.shown == ""


def test_all_that_is_wrong_with_the_arguments_is_said_at_once() -> None:
    with pytest.raises(InvalidConfig) as wrong:
        NatsSpout(
            "a.b", consumer="", url="nats://app:word@host", subject="a..b", start=0, ack_wait=0.1, fields=["valu"],
            password="word", credentials="x",
        )  # fmt: skip
    text = str(wrong.value)
    for part in (
        "stream is 'a.b'", "consumer is ''", "url has a password", "password has the secret itself", "credentials is 'x'",
        "fields are", "'a..b' (str) is no subject", "start is 0", "ack_wait is 0.1",
    ):  # fmt: skip
        assert part in text, part
    assert "word@" not in text
    with pytest.raises(InvalidConfig, match="url is 'http://host': give \"nats://HOST:PORT\""):
        NatsSpout("a", consumer="b", url="http://host")
