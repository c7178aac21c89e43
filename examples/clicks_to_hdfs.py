"""Stores the clicks of a Kafka topic in tables on HDFS, each click once, and processes them again in batch, with the same bolt.

    pip install '.[kafka,spark]'               # and Java 17
    squall dev                                 # in a second terminal: a cluster on this machine
    squall submit examples/clicks_to_hdfs.py -o topology.state.path=file:///tmp/clicks-state -- \\
        kafka1:9092 hdfs://namenode:9000/shop

Without a cluster, and without HDFS, into a folder of this machine:

    squall run examples/clicks_to_hdfs.py -o topology.state.path=file:///tmp/clicks-state -- 127.0.0.1:9092 /tmp/shop

It teaches a stream that can be corrected later. Each message of the topic `clicks` is an object of JSON: {"id": "c1",
"user": "ada", "page": "/Shoes?from=mail", "at": "2026-11-29T10:00:00Z"}. One `SparkSink` keeps the clicks as they came, in the
table `raw`; `Clean` leaves out robots and makes pages comparable; another sink writes that to the table `clicks`, by day. The
spout has a position and a sink commits epochs, so each click is in each table once, whatever is killed.

Once the rules of `Clean` change, the history changes with them: a replay runs the bolt as a Spark job over all that was kept.

    squall table hdfs://namenode:9000/shop/clicks
    squall replay examples/clicks_to_hdfs.py --source from-kafka=hdfs://namenode:9000/shop/raw \\
        --output clean=hdfs://namenode:9000/shop/clicks-again

What needs all clicks of a user in their order is easier in batch. `reprocess` finds visits: clicks of a user with less than
half an hour between two of them.

    squall reprocess examples/clicks_to_hdfs.py --input hdfs://namenode:9000/shop/clicks \\
        --output hdfs://namenode:9000/shop/visits

If the brokers want a password, give `KafkaSpout` its `settings`, with the name of a variable in place of the password.
"""

import os

from squall_io.kafka import KafkaSpout
from squall_io.spark import SparkSink
from topology_api import Bolt, FailTuple, Fields, TopologyBuilder

RAW = "id string NOT NULL, user string NOT NULL, page string NOT NULL, at timestamp NOT NULL"
CLEAN = f"{RAW}, day string"
ROBOTS = ("crawler", "monitor")
HALF_AN_HOUR = 1800


class Clean(Bolt):
    """Leaves out robots. A page is a path in small letters; the day is that of UTC."""

    outputs = Fields("id", "user", "page", "at", "day")

    def execute(self, tup):
        id, user, page, at = tup.values
        if user.startswith(ROBOTS):
            return
        if not page.startswith("/"):
            raise FailTuple(f"click {id}: {page!r} is no path")
        page = page.partition("?")[0].rstrip("/").lower() or "/"
        self.emit((id, user, page, at, f"{at:%Y-%m-%d}"))


def topology(servers="127.0.0.1:9092", path="shop", master=None):
    """servers: brokers of Kafka; path: folder of the tables; master: Spark's master."""
    path = path if "://" in path else os.path.abspath(path)  # a worker runs in a different folder
    builder = TopologyBuilder("clicks-to-hdfs", {"topology.require": "exactly-once"})
    spout = KafkaSpout("clicks", servers=servers, schema=RAW)
    clicks = builder.set_spout("from-kafka", spout, parallelism=2)
    clean = builder.set_bolt("clean", Clean(), parallelism=2).shuffle_grouping(clicks)
    builder.set_bolt("store-raw", SparkSink(f"{path}/raw", RAW, master=master)).shuffle_grouping(clicks)
    by_day = SparkSink(f"{path}/clicks", CLEAN, partition_by="day", master=master)
    builder.set_bolt("store-clean", by_day).shuffle_grouping(clean)
    return builder.build()


def reprocess(spark, clicks):
    """Return the visits, of the committed rows of the table `clicks`."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    by_user = Window.partitionBy("user").orderBy("at", "id")
    pause = F.unix_timestamp("at") - F.lag(F.unix_timestamp("at")).over(by_user)
    begins = (pause.isNull() | (pause >= HALF_AN_HOUR)).cast("int")
    numbered = clicks.withColumn("begins", begins).withColumn("visit", F.sum("begins").over(by_user))
    return numbered.groupBy("user", "visit").agg(
        F.min("at").alias("began"), F.max("at").alias("ended"), F.count("*").alias("clicks")
    )
