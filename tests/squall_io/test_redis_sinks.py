"""RedisSink and RedisStreamSink on a real server: what they write, what is refused, and each row once, whatever is lost."""

from __future__ import annotations

import pickle
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from local_cluster.contracts.opened import Surroundings, context_of, tuples_of
from local_cluster.testing import run_bolt
from squall_io.redis import RedisSink, RedisStreamSink
from squall_io.redis.connection import RedisAway, RedisRefused
from squall_io.redis.transactions import RedisTransactions, TokenWentBack
from tests.certificates import make_certificates
from tests.redis_servers import LosingProxy, RedisServer
from tests.zookeeper_servers import eventually, free_ports
from topology_api import FailTuple, InvalidConfig, RowsRefused

Sink = RedisSink | RedisStreamSink
TOKEN = "shop/write/0/lineage"


class Sinks:
    """Tasks of sinks, what they show, and whether they are stopped."""

    def __init__(self) -> None:
        self.shown, self.stopped = list[str](), False
        self.around = Surroundings()
        self.opened: list[Sink] = []

    def open(self, sink: Sink) -> Sink:
        """A task as it is in a new process."""
        opened: Sink = pickle.loads(pickle.dumps(sink))
        context = context_of("write", 0, 1, self.around)
        context._progress = lambda why: self.shown.append(why or "")
        context._stopped = lambda: self.stopped
        context._now = time.monotonic
        opened.prepare(context)
        self.opened.append(opened)
        return opened


@pytest.fixture
def sinks() -> Iterator[Sinks]:
    found = Sinks()
    yield found
    for sink in found.opened:
        sink.cleanup()
    found.around.end()


def rows(sink: Sink, *values: dict[str, Any]) -> list[Any]:
    return [sink.row(each) for each in tuples_of(values)]


def written(redis: RedisServer, sink: Sink, *values: dict[str, Any]) -> Any:
    """Write tuples without epochs; return a client."""
    sink.write(None, rows(sink, *values), 0, None)
    return redis.client


def in_background(action: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=action)
    thread.start()
    return thread


# What is written.


def test_a_key_has_the_value_of_a_field(redis_server: RedisServer, sinks: Sinks) -> None:
    base = redis_server.name("count")
    sink = sinks.open(RedisSink(base + ":{word}", url=redis_server.url, value="n"))
    client = written(
        redis_server,
        sink,
        {"word": "a", "n": 1},
        {"word": "b", "n": "text"},
        {"word": "c", "n": {"x": [1.5, None]}},
        {"word": "d", "n": b"\x00bytes"},
        {"word": "e", "n": True},
        {"word": "a", "n": 2},
        {"word": "b", "n": None},
    )
    keys = [f"{base}:{word}" for word in "abcde"]
    assert client.mget(keys) == ["2", None, '{"x":[1.5,null]}', "\x00bytes", "true"]


def test_a_key_has_a_hash_of_fields(redis_server: RedisServer, sinks: Sinks) -> None:
    key = redis_server.name("user")
    redis_server.client.hset(key, mapping={"of others": "x", "name": "old", "town": "Bern"})
    sink = sinks.open(RedisSink("key", url=redis_server.url, fields=["name", "town"]))
    written(redis_server, sink, {"key": key, "name": "Eva", "town": None})
    assert redis_server.client.hgetall(key) == {"of others": "x", "name": "Eva"}


@pytest.mark.parametrize("more", [{"value": "n"}, {"fields": ["n"]}])
def test_a_key_lives_for_a_time(redis_server: RedisServer, sinks: Sinks, more: Any) -> None:
    key = redis_server.name("session")
    sink = sinks.open(RedisSink("key", url=redis_server.url, ttl=100, **more))
    client = written(redis_server, sink, {"key": key, "n": 1})
    assert 0 < client.ttl(key) <= 100


def test_encode(redis_server: RedisServer, sinks: Sinks) -> None:
    key = redis_server.name("key")
    for encode, value, expected in (("json", "a", '"a"'), ("str", "a", "a"), (repr_of, "a", "'a'")):
        sink = sinks.open(RedisSink("key", url=redis_server.url, value="v", encode=encode))
        assert written(redis_server, sink, {"key": key, "v": value}).get(key) == expected
    with pytest.raises(FailTuple, match="is not text"):
        rows(sinks.open(RedisSink("k", url=redis_server.url, value="v", encode="str")), {"k": "k", "v": 1})


def repr_of(value: Any) -> bytes:
    return repr(value).encode()


