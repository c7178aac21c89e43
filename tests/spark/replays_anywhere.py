"""Replays whose results do not depend on where Spark runs: columns of a source, pickles of bolts, and a user's own grouping.

As a program, with a master, a folder and settings as JSON, it leaves what it found in `found.json` there.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from squall_io.spark import replay_topology
from squall_io.spark.replay import Replayed
from squall_io.spark.session.sessions import shared_session
from tests.squall_io.replay_topologies import (
    ByRemainder,
    Numbers,
    OfPoint,
    Points,
    Tagged,
    Totals,
    word_count,
)
from topology_api import Topology, TopologyBuilder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LINES = [(f"{n % 13} {n % 7} x",) for n in range(3000)]


def by_remainder() -> Topology:
    """Numbers that a grouping of the user's sends to tasks."""
    builder = TopologyBuilder("remainders")
    builder.set_spout("numbers", Numbers())
    builder.set_bolt("it", Tagged(), parallelism=3).custom_grouping("numbers", ByRemainder())
    return builder.build()


def of_points() -> Topology:
    """Values of a class of the user's between two bolts; one of them cannot be pickled."""
    builder = TopologyBuilder("points")
    builder.set_spout("numbers", Numbers())
    builder.set_bolt("points", Points(), parallelism=2).shuffle_grouping("numbers")
    builder.set_bolt("of", OfPoint(), parallelism=2).shuffle_grouping("points")
    return builder.build()


def replayed(spark: SparkSession) -> dict[str, Any]:
    """What the replays give in this session, in a form that JSON keeps."""
    from pyspark.sql import functions as sql

    lines = spark.createDataFrame(LINES, "line string").repartitionById(
        4, sql.pmod(sql.hash("line"), sql.lit(3)).cast("int")
    )
    numbers = spark.range(0, 3000, 1, 3).withColumnRenamed("id", "n")
    found = {}
    with replay_topology(
        spark, word_count(counter=Totals), {"lines": lines}, ["count", "split"], parallelism={"count": 5}
    ) as done:
        found["words"] = _outcome(done)
    with replay_topology(spark, by_remainder(), {"numbers": numbers}, "it") as done:
        found["remainders"] = _outcome(done)
    with replay_topology(spark, of_points(), {"numbers": numbers}, "of", max_errors=1) as done:
        found["points"] = _outcome(done)
    return found


def _outcome(done: Replayed) -> dict[str, Any]:
    outputs = {name: sorted(map(list, frame.collect())) for name, frame in done.items()}
    errors = [[row.component, row.error, row.sources[0].row] for row in done.errors.collect()]
    executed = {name: [counts.executed, counts.emitted] for name, counts in done.components.items()}
    return {"outputs": outputs, "errors": errors, "executed": executed}


def main(master: str, folder: Path, conf: Mapping[str, str]) -> None:
    """Replay in a session of this process."""
    with shared_session(master, conf) as lease:
        (folder / "found.json").write_text(json.dumps(replayed(lease.session)))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), json.loads(sys.argv[3]))
