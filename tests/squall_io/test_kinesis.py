"""The Kinesis spout and sink against moto: shards that split and merge, positions, throttling, and a service that is away."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from local_cluster.testing import check_rewindable_spout
from squall_io.aws import KinesisSink, KinesisSpout
from squall_io.aws.calls import AwsService
from tests.aws_servers import REGION, AwsServer
from tests.squall_io.queue_tasks import SpoutTask
from tests.squall_io.sinks_that_publish import SinkTask
from tests.zookeeper_servers import eventually
from topology_api import InvalidConfig

pytest.importorskip("moto")


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is asked for now and then is asked for soon."""
    monkeypatch.setattr("squall_io.aws.calls.ANSWER_SECONDS", 0.5)
    for name in ("LOOK_SECONDS", "AGAIN_SECONDS", "IDLE_SECONDS", "RETRY_SECONDS"):
        monkeypatch.setattr(f"squall_io.aws.kinesis_task.{name}", 0.01)


def spout_of(aws: AwsServer, stream: str, **more: Any) -> KinesisSpout:
    given = {"region": REGION, "endpoint_url": aws.url, "decode": "str", **more}
    return KinesisSpout(stream, **given)


@pytest.mark.parametrize("parallelism", [2, pytest.param(1, marks=pytest.mark.soak)])
def test_the_spout_keeps_the_contract_of_positions(aws: AwsServer, parallelism: int) -> None:
    stream = aws.stream(2)
    for shard in range(2):
        aws.put(stream, [f"{shard}-{n}" for n in range(3)], shard)
    check_rewindable_spout(
        lambda: spout_of(aws, stream),
        [(f"{shard}-{n}",) for shard in range(2) for n in range(3)],
        parallelism=parallelism,
    )


def test_records_have_their_fields_and_a_position_goes_on_behind_them(aws: AwsServer) -> None:
    stream = aws.stream()
    aws.put(stream, ["1", "2"], key="x")
    with SpoutTask(spout_of(aws, stream, fields=FIELDS)) as one:
        one.read(2)
        _, (value, key, shard, sequence, time), message_id = one.emitted[0]
        assert (value, key, message_id) == ("1", "x", (shard, sequence))
        assert abs(datetime.now(timezone.utc) - time) < timedelta(hours=1)
        position = one.spout.position()  # type: ignore[attr-defined]
    aws.put(stream, ["3"])
    again = spout_of(aws, stream)
    with SpoutTask(again) as two:
        again.rewind(position)
        assert two.read(1) == ["3"]


FIELDS = ("value", "key", "shard", "sequence", "time")


def test_children_are_read_after_their_parents(aws: AwsServer) -> None:
    stream, kinesis = aws.stream(), aws.client("kinesis")
    aws.put(stream, ["old 1", "old 2"])
    [shard] = aws.shards(stream)
    with SpoutTask(spout_of(aws, stream)) as one:
        one.read(1)
        kinesis.split_shard(StreamName=stream, ShardToSplit=shard["ShardId"], NewStartingHashKey=str(2**127))
        eventually(lambda: len(aws.shards(stream)) == 3, 30)
        aws.put(stream, ["left"], 1)
        aws.put(stream, ["right"], 2)
        assert sorted(one.read(4)[:2]) == ["old 1", "old 2"]
        left, right = aws.shards(stream)[1:]
        kinesis.merge_shards(
            StreamName=stream, ShardToMerge=left["ShardId"], AdjacentShardToMerge=right["ShardId"]
        )
        eventually(lambda: len(aws.shards(stream)) == 4, 30)
        aws.put(stream, ["merged"], 3)
        assert one.read(5)[4:] == ["merged"]
        assert sorted(one.values()) == ["left", "merged", "old 1", "old 2", "right"]


def test_latest_begins_with_what_comes_from_now_on(aws: AwsServer) -> None:
    stream = aws.stream()
    aws.put(stream, ["old"])
    with SpoutTask(spout_of(aws, stream, start="2100-01-01T00:00:00Z")) as one:
        one.nothing_more()
    with SpoutTask(spout_of(aws, stream, start=datetime(2000, 1, 1, tzinfo=timezone.utc))) as one:
        assert one.read(1) == ["old"]
    with SpoutTask(spout_of(aws, stream, start="latest")) as one:
        one.until(lambda: one.metrics.gauges["shards"]() == 1)
        aws.put(stream, ["new"])
        assert one.read(1)[-1] == "new"


@pytest.mark.parametrize(
    "fault", ["400 ProvisionedThroughputExceededException", "500 InternalFailure", "after"]
)
def test_what_passes_is_waited_for(aws: AwsServer, fault: str) -> None:
    stream = aws.stream()
    with SpoutTask(spout_of(aws, stream)) as one:
        one.until(lambda: one.metrics.gauges["shards"]() == 1)
        aws.fails(*[("GetRecords", fault)] * 3)
        one.until(lambda: one.shown.startswith(f"waiting for stream {stream} of Kinesis"))
        aws.put(stream, ["1"])
        assert one.read(1) == ["1"]
        assert (one.shown, one.errors) == ("", [])


