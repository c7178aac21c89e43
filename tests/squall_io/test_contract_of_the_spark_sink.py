"""SparkSink keeps its contract with a fault at each line, where pyarrow writes the files instead of Spark.

The protocol that a fault could break is all here: parts, moves, manifest, leftovers. `tests/spark/test_contract_of_the_sink.py`
lets Spark write.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from local_cluster.contracts.promises import try_all
from local_cluster.contracts.sinks import SinkPlace
from local_cluster.contracts.staged_sinks import StagedTrial, promises_of
from local_cluster.testing import check_staged_sink
from squall_io.spark.manifest import epochs
from tests.squall_io.sink_without_spark import without_spark
from tests.table_of_the_contract import make, staged, values, visible
from topology_api import StagedSink


@pytest.fixture(autouse=True)
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    without_spark(monkeypatch)


def test_the_sink_keeps_its_contract_with_a_kill_at_each_line_of_the_commit_protocol(tmp_path: Path) -> None:
    for number, name in enumerate(promises_of(lambda: 0, whole_epochs=True)):
        if "may raise" in name:
            continue
        table = tmp_path / str(number)  # a reader of a table reads all of its entries
        promise = promises_of(partial(staged, table), whole_epochs=True)[name]
        place = SinkPlace(StagedSink, partial(make, table), values, partial(visible, table))
        try_all(place.name, {name: promise}, lambda place=place: StagedTrial(place, (epochs,)))  # type: ignore[misc]


@pytest.mark.soak
def test_the_sink_keeps_its_contract_with_a_fault_at_each_line_of_the_commit_protocol(tmp_path: Path) -> None:
    table = tmp_path / "table"
    check_staged_sink(
        partial(make, table),
        values,
        partial(visible, table),
        staged=partial(staged, table),
        whole_epochs=True,
        code=(epochs,),
    )