@pytest.mark.parametrize("value", [None, 1.5, True, ["a"], ""])
def test_what_is_no_key_fails_its_tuple(sinks: Sinks, value: Any) -> None:
    sink = sinks.open(RedisSink("word", url="redis://127.0.0.1:1", value="n"))
    with pytest.raises(FailTuple, match=r"a key is made of|the key is empty"):
        rows(sink, {"word": value, "n": 1})


def test_an_entry_has_the_fields_of_a_tuple(redis_server: RedisServer, sinks: Sinks) -> None:
    stream = redis_server.name("out")
    sink = sinks.open(RedisStreamSink("{to}", url=redis_server.url, fields=["id", "more", "none"]))
    client = written(redis_server, sink, {"to": stream, "id": 1, "more": [1], "none": None})
    assert [entry for _, entry in client.xrange(stream)] == [{"id": "1", "more": "[1]"}]
    with pytest.raises(FailTuple, match="an entry has at least one"):
        rows(sink, {"to": stream, "id": None, "more": None, "none": None})


@pytest.mark.parametrize(
    ("fields", "expected"), [(None, '{"a":1,"b":"x"}'), (["a"], '{"a":1}'), ("b", '"x"')]
)
def test_an_entry_has_one_field_of_json(
    redis_server: RedisServer, sinks: Sinks, fields: Any, expected: str
) -> None:
    stream = redis_server.name("out")
    sink = sinks.open(RedisStreamSink(stream, url=redis_server.url, field="data", fields=fields))
    client = written(redis_server, sink, {"a": 1, "b": "x"})
    assert [entry for _, entry in client.xrange(stream)] == [{"data": expected}]


def test_a_stream_is_kept_short(redis_server: RedisServer, sinks: Sinks) -> None:
    stream = redis_server.name("out")
    sink = sinks.open(RedisStreamSink(stream, url=redis_server.url, maxlen=100))
    written(redis_server, sink, *({"n": n} for n in range(1000)))
    assert 100 <= redis_server.client.xlen(stream) < 300


# What is refused.


def test_a_batch_without_epochs_loses_only_refused_tuples(redis_server: RedisServer) -> None:
    base = redis_server.name("key")
    redis_server.client.rpush(f"{base}:list", 1)
    sink = RedisSink(base + ":{k}", url=redis_server.url, fields=["v"])
    done = run_bolt(sink, [{"k": "a", "v": 1}, {"k": "list", "v": 2}, {"k": "b", "v": 3}])
    assert [item["k"] for item in done.acked()] == ["a", "b"]
    ((_, failure),) = done.failed()
    text = str(failure.error)
    assert f"key {base}:list at Redis at" in text and "holds a list, no hash" in text
    assert [redis_server.client.hget(f"{base}:{k}", "v") for k in "ab"] == ["1", "3"]


def test_a_value_that_is_too_large_is_refused(tmp_path: Path, sinks: Sinks) -> None:
    with RedisServer(tmp_path, {"proto-max-bulk-len": "1mb"}) as redis:
        sink = sinks.open(RedisSink("k", url=redis.url, value="v"))
        large, fits = "x" * (1024 * 1024 + 1), "x" * (1024 * 1024)
        kept = rows(sink, {"k": "a", "v": 1}, {"k": "b", "v": large}, {"k": "c", "v": fits})
        with pytest.raises(RowsRefused) as caught:
            sink.write(1, kept, 0, TOKEN)
        assert list(caught.value.reasons) == [1] and "`proto-max-bulk-len`" in caught.value.reasons[1]
        assert redis.client.keys() == []
        assert sink.write(1, [kept[0], kept[2]], 0, TOKEN)
        assert redis.client.strlen("c") == len(fits)


def test_rights_are_checked_before_anything_is_written(
    tmp_path: Path, sinks: Sinks, monkeypatch: Any
) -> None:
    monkeypatch.setenv("PASSWORD", "secret")
    with RedisServer(tmp_path) as redis:
        rights = ["+hello", "+multi", "+exec", "+watch", "+unwatch", "+get", "+type", "+set"]
        redis.client.acl_setuser(
            "app",
            enabled=True,
            passwords=["+secret"],
            keys=["out", "key:*", "squall-tokens:*"],
            commands=rights,
        )
        url = f"redis://app@{redis.address}"
        stream = sinks.open(RedisStreamSink("out", url=url, password="env:PASSWORD"))
        with pytest.raises(RedisRefused, match=r"xadd.*give the user these rights"):
            stream.write(1, rows(stream, {"a": 1}), 0, TOKEN)
        sink = sinks.open(RedisSink("{k}", url=url, value="v", password="env:PASSWORD"))
        with pytest.raises(RedisRefused, match="give the user these rights"):
            sink.write(1, rows(sink, {"k": "key:a", "v": 1}, {"k": "other", "v": 1}), 0, TOKEN)
        assert redis.client.keys() == []
        assert sink.write(1, rows(sink, {"k": "key:a", "v": 1}), 0, TOKEN)
        redis.client.config_set("requirepass", "x")
        with pytest.raises(RedisRefused, match="wants a password"):
            sinks.open(RedisSink("k", url=redis.url, value="v")).read_token(TOKEN)


