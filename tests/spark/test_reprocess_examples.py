"""The examples with Spark: flights as a stream into two tables, and the three jobs over them, compared with plain loops."""

from __future__ import annotations

import csv
import importlib
import json
import runpy
import sys
from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import pytest
from click.testing import CliRunner

from local_cluster import LocalCluster
from squall_cli.main import squall
from squall_io.spark.reading.committed import read_committed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]  # a session may take a minute to start

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = ROOT / "tests" / "examples"


@pytest.fixture(scope="module")
def sample() -> list[dict[str, Any]]:
    """The flights of the sample."""
    with open(SAMPLES / "flights_sample.csv", newline="") as file:
        rows: list[dict[str, Any]] = list(csv.DictReader(file))
    for row in rows:
        row["delay"] = None if row["dep_delay"] == "NA" else int(row["dep_delay"])
        row["hour"] = datetime.fromisoformat(row["time_hour"].replace("Z", "+00:00"))
    return rows


@pytest.fixture(scope="module")
def tables(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The output of the stream. Its sinks use the tests' session."""
    path = tmp_path_factory.mktemp("flights")
    before = list(sys.path)
    sys.path.insert(0, str(ROOT / "examples"))  # as `squall run` does
    example = importlib.import_module("flights")
    with LocalCluster() as cluster:
        cluster.submit(example.topology(str(path), str(SAMPLES / "flights_sample.csv")))
        cluster.wait("flights", timeout=110)
        assert cluster.status("flights").components["flights"].acked == 200
    yield path
    sys.path[:] = before


def rows(spark: SparkSession, path: Path) -> list[dict[str, Any]]:
    return [row.asDict() for row in read_committed(spark, str(path)).collect()]


def reprocess(job: str, source: Path, target: Path, *arguments: str) -> dict[str, Any]:
    """Run the command of the example's header; return its output."""
    command = [
        f"{ROOT}/examples/{job}.py",
        "--input",
        str(source),
        "--output",
        str(target),
        *arguments,
        "--json",
    ]
    done = CliRunner().invoke(squall, ["reprocess", *command])
    assert done.exit_code == 0, done.output
    outcome: dict[str, Any] = json.loads(done.stdout)
    return outcome


def seconds(hour: datetime) -> float:
    """A moment in either form: Spark gives times of this machine without a zone."""
    return hour.timestamp()


def test_the_stream_stores_every_flight_and_counts_them_by_hour(
    spark: SparkSession, tables: Path, sample: list[dict[str, Any]]
) -> None:
    flights = sorted(rows(spark, tables / "flights"), key=lambda row: row["id"])

    assert [(seconds(row["hour"]), row["carrier"], row["origin"], row["delay"]) for row in flights] == [
        (seconds(row["hour"]), row["carrier"], row["origin"], row["delay"]) for row in sample
    ]
    assert list((tables / "flights" / "data").glob("month=2013-02/*.parquet"))
    delays = rows(spark, tables / "delays")
    assert sum(row["flights"] for row in delays) == 200
    assert sum(row["cancelled"] for row in delays) == 115
    assert sum(row["minutes"] for row in delays) == sum(row["delay"] or 0 for row in sample)


def test_history_is_counted_again_by_the_new_logic(
    spark: SparkSession, tables: Path, sample: list[dict[str, Any]], tmp_path: Path
) -> None:
    outcome = reprocess("reprocess_recount", tables / "flights", tmp_path / "recounted", "--key", "id")
    expected: dict[Any, list[int]] = defaultdict(lambda: [0, 0, 0])
    for flight in sample:
        counts = expected[seconds(flight["hour"]), flight["carrier"]]
        counts[0] += 1
        counts[1] += flight["delay"] is None
        counts[2] += max(flight["delay"] or 0, 0)

    assert (outcome["rows_in"], outcome["rows_out"]) == (200, len(expected))
    found = {
        (seconds(row["hour"]), row["carrier"]): [row["flights"], row["cancelled"], row["minutes"]]
        for row in rows(spark, tmp_path / "recounted")
    }
    assert found == expected


def test_late_rows_of_an_hour_are_added_up(
    spark: SparkSession, tables: Path, sample: list[dict[str, Any]], tmp_path: Path
) -> None:
    outcome = reprocess("reprocess_late", tables / "delays", tmp_path / "hours")
    hours = rows(spark, tmp_path / "hours")

    assert len(hours) == len({(row["hour"], row["carrier"]) for row in hours})
    assert len(hours) == len({(row["hour"], row["carrier"]) for row in sample})
    assert sum(row["parts"] for row in hours) == outcome["rows_in"] > len(hours)
    assert sum(row["flights"] for row in hours) == 200
    assert reprocess("reprocess_late", tables / "delays", tmp_path / "hours")["published"] is False


def test_flights_are_joined_with_the_weather(
    spark: SparkSession, tables: Path, sample: list[dict[str, Any]], tmp_path: Path
) -> None:
    weather = SAMPLES / "weather_sample.csv"
    spark.conf.set(
        "spark.flights.weather", str(weather)
    )  # the effect of --conf in a session of the command's own
    try:
        reprocess("reprocess_join", tables / "flights", tmp_path / "wind")
    finally:
        spark.conf.unset("spark.flights.weather")
    with open(weather, newline="") as file:
        winds = {(row["origin"], row["time_hour"]): float(row["wind_speed"]) for row in csv.DictReader(file)}
    expected: dict[Any, int] = defaultdict(int)
    for flight in sample:
        wind = winds[flight["origin"], flight["time_hour"]]
        name = "below 10 mph" if wind < 10 else "10 to 20 mph" if wind < 20 else "20 mph and more"
        expected[flight["origin"], name] += 1

    found = {(row["origin"], row["wind"]): row["flights"] for row in rows(spark, tmp_path / "wind")}
    assert found == expected


def test_the_picture_shows_the_mean_delay_of_each_carrier_in_each_hour(
    spark: SparkSession,
    tables: Path,
    sample: list[dict[str, Any]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("MPLBACKEND", "agg")
    monkeypatch.setenv("MPLCONFIGDIR", str(tmp_path / "matplotlib"))
    from matplotlib import pyplot

    delays: dict[Any, list[int]] = defaultdict(list)
    new_york = ZoneInfo("America/New_York")
    for flight in sample:
        if flight["delay"] is not None:
            delays[flight["carrier"], flight["hour"].astimezone(new_york).hour].append(flight["delay"])
    monkeypatch.setattr(sys, "argv", ["flights.py", str(tables / "delays"), str(tmp_path / "delays.png")])
    zone = spark.conf.get("spark.sql.session.timeZone")
    try:
        runpy.run_path(str(ROOT / "examples" / "flights.py"), run_name="__main__")
        axes, scale = pyplot.gcf().axes
        hours = [int(label.get_text()) for label in axes.get_xticklabels()]
        carriers = [label.get_text() for label in axes.get_yticklabels()]
        drawn = axes.images[0].get_array()
        assert drawn is not None
        cells = drawn.tolist()
        darkest = axes.images[0].get_clim()[1]
        assert scale.get_ylabel() == "mean delay at departure, minutes (black: the longest 5%)"
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone or "UTC")
        pyplot.close("all")

    assert capsys.readouterr().out == f"{tmp_path / 'delays.png'} is drawn\n"
    assert carriers == sorted({carrier for carrier, _ in delays})
    seen = {hour for _, hour in delays}
    assert hours == list(range(min(seen), max(seen) + 1)), "an hour without flights keeps its place"
    shown = {
        (carrier, hour): cell
        for carrier, row in zip(carriers, cells)
        for hour, cell in zip(hours, row)
        if cell is not None  # all were cancelled, or there was none
    }
    assert shown == pytest.approx({key: sum(each) / len(each) for key, each in delays.items()})
    assert darkest < max(shown.values()), "one cell does not make the others pale"
    picture = pyplot.imread(tmp_path / "delays.png")
    assert picture.shape[:2] == (750, 1350)
    colours = {tuple(pixel) for row in picture[::5] for pixel in row[::5].tolist()}
    assert len(colours) > len(set(shown.values())) > 5, "an empty one has white and the colours of its frame"
