"""The Kafka sink on a real broker: each row once, whatever is killed, frozen or late, and refused rows by position."""

from __future__ import annotations

import pickle
import threading
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from typing import Any

import pytest

from local_cluster.contracts.opened import Surroundings, context_of, tuples_of
from squall_io.kafka import KafkaSink
from squall_io.kafka.client import KafkaRefused
from tests.kafka_servers import ANSWER_SECS, KafkaServer
from tests.zookeeper_servers import eventually
from topology_api import Fields, InvalidConfig, RowsRefused, Tuple

pytest.importorskip("confluent_kafka")
pytestmark = pytest.mark.slow

Hook = Callable[[], None]


class Sinks:
    """Tasks of sinks, what they show, and whether they are stopped."""

    def __init__(self, kafka: KafkaServer) -> None:
        self.kafka, self.shown, self.stopped = kafka, list[str](), False
        self.around = Surroundings()
        self.opened: list[KafkaSink] = []

    def open(self, topic: Any, **more: Any) -> KafkaSink:
        """A task as it is in a new process."""
        given = {"servers": self.kafka.servers, "key": "k", "fields": "v", "encode": "str", **more}
        sink: KafkaSink = pickle.loads(pickle.dumps(KafkaSink(topic, **given)))
        context = context_of("write", 0, 1, self.around)
        context._progress = lambda why: self.shown.append(why or "")
        context._stopped = lambda: self.stopped
        context._now = time.monotonic
        sink.prepare(context)
        self.opened.append(sink)
        return sink

    def show(self, sink: KafkaSink, rows: list[Any], epoch: int, token: str) -> list[str]:
        """Write an epoch as the runtime does: after a failure the token says whether it is written. Returns what failed."""
        failures: list[str] = []
        while True:
            try:
                if sink.write(epoch, rows, epoch - 1, token):
                    return failures
                failures.append("False")
            except Exception as error:
                failures.append(str(error))
            if sink.read_token(token) == epoch:
                return failures


@pytest.fixture
def sinks(kafka: KafkaServer) -> Iterator[Sinks]:
    found = Sinks(kafka)
    yield found
    for sink in found.opened:
        sink.cleanup()
    found.around.end()


@pytest.fixture
def before_commit(monkeypatch: pytest.MonkeyPatch) -> list[Hook]:
    """What happens when the rows of a transaction are with the broker, and are not committed yet: one a write."""
    from squall_io.kafka.producing import Producing

    hooks: list[Hook] = []
    original = Producing.flush

    def flush(self: Producing, *arguments: Any, **more: Any) -> None:
        original(self, *arguments, **more)
        if hooks:
            hooks.pop(0)()

    monkeypatch.setattr(Producing, "flush", flush)
    return hooks


def rows(*names: str) -> list[Any]:
    return [(name.encode(), name[:1].encode()) for name in names]


def there(kafka: KafkaServer, topic: str) -> list[str]:
    """What readers of committed messages see."""
    return sorted(message.value().decode() for message in kafka.read(topic))


def in_background(action: Hook) -> threading.Thread:
    thread = threading.Thread(target=action)
    thread.start()
    return thread


@pytest.mark.parametrize("fault", ["killed", "frozen"])
def test_a_broker_that_is_gone_in_a_transaction_is_waited_for(
    sinks: Sinks, before_commit: list[Hook], fault: str
) -> None:
    kafka, threads = sinks.kafka, []
    topic = kafka.create()
    sink = sinks.open(topic)
    sinks.show(sink, rows("a1"), 1, topic)

    def back_once_it_is_missed() -> None:
        eventually(lambda: any("waiting for Kafka at" in text for text in sinks.shown), ANSWER_SECS)
        (kafka.start if fault == "killed" else kafka.thaw)()

    def away() -> None:
        (kafka.kill if fault == "killed" else kafka.freeze)()
        threads.append(in_background(back_once_it_is_missed))

    before_commit.append(away)
    sinks.show(sink, rows("a2", "b2"), 2, topic)
    [thread] = threads
    thread.join()
    assert sinks.shown[-1] == "" or not sinks.shown[-1].startswith("waiting")
    assert there(kafka, topic) == ["a1", "a2", "b2"]
    sinks.show(sink, rows("a3"), 3, topic)
    assert there(kafka, topic) == ["a1", "a2", "a3", "b2"]


def test_an_old_process_that_goes_on_late_writes_nothing(sinks: Sinks, before_commit: list[Hook]) -> None:
    topic = sinks.kafka.create()
    old, new = sinks.open(topic), sinks.open(topic)
    assert old.read_token(topic) == 0

    def meanwhile() -> None:
        assert new.read_token(topic) == 0
        assert new.write(1, rows("a", "b"), 0, topic)

    before_commit.append(meanwhile)
    assert old.write(1, rows("a", "b"), 0, topic) is False
    assert there(sinks.kafka, topic) == ["a", "b"]
    assert old.read_token(topic) == 1
    assert sinks.show(new, rows("c"), 2, topic) == []
    assert there(sinks.kafka, topic) == ["a", "b", "c"]