def test_a_node_of_a_cluster_is_refused(tmp_path: Path, sinks: Sinks) -> None:
    settings = {"cluster-enabled": "yes", "cluster-port": "0", "appendonly": "no"}
    refused = "a node of a Redis Cluster, which Squall does not support"
    with RedisServer(tmp_path, settings) as redis, pytest.raises(RedisRefused, match=refused):
        sinks.open(RedisSink("k", url=redis.url, value="v")).read_token(TOKEN)


def test_all_wrong_arguments_are_named() -> None:
    with pytest.raises(InvalidConfig) as caught:
        RedisSink("{a.b!r}", url="redis://:secret@host", ttl=0, encode="yaml", password="secret", tokens="")
    assert len(caught.value.problems) == 7
    with pytest.raises(InvalidConfig) as caught:
        RedisStreamSink("a{", url="host:6379", fields=[], field="", encode=3, maxlen=0)  # type: ignore[arg-type]
    assert len(caught.value.problems) == 6
    for key in ("{}", "{a:3}", "", "a}"):
        with pytest.raises(InvalidConfig, match="key"):
            RedisSink(key, url="redis://host", value="v")
    assert RedisSink("{{tag}}:{word}", url="redis://host", value="v").used() == ["word", "v"]


# What may be lost.


def test_an_epoch_whose_answer_is_lost_is_there_once(redis_server: RedisServer, sinks: Sinks) -> None:
    stream = redis_server.name("out")
    with LosingProxy(redis_server.port) as proxy:
        sink = sinks.open(RedisStreamSink(stream, url=proxy.url))
        token = f"{stream}/{TOKEN}"
        for epoch, lost in enumerate((b"", b"EXEC", b"", b"WATCH", b"HELLO", b"EXEC"), 1):
            proxy.lose = lost or None
            if lost == b"HELLO":
                sink.cleanup()
            done = sink.write(epoch, rows(sink, {"n": epoch}), epoch - 1, token)
            assert done is (lost != b"EXEC")  # the token is another one: the runtime reads it, and goes on
            assert sink.read_token(token) == epoch and proxy.lose is None
        assert proxy.lost == 4
    assert [entry["n"] for _, entry in redis_server.client.xrange(stream)] == [str(n) for n in range(1, 7)]


def test_without_epochs_a_batch_whose_answer_is_lost_is_written_again(
    redis_server: RedisServer, sinks: Sinks
) -> None:
    stream = redis_server.name("out")
    with LosingProxy(redis_server.port) as proxy:
        sink = sinks.open(RedisStreamSink(stream, url=proxy.url))
        proxy.lose = b"EXEC"
        sink.write(None, rows(sink, {"n": 1}), 0, None)
    assert redis_server.client.xlen(stream) == 2


