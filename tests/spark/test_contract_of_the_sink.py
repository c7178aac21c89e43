"""SparkSink keeps the contract of a StagedSink, of which one commit shows the rows of all tasks: see `check_staged_sink`."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from local_cluster.contracts.promises import try_all
from local_cluster.contracts.sinks import SinkPlace
from local_cluster.contracts.staged_sinks import StagedTrial, check_staged_sink, promises_of
from squall_io.spark.manifest import epochs
from squall_io.spark.sink import sink_table
from tests.table_of_the_contract import make, staged, values, visible
from topology_api import StagedSink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow]

#: Those that say most of what Spark writes. All others, and faults at each line, are tried with files that pyarrow writes
#: (`tests/squall_io/test_contract_of_the_spark_sink.py`).
OF_SPARK = (
    "an epoch that is staged again is committed once",
    "one commit shows the rows of all tasks",
    "what a killed process has left is removed with a later commit",
)


def opened_at_once(table: sink_table.SinkTable, folder: str, attempt: str, name: str) -> None:
    """Stands for the first write of a task: the session of these tests has made it."""
    table._writer = table._make_writer()


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch, spark: SparkSession) -> None:
    monkeypatch.setattr(sink_table.SinkTable, "_write_first", opened_at_once)


def test_the_staged_epochs_of_the_sink_keep_their_contract(tmp_path: Path, quick: None) -> None:
    table = tmp_path / "table"
    place = SinkPlace(StagedSink, partial(make, table), values, partial(visible, table))
    known = promises_of(partial(staged, table), whole_epochs=True)
    try_all(place.name, {name: known[name] for name in OF_SPARK}, lambda: StagedTrial(place))


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_the_sink_keeps_its_contract_with_a_fault_at_each_line(tmp_path: Path, quick: None) -> None:
    table = tmp_path / "table"
    check_staged_sink(
        partial(make, table),
        values,
        partial(visible, table),
        staged=partial(staged, table),
        whole_epochs=True,
        code=(epochs,),
    )