def test_an_old_process_cannot_commit_what_it_had_sent(sinks: Sinks, before_commit: list[Hook]) -> None:
    """The new one has read the token, and has written nothing yet."""
    topic = sinks.kafka.create()
    old, new = sinks.open(topic), sinks.open(topic)
    before_commit.append(lambda: assert_equal(new.read_token(topic), 0))
    assert old.write(1, rows("a"), 0, topic)  # it begins again as the newer of the two
    assert new.write(1, rows("a"), 0, topic) is False
    assert there(sinks.kafka, topic) == ["a"]


def assert_equal(found: object, wanted: object) -> None:
    assert found == wanted


def test_rows_that_are_too_large_are_named_before_anything_is_sent(sinks: Sinks) -> None:
    topic = sinks.kafka.create(settings={"max.message.bytes": "2000"})
    sink = sinks.open(topic)
    for token in (topic, None):
        epoch = None if token is None else 1
        with pytest.raises(RowsRefused) as refused:
            sink.write(epoch, rows("a", "b" * 3000, "c", "d" * 2001), 0, token)
        assert sorted(refused.value.reasons) == [1, 3]
        assert (
            f"topic '{topic}' refuses the message: it has 3001 bytes, and the topic takes 2000"
            in (refused.value.reasons[1])
        )
    assert (there(sinks.kafka, topic), sink.read_token(topic)) == ([], 0)
    assert sink.write(1, rows("a", "c"), 0, topic)
    assert there(sinks.kafka, topic) == ["a", "c"]


