"""All mistakes in a SparkSink are reported at once when the topology is built, without Spark."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from squall_io.spark import SparkSink
from topology_api import Fields, InvalidConfig, InvalidTopology, Spout, TopologyBuilder

SCHEMA = "word string, count bigint"


def problems_of(**wrong: Any) -> tuple[str, ...]:
    with pytest.raises(InvalidConfig) as raised:
        SparkSink(**{"path": "/table", "schema": SCHEMA, **wrong})
    return raised.value.problems


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"path": "counts"}, "it is relative"),
        ({"path": "/tmp/x/_squall"}, "'_squall' in it is the folder"),
        ({"path": 7}, "path is 7 (int)"),
        ({"schema": "word strin"}, "strin"),
        ({"schema": ["word"]}, "schema is ['word'] (list)"),
        ({"format": "parquett"}, "did you mean 'parquet'?"),
        ({"format": None}, "format is None"),
        ({"compression": "zip"}, "compression is 'zip' (str)"),
        ({"partition_by": "wort"}, "did you mean 'word'?"),
        ({"partition_by": 3}, "partition_by is 3 (int)"),
        ({"partition_by": ["word", "count"]}, "at least one must remain"),
        ({"batch_size": 0}, "batch_size is 0 (int)"),
        ({"batch_size": True}, "batch_size is True (bool)"),
        ({"batch_interval": 0}, "batch_interval is 0"),
        (
            {"compact_after": 0},
            "compact_after is 0 (int): give the number of small files that a partition may have",
        ),
        ({"compact_after": True}, "compact_after is True (bool)"),
        ({"compact_after": "9"}, "compact_after is '9' (str)"),
        (
            {"compact_after": 9, "format": "orc"},
            "compact_after is 9 (int), and format is 'orc': a sink compacts tables of parquet only; leave"
            " compact_after out, and run squall compact PATH now and then",
        ),
        ({"master": ""}, "master is ''"),
        ({"master": 3}, "master is 3 (int)"),
        ({"master": "foo"}, "master is 'foo', which Spark does not take: write one of local, local[*], "),
        ({"master": "lcoal[2]"}, "did you mean 'local[2]'?"),
        ({"master": "local[]"}, "did you mean 'local[2]'?"),
        ({"master": "local[0]"}, "master is 'local[0]'"),
        ({"master": "spark://host"}, "did you mean 'spark://HOST:7077'?"),
        ({"conf": {"spark.master": "yarn-client"}}, "master is 'yarn-client'"),
        (
            {"path": "abfs://box/counts"},
            "or write in spite of the risk with the setting squall.unsafe.store=true",
        ),
        ({"path": "hdfs://host/t", "master": "sc://host"}, "set squall.webhdfs.address to"),
        (
            {"path": "abfs://b/t", "master": "sc://host", "conf": {"squall.unsafe.store": True}},
            "abfs:// needs one",
        ),
        (
            {"path": "s3a://b/t", "master": "sc://host", "conf": {"squall.unsafe.store": True}},
            "which squall.unsafe.store=true wants for S3; leave this setting out",
        ),
        ({"conf": {"squall.s3.endpoint": "minio:9000"}}, "'minio:9000' is not the address of an S3 server"),
        ({"conf": {"squall.s3.endpoin": "x"}}, "did you mean 'squall.s3.endpoint'?"),
        (
            {
                "master": "sc://host:1/;token=a",
                "conf": {"spark.driver.memory": "2g", "spark.sql.ansi.enabled": 1},
            },
            "conf has 'spark.driver.memory', which Spark reads when a server starts: sc://host:1/;... runs already",
        ),
        ({"conf": {"squall.webhdfs.adress": "host:9870"}}, "did you mean 'squall.webhdfs.address'?"),
        ({"conf": {"squall.webhdfs.address": "host:x"}}, "'host:x' is not a WebHDFS address"),
        (
            {"conf": {"squall.unsafe.store": "yes"}},
            "conf has 'yes' for squall.unsafe.store: give true or false",
        ),
        ({"conf": "spark.executor.memory=2g"}, "conf is 'spark.executor.memory=2g' (str)"),
        ({"conf": {"executor.memory": "2g"}}, "conf has 'executor.memory' (str)"),
        ({"conf": {"spark.executor.memory": ["2g"]}}, "conf has a list for 'spark.executor.memory'"),
    ],
)
def test_each_mistake_is_reported_with_the_value_and_advice(wrong: dict[str, Any], told: str) -> None:
    (problem,) = problems_of(**wrong)
    assert told in problem


@pytest.mark.parametrize(
    "arguments",
    [
        *(
            {"master": master}
            for master in ("local", "local[*]", "local[2]", "local[2,3]", "local[*, 4]", "yarn")
        ),
        *({"master": master} for master in ("local-cluster[2,1,1024]", "spark://a-b.c:7077,[::1]:7078")),
        *(
            {"master": master}
            for master in ("k8s://https://host:443", "sc://host", "sc://host:15002/;token=a;b=c")
        ),
        {"conf": {"spark.master": "local[3]"}},
        {"master": "local[2]", "conf": {"spark.driver.memory": "2g"}},
        {
            "master": "sc://host",
            "conf": {"spark.sql.shuffle.partitions": 2, "spark.hadoop.dfs.replication": 1},
        },
        {"path": "abfs://box/counts", "conf": {"squall.unsafe.store": True}},
        {"path": "s3a://bucket/counts", "conf": {"squall.s3.endpoint": "http://minio:9000"}},
        {"path": "s3://bucket/counts", "master": "sc://host"},
        {"path": "hdfs://h/t", "master": "sc://host", "conf": {"squall.webhdfs.address": "http://host:9870"}},
        {"conf": {"squall.webhdfs.address": "one:9870, two:9870"}},
    ],
    ids=str,
)
def test_valid_settings_of_spark_are_accepted(arguments: dict[str, Any]) -> None:
    SparkSink(**{"path": "/table", "schema": SCHEMA, **arguments})


def test_a_token_in_an_invalid_master_is_not_shown() -> None:
    (problem,) = problems_of(master="sc:/host:15002/;token=hunter2")
    assert "'sc:/host:15002/;...'" in problem and "hunter2" not in problem


class SmallBatches(SparkSink):
    batch_size = 5
    batch_interval = 0.5


def test_the_batch_size_is_that_of_the_subclass_unless_an_argument_overrides_it() -> None:
    own = SmallBatches("/table", SCHEMA)
    assert (own.batch_size, own.batch_interval) == (5, 0.5)
    given = SmallBatches("/table", SCHEMA, batch_size=7, batch_interval=2)
    assert (given.batch_size, given.batch_interval) == (7, 2)
    again = pickle.loads(pickle.dumps(SparkSink("/table", SCHEMA)))
    assert (again.batch_size, again.batch_interval) == (10_000, 5.0)


def test_all_mistakes_are_reported_at_once() -> None:
    wrong = {"path": "x", "format": "xml", "batch_size": -1, "batch_interval": "5", "master": 4}
    found = problems_of(**wrong, conf={"a": "b"}, compact_after=0)
    assert len(found) == 7


def test_a_conf_value_that_may_be_secret_is_not_shown() -> None:
    (problem,) = problems_of(conf={"spark.hadoop.fs.s3a.secret.key": ("hunter2",)})
    assert "hunter2" not in problem


def test_a_sink_is_pickled_and_created_without_spark() -> None:
    script = (
        "import sys, pickle\n"
        "sys.modules['pyspark'] = sys.modules['pyarrow'] = sys.modules['py4j'] = None\n"
        "from squall_io.spark import SparkSink\n"
        f"sink = SparkSink('hdfs://host:9000/t', {SCHEMA!r}, partition_by='WORD', conf={{'spark.ui.enabled': False}})\n"
        "again = pickle.loads(pickle.dumps(sink))\n"
        "print(again._settings.partition_by, dict(again._settings.conf), again.batch_size, again.threaded)\n"
    )
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script], cwd=root, capture_output=True, text=True, check=False
    )
    assert done.stdout == "('word',) {'spark.ui.enabled': 'false'} 10000 True\n", done.stderr


class Words(Spout):
    outputs = {"default": Fields("word", "count"), "other": Fields("words", "count")}

    def next_tuple(self) -> None:
        self.finish()


def test_a_stream_that_lacks_a_field_of_the_schema_is_reported_when_the_topology_is_built() -> None:
    builder = TopologyBuilder("words")
    words = builder.set_spout("words", Words())
    sink = builder.set_bolt("store", SparkSink("/table", SCHEMA))
    sink.shuffle_grouping(words).shuffle_grouping(words, stream="other")
    with pytest.raises(InvalidTopology) as raised:
        builder.build()
    (problem,) = raised.value.problems
    assert "'word', which the tuples of 'words', stream 'other', do not have" in problem
    assert "did you mean 'words'?" in problem


def test_a_sink_with_all_required_fields_is_built() -> None:
    builder = TopologyBuilder("words")
    builder.set_spout("words", Words())
    builder.set_bolt("store", SparkSink("/table", "count bigint")).shuffle_grouping("words")
    topology = builder.build()
    assert isinstance(pickle.loads(pickle.dumps(SparkSink("/table", SCHEMA))), SparkSink)
    assert "store" in {spec.id for spec in topology.components}