def test_an_iterator_that_has_expired_is_made_again(aws: AwsServer) -> None:
    stream = aws.stream()
    aws.put(stream, ["1"])
    with SpoutTask(spout_of(aws, stream)) as one:
        one.read(1)
        aws.fails(("GetRecords", "400 ExpiredIteratorException"))
        aws.put(stream, ["2"])
        assert one.read(2) == ["1", "2"]
        assert one.errors == []


def test_what_cannot_be_decoded_is_emitted_beside(aws: AwsServer) -> None:
    stream = aws.stream()
    aws.put(stream, ["1", "{", "3"])
    with SpoutTask(spout_of(aws, stream, decode="json")) as one:
        assert one.read(2) == [1, 3]
        one.until(lambda: one.errors)
        assert "cannot be decoded: it is no JSON" in one.errors[0]
        [(_, values, _)] = [each for each in one.emitted if each[0] == "unreadable"]
        assert values[2:4] == ("k", b"{")


def test_a_missing_stream_is_an_error_and_is_read_when_it_is_there(aws: AwsServer) -> None:
    stream = aws.stream() + "-later"
    with SpoutTask(spout_of(aws, stream)) as one:
        one.until(lambda: one.errors)
        assert f"there is no stream {stream!r} at http://" in one.errors[0]
        aws.make_stream(stream)
        aws.put(stream, ["1"])
        assert one.read(1) == ["1"]


def test_each_tuple_is_a_record(aws: AwsServer) -> None:
    stream = aws.stream(2)
    sink = KinesisSink(stream, key="k", region=REGION, endpoint_url=aws.url, fields="v")
    with SinkTask(sink) as one:
        rows: list[dict[str, Any]] = [{"k": n, "v": n} for n in range(600)]
        bad: list[dict[str, Any]] = [
            {"k": "", "v": 0},
            {"k": "x" * 257, "v": 0},
            {"k": 1.5, "v": 0},
            {"k": "a", "v": "x" * 1_100_000},
        ]
        failed = one.write([*rows, *bad])
    assert set(failed) == {600, 601, 602, 603}
    assert "a partition key has 1 to 256" in failed[600]
    assert "and Kinesis takes 1048576" in failed[603]
    found = aws.records(stream)
    assert sorted(int(each["Data"]) for each in found) == list(range(600))
    assert all(each["PartitionKey"] == each["Data"].decode() for each in found)


def test_only_the_records_that_a_shard_could_not_take_are_put_again(
    aws: AwsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    original, calls = AwsService.call, list[list[bytes]]()

    def call(service: AwsService, operation: str, /, **arguments: Any) -> Any:
        calls.append([each["Data"] for each in arguments["Records"]])
        if len(calls) > 1:
            return original(service, operation, **arguments)
        answer: Any = original(service, operation, **{**arguments, "Records": arguments["Records"][:1]})
        late: Any = {"ErrorCode": "ProvisionedThroughputExceededException", "ErrorMessage": "slow down"}
        wrong = {"ErrorCode": "Strange", "ErrorMessage": "no"}
        return {"Records": [*answer["Records"], late, wrong]}

    monkeypatch.setattr(AwsService, "call", call)
    stream = aws.stream()
    with SinkTask(KinesisSink(stream, key="k", region=REGION, endpoint_url=aws.url, fields="v")) as one:
        failed = one.write([{"k": 1, "v": n} for n in range(3)])
    assert calls == [[b"0", b"1", b"2"], [b"1"]]
    assert list(failed) == [2] and failed[2].endswith("refuses the record: Strange: no")
    assert {each["Data"] for each in aws.records(stream)} == {b"0", b"1"}


@pytest.mark.parametrize("fault", ["killed", "throttled", "after"])
def test_the_sink_waits_for_a_service_that_is_away(aws: AwsServer, fault: str) -> None:
    stream = aws.stream()
    sink = KinesisSink(stream, key="k", region=REGION, endpoint_url=aws.url, fields="v")
    with SinkTask(sink) as one:
        if fault == "killed":
            aws.kill()
        else:
            how = "400 ProvisionedThroughputExceededException" if fault == "throttled" else fault
            aws.fails(*[("PutRecords", how)] * 3)
        thread = one.writing([{"k": 1, "v": n} for n in range(3)])
        try:
            eventually(lambda: any("waiting for stream" in text for text in one.shown), 60)
        finally:
            if fault == "killed":
                aws.start()
        thread.join(60)
        assert not thread.is_alive()
        assert one.failed == {}
    assert {each["Data"] for each in aws.records(stream)} == {b"0", b"1", b"2"}


def test_wrong_arguments_are_refused_with_what_to_give() -> None:
    with pytest.raises(InvalidConfig) as found:
        KinesisSpout("a/b", region="x", start="soon", fields=[], decode="xml")
    text = str(found.value)
    for part in ("stream is 'a/b'", "region is 'x'", "start is 'soon'", "fields are", "decode is"):
        assert part in text
    with pytest.raises(InvalidConfig, match="without a time zone"):
        KinesisSpout("s", start=datetime(2000, 1, 1))
    with pytest.raises(InvalidConfig, match="key is None"):
        KinesisSink("s", key=None)  # type: ignore[arg-type]
