"""The NATS sink on a real server: stored messages, refused ones alone, and a server that goes and comes."""

from __future__ import annotations

from operator import itemgetter
from typing import Any

import pytest

from squall_io.nats import NatsSink
from squall_io.nats.connection import NatsRefused
from tests.nats_servers import MOST_BYTES, PASSWORDS, NatsServer
from tests.squall_io.sinks_that_publish import SinkTask
from tests.squall_io.test_nats_spout import place
from tests.zookeeper_servers import eventually
from topology_api import InvalidConfig

pytest.importorskip("nats")

subject_field = itemgetter("subject")


def rows(*values: Any) -> list[dict[str, Any]]:
    return [{"v": value} for value in values]


def there(server: NatsServer, stream: str) -> list[bytes]:
    return [bytes(each.data) for each in server.read(stream)]


def test_each_tuple_is_a_message_in_order(nats_server: NatsServer) -> None:
    stream = place()
    nats_server.create(stream)
    with SinkTask(NatsSink(f"{stream}.a", url=nats_server.url, fields="v")) as task:
        assert task.write(rows(*range(600))) == {}
    assert there(nats_server, stream) == [b"%d" % n for n in range(600)]


def test_a_message_has_all_that_is_named_and_its_id_keeps_a_second_one_away(nats_server: NatsServer) -> None:
    stream = place()
    nats_server.create(stream)
    sink = NatsSink(subject_field, url=nats_server.url, fields=["v"], message_id="id", headers="h")
    row = {"subject": f"{stream}.b", "v": 1, "id": "one", "h": {"color": "red"}}
    wrong = [{**row, "id": 5}, {**row, "h": "red"}, {**row, "subject": f"{stream}.*"}]
    with SinkTask(sink) as task:
        failed = task.write([row, *wrong, row])
        assert task.write([row]) == {}
    assert sorted(failed) == [1, 2, 3]
    assert "field 'id' is 5 (int): give text" in failed[1]
    assert "field 'h' is 'red' (str): give a dict of texts" in failed[2]
    assert "is no subject to write to" in failed[3]
    (message,) = nats_server.read(stream)
    assert (message.subject, message.data) == (f"{stream}.b", b'{"v":1}')
    assert message.headers == {"color": "red", "Nats-Msg-Id": "one"}


def test_messages_that_are_too_large_fail_alone(nats_server: NatsServer) -> None:
    stream = place()
    nats_server.create(stream, max_msg_size=1000)
    with SinkTask(NatsSink(f"{stream}.a", url=nats_server.url, fields="v", encode="str")) as task:
        failed = task.write(rows("1", "x" * (MOST_BYTES + 1), "2", "y" * 2000, "3"))
    assert sorted(failed) == [1, 3]
    assert f"{MOST_BYTES + 1} bytes, and the server takes {MOST_BYTES}" in failed[1]
    assert "the stream refuses the message" in failed[3]
    assert there(nats_server, stream) == [b"1", b"2", b"3"]


def test_a_subject_that_no_stream_keeps_a_wrong_password_and_missing_rights_are_errors(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        SinkTask(NatsSink("missing.a", url=nats_server.url)) as task,
        pytest.raises(NatsRefused, match=r"no stream of NATS at .* keeps subject 'missing.a': create one"),
    ):
        task.write(rows(1))
    stream = place()
    nats_server.create(stream)
    for user, password, wanted in (
        ("app", "wrong", "refuses the login"),
        ("guest", PASSWORDS["guest"], "give the user the rights"),
    ):
        monkeypatch.setenv("WORD", password)
        sink = NatsSink(f"{stream}.a", url=nats_server.login_as(user), password="env:WORD")
        with SinkTask(sink) as task, pytest.raises(NatsRefused, match=wanted):
            task.write(rows(1))


def test_a_full_stream_is_waited_for(nats_server: NatsServer) -> None:
    from nats.js.api import DiscardPolicy

    stream = place()
    nats_server.create(stream, max_msgs=2, discard=DiscardPolicy.NEW)
    with SinkTask(NatsSink(f"{stream}.a", url=nats_server.url, fields="v")) as task:
        writing = task.writing(rows(1, 2, 3))
        eventually(lambda: any("the stream is full" in each for each in task.shown), 30)

        async def emptied(client: Any, js: Any) -> None:
            await js.purge_stream(stream)

        nats_server.call(emptied)
        writing.join(30)
        assert not writing.is_alive()
        assert task.failed == {}
    assert there(nats_server, stream) == [b"3"]


@pytest.mark.parametrize("fault", ["killed", "frozen"])
def test_a_server_that_goes_is_waited_for(nats_server: NatsServer, fault: str) -> None:
    stream = place()
    nats_server.create(stream)
    with SinkTask(NatsSink(f"{stream}.a", url=nats_server.url, fields="v")) as task:
        assert task.write(rows(1)) == {}
        (nats_server.kill if fault == "killed" else nats_server.freeze)()
        try:
            writing = task.writing(rows(2, 3))
            eventually(lambda: any(each.startswith("waiting for NATS at") for each in task.shown), 60)
        finally:
            (nats_server.start if fault == "killed" else nats_server.thaw)()
        writing.join(60)
        assert not writing.is_alive()
        assert task.failed == {}
    assert list(dict.fromkeys(there(nats_server, stream))) == [b"1", b"2", b"3"]


def test_all_that_is_wrong_with_the_arguments_is_said_at_once() -> None:
    with pytest.raises(InvalidConfig) as wrong:
        NatsSink("a.*", url="nats://host/x", fields=[], encode="xml", message_id="", headers=5)  # type: ignore[arg-type]
    text = str(wrong.value)
    for part in (
        "'a.*'",
        "url is 'nats://host/x'",
        "fields is []",
        "encode is 'xml'",
        "message_id is ''",
        "headers is 5",
    ):
        assert part in text, part