@pytest.mark.parametrize("reason", ["too large", "no key"])
def test_rows_that_only_the_broker_knows_to_refuse_are_named(
    sinks: Sinks, monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    """The user may not see the configuration of the topic. The broker refuses a batch, and not each of its rows."""
    monkeypatch.setattr("squall_io.kafka.cluster.Cluster._configured", lambda self, topic: {})
    large = reason == "too large"
    settings = {"max.message.bytes": "2000"} if large else {"cleanup.policy": "compact"}
    topic = sinks.kafka.create(settings=settings)
    bad = rows("b" * 3000)[0] if large else (b"no key", None)
    given = [*rows("a"), bad, *rows(*(f"c{number}" for number in range(20)))]
    good = sorted(["a", *(f"c{number}" for number in range(20))])

    sink = sinks.open(topic)
    with pytest.raises(RowsRefused) as refused:
        sink.write(1, given, 0, topic)
    assert list(refused.value.reasons) == [1]
    assert ("MSG_SIZE_TOO_LARGE" if large else "INVALID_RECORD") in refused.value.reasons[1]
    assert (there(sinks.kafka, topic), sink.read_token(topic)) == ([], 0)
    assert sink.write(1, [row for row in given if row is not bad], 0, topic)
    assert there(sinks.kafka, topic) == good


def test_without_epochs_only_the_refused_tuple_fails_and_the_others_are_written_once(
    sinks: Sinks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("squall_io.kafka.cluster.Cluster._configured", lambda self, topic: {})
    topic = sinks.kafka.create(settings={"max.message.bytes": "2000"})
    sink = sinks.open(topic)
    failed: list[tuple[str, str]] = []
    monkeypatch.setattr(sink, "fail", lambda tup, reason: failed.append((tup["v"], str(reason))))
    for batch in ("a", "c"):
        tuples = [{"k": "k", "v": text} for text in (batch, "b" * 3000, batch * 2)]
        sink.execute_batch(tuples_of(tuples))
    assert [value for value, _ in failed] == ["b" * 3000] * 2 and "MSG_SIZE_TOO_LARGE" in failed[0][1]
    assert there(sinks.kafka, topic) == ["a", "aa", "c", "cc"]
    sink.execute_batch(tuples_of([{"k": "k", "v": "b" * 3000}]))
    sink.execute_batch(tuples_of([{"k": "k", "v": "after it"}]))
    assert there(sinks.kafka, topic) == ["a", "aa", "after it", "c", "cc"]


@pytest.mark.parametrize("token", ["t", None])
def test_an_epoch_may_be_larger_than_the_queue_and_keys_stay_in_order(
    sinks: Sinks, token: str | None
) -> None:
    topic = sinks.kafka.create(partitions=3)
    sink = sinks.open(topic, settings={"queue.buffering.max.messages": 100, "linger.ms": 1})
    given = [(str(number).encode(), str(number % 7).encode()) for number in range(3000)]
    name = token and f"{token}-{topic}"
    assert sink.write(token and 1, given, 0, name)  # type: ignore[arg-type]
    found: dict[bytes, list[int]] = {}
    for message in sinks.kafka.read(topic):
        found.setdefault(message.key(), []).append(int(message.value()))
    assert found == {str(key).encode(): list(range(key, 3000, 7)) for key in range(7)}


def test_a_message_has_all_that_is_named(sinks: Sinks) -> None:
    topic = sinks.kafka.create(partitions=3)
    when = datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=timezone.utc)
    sink = sinks.open(
        names_topic, fields=["v", "n"], encode="json", headers={"from": "h", "none": "x"}, partition="p",
        timestamp="at",
    )  # fmt: skip
    values = {"k": "ke", "v": "va", "n": 5, "h": "he", "x": None, "p": 2, "at": when, "topic": topic}
    [tup] = tuples_of([values])
    assert sink.write(1, [pickle.loads(pickle.dumps(sink.row(tup)))], 0, topic)
    [message] = sinks.kafka.read(topic)
    assert (message.key(), message.value(), message.partition()) == (b"ke", b'{"v":"va","n":5}', 2)
    assert message.headers() == [("from", b"he"), ("none", None)]
    assert message.timestamp() == (1, round(when.timestamp() * 1000))
    with pytest.raises(RowsRefused, match="it is for partition 3, and the topic has 3, from 0"):
        sink.write(2, [sink.row(tuples_of([{**values, "p": 3}])[0])], 1, topic)


def names_topic(tup: Tuple) -> str:
    """Return the topic of a tuple."""
    return str(tup["topic"])


def test_none_is_a_tombstone(sinks: Sinks) -> None:
    topic = sinks.kafka.create()
    sink = sinks.open(topic, encode="json")
    sink.execute_batch(tuples_of([{"k": "k", "v": None}]))
    [message] = sinks.kafka.read(topic)
    assert (message.key(), message.value()) == (b"k", None)


def test_missing_rights_are_errors_that_say_so(sinks: Sinks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_WORD", "secret of guest")
    settings = {
        "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "guest",
        "sasl.password": "env:KAFKA_WORD",
    }  # fmt: skip
    sink = sinks.open(sinks.kafka.create(), servers=sinks.kafka.sasl_servers, settings=settings)
    with pytest.raises(KafkaRefused, match=r"(?i)authorization failed"):
        sink.read_token("t")
    with pytest.raises(KafkaRefused, match=r"(?i)authorization failed"):
        sink.write(None, rows("a"), 0, None)


def test_a_task_that_is_stopped_does_not_wait_for_the_broker(sinks: Sinks) -> None:
    from squall_io.kafka.cluster import StoppedWaiting

    topic = sinks.kafka.create()
    sink = sinks.open(topic)
    sink.write(1, rows("a"), 0, topic)
    sinks.kafka.freeze()
    try:
        for token in (topic, None):
            sinks.shown.clear()
            sinks.stopped = False

            def stop() -> None:
                eventually(lambda: any("waiting for" in text for text in sinks.shown), ANSWER_SECS)
                sinks.stopped = True

            thread = in_background(stop)
            with pytest.raises(StoppedWaiting):
                sink.write(token and 2, rows("b"), 1, token)  # type: ignore[arg-type]
            thread.join()
    finally:
        sinks.kafka.thaw()
    sinks.stopped = False
    sinks.show(sink, rows("b"), 2, topic)
    assert there(sinks.kafka, topic) == ["a", "b"]


# Without a broker.


def test_all_that_is_wrong_with_the_arguments_is_said_at_once() -> None:
    with pytest.raises(InvalidConfig) as wrong:
        KafkaSink(
            "a topic", servers="kafka", key=5, fields=[], encode="xml", headers=["h"], partition=1,  # type: ignore[arg-type]
            tokens="no topic", settings={"transactional.id": "x", "sasl.password": "word"},
        )  # fmt: skip
    text = str(wrong.value)
    for part in (
        "topic is", "servers has", "key is", "fields is", "encode is", "headers is", "partition is", "tokens is",
        "'transactional.id', which is decided already: it is made of", "no secrets",
    ):  # fmt: skip
        assert part in text
    with pytest.raises(InvalidConfig, match="tokens and topic are both 't'"):
        KafkaSink("t", servers="k:9092", tokens="t")


def test_inputs_without_a_named_field_are_refused() -> None:
    sink = KafkaSink("t", servers="k:9092", key="k", fields=["v"], headers={"h": "x"})
    [one, two] = sink.input_problems({("spout", "default"): Fields("v", "other")})
    assert "has no field 'k' to write; it has: v, other" in one.replace("'v'", "v").replace(
        "'other'", "other"
    )
    assert "'x'" in two
    assert list(sink.input_problems({("spout", "default"): Fields("v", "k", "x")})) == []