@pytest.mark.parametrize("fault", ["killed", "frozen"])
def test_a_server_that_is_away_is_waited_for(
    tmp_path: Path, sinks: Sinks, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    monkeypatch.setattr("squall_io.redis.connection.ANSWER_SECONDS", 0.3)
    with RedisServer(tmp_path) as redis:
        sink = sinks.open(RedisStreamSink("out", url=redis.url))
        assert sink.write(1, rows(sink, {"n": 1}), 0, TOKEN)
        (redis.kill if fault == "killed" else redis.freeze)()
        done: list[bool] = []
        thread = in_background(lambda: done.append(sink.write(2, rows(sink, {"n": 2}), 1, TOKEN)))
        eventually(
            lambda: any(f"waiting for Redis at redis://{redis.address}/0" in each for each in sinks.shown)
        )
        redis.start() if fault == "killed" else redis.thaw()
        thread.join(60)
        assert done == [True] and sinks.shown[-1] == ""
        assert [entry["n"] for _, entry in redis.client.xrange("out")] == ["1", "2"]


@pytest.mark.parametrize(
    ("word", "setting", "before", "after"),
    [
        ("READONLY", "replicaof", "127.0.0.1 1", "no one"),
        ("OOM", "maxmemory", "1", "0"),
        pytest.param("NOREPLICAS", "min-replicas-to-write", "1", "0", marks=pytest.mark.soak),
    ],
)
def test_a_server_that_takes_no_writes_is_waited_for(
    tmp_path: Path, sinks: Sinks, word: str, setting: str, before: str, after: str
) -> None:
    with RedisServer(tmp_path) as redis:

        def change(value: str) -> None:
            if setting == "replicaof":
                redis.client.execute_command("REPLICAOF", *value.split())
            else:
                redis.client.config_set(setting, value)

        sink = sinks.open(RedisSink("k", url=redis.url, value="v"))
        assert sink.write(1, rows(sink, {"k": "a", "v": 1}), 0, TOKEN)
        change(before)
        done: list[bool] = []
        thread = in_background(lambda: done.append(sink.write(2, rows(sink, {"k": "b", "v": 2}), 1, TOKEN)))
        expected = {
            "READONLY": "it is a replica",
            "OOM": "its memory is used up",
            "NOREPLICAS": "too few replicas",
        }
        eventually(lambda: any(expected[word] in each for each in sinks.shown))
        assert redis.client.get("b") is None
        change(after)
        thread.join(60)
        assert done == [True] and redis.client.mget("a", "b") == ["1", "2"]


def test_a_task_that_is_stopped_does_not_wait(sinks: Sinks) -> None:
    sink = sinks.open(RedisSink("k", url="redis://127.0.0.1:1", value="v"))
    failed: list[Exception] = []

    def write() -> None:
        try:
            sink.write(1, rows(sink, {"k": "a", "v": 1}), 0, TOKEN)
        except RedisAway as error:
            failed.append(error)

    thread = in_background(write)
    eventually(lambda: sinks.shown)
    sinks.stopped = True
    thread.join(60)
    assert len(failed) == 1


def test_a_token_that_went_back_is_an_error_and_nothing_is_written(tmp_path: Path, sinks: Sinks) -> None:
    with RedisServer(tmp_path, {"appendonly": "no"}) as redis:
        sink = sinks.open(RedisStreamSink("out", url=redis.url))
        assert sink.write(1, rows(sink, {"n": 1}), 0, TOKEN)
        redis.client.save()
        for epoch in (2, 3):
            assert sink.write(epoch, rows(sink, {"n": epoch}), epoch - 1, TOKEN)
        redis.kill()
        redis.start()
        went_back = r"is 1 and was 3: .* with the rows of epochs 2 to 3"
        with pytest.raises(TokenWentBack, match=went_back):
            sink.read_token(TOKEN)
        with pytest.raises(TokenWentBack, match=went_back):
            sink.write(4, rows(sink, {"n": 4}), 3, TOKEN)
        assert redis.client.xlen("out") == 1
        redis.client.set(f"squall-tokens:{TOKEN}", 3)  # as the error says
        assert sink.read_token(TOKEN) == 3
        assert sink.write(4, rows(sink, {"n": 4}), 3, TOKEN)


def test_a_key_that_gets_another_type_meanwhile_was_written_before(
    redis_server: RedisServer, sinks: Sinks, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, other = redis_server.name("hash"), redis_server.name("hash")
    token = f"{key}/{TOKEN}"
    original = RedisTransactions._done

    def done(self: RedisTransactions, commands: Any) -> bool:
        redis_server.client.set(key, "of another client")
        return original(self, commands)

    sink = sinks.open(RedisSink("k", url=redis_server.url, fields=["v"]))
    with monkeypatch.context() as patch:
        patch.setattr(RedisTransactions, "_done", done)
        assert sink.write(1, rows(sink, {"k": key, "v": 1}, {"k": other, "v": 2}), 0, token)
    assert redis_server.client.get(key) == "of another client"
    assert redis_server.client.hgetall(other) == {"v": "2"}
    with pytest.raises(RowsRefused, match="holds a string, no hash"):
        sink.write(2, rows(sink, {"k": key, "v": 3}), 1, token)


def test_tls(tmp_path: Path, sinks: Sinks) -> None:
    made = make_certificates(tmp_path / "certificates")
    tls = {"tls-cert-file": made.certificate, "tls-key-file": made.key, "tls-ca-cert-file": made.ca}
    with RedisServer(tmp_path, {**tls, "tls-port": "0", "tls-auth-clients": "no"}) as redis:
        (port,) = free_ports(1)
        redis.client.config_set("tls-port", port)
        url = f"rediss://127.0.0.1:{port}/0"
        assert (
            sinks.open(RedisSink("k", url=f"{url}?ssl_ca_certs={made.ca}", value="v")).read_token(TOKEN) == 0
        )
        with pytest.raises(RedisRefused, match="name the authority with"):
            sinks.open(RedisSink("k", url=url, value="v")).read_token(TOKEN)
