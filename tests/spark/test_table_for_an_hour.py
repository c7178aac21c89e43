"""A table that is written, killed, compacted, vacuumed and followed at the same time is the same for every reader."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from local_cluster import LocalCluster
from squall.stores.local import LocalFiles
from squall_io.spark.manifest.state import read_state
from tests.spark.table_in_use import (
    NAME,
    Follower,
    eventually,
    rows,
    seen_by_readers,
    squall,
    topology,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

A_SECOND = 500
#: Seconds that files stay which a compaction has replaced: longer than any reader here needs.
RETENTION = 5.0
START_SECS = 120.0
#: How many small files a partition may have until the sink compacts it.
COMPACT_AFTER = 6


class Use:
    """What happens to the table, in rounds; each kills something, at moments that the seed decides.

    by_sink: the sink compacts its table itself, and no command does.
    """

    def __init__(
        self, folder: Path, cluster: LocalCluster, follower: Follower, draw: random.Random, by_sink: bool
    ) -> None:
        self.folder, self.cluster, self.follower, self.draw = folder, cluster, follower, draw
        self.by_sink = by_sink
        self.table = str(folder / "table")
        self.kills = 0

    @property
    def files(self) -> int:
        return len(list((self.folder / "table").glob("data/*/*.parquet")))

    @property
    def compactions(self) -> int:
        """How many batches of compactions the manifest has."""
        with LocalFiles(self.table) as files:
            return sum(bool(entry.replaces) for entry in read_state(files).counted.values())

    def kill_worker(self) -> None:
        pids = [worker.pid for worker in self.cluster.workers(NAME) if worker.pid]
        if len(pids) == 3:
            os.kill(self.draw.choice(sorted(pids)), signal.SIGKILL)
            self.kills += 1

    def round(self) -> None:
        """Kill a worker and a compaction, compact, vacuum, and kill the follower."""
        before, compacted = self.files, self.compactions
        self.kill_worker()
        if self.by_sink:
            eventually(lambda: self.compactions > compacted, START_SECS, "a compaction by the sink")
        else:
            squall("compact", self.table, "--take-over", after=self.draw.uniform(0.5, 4.0))
            squall("compact", self.table, "--take-over")
        squall("vacuum", self.table, "--retention", f"{RETENTION:g}", "--allow-short")
        if self.draw.random() < 0.5:
            self.follower.kill()
            self.follower.start()
        eventually(lambda: self.files != before, START_SECS, "another commit or compaction")


def use(folder: Path, seconds: float, seed: int, spark: SparkSession, by_sink: bool) -> None:
    """Use a table for about that long; check what its readers see."""
    follower, draw = Follower(folder), random.Random(seed)
    end = time.monotonic() + seconds
    with LocalCluster(processes=True) as cluster:
        cluster.submit(topology(folder, A_SECOND, COMPACT_AFTER if by_sink else None))
        using = Use(folder, cluster, follower, draw, by_sink)
        try:
            eventually(lambda: using.files > 0, START_SECS, "the first commit")
            follower.start()
            eventually(lambda: follower.has_copied, START_SECS, "the first copy")
            while time.monotonic() < end or using.kills < 2:
                using.round()
            (folder / "enough").touch()
            cluster.wait(NAME, 600)
            if not by_sink:
                squall("compact", using.table, "--take-over")
            time.sleep(RETENTION)  # until the vacuum may delete what was replaced
            squall("vacuum", using.table, "--retention", f"{RETENTION:g}", "--allow-short")
            follower.end()
        finally:
            follower.kill()
    seen = seen_by_readers(spark, folder)
    wanted = rows(max(row[0] for row in seen["read_committed"]) + 1)
    for name, found in seen.items():
        assert found == wanted, f"{name}: {sum(found.values())} rows of {sum(wanted.values())}"
    assert len(wanted) >= A_SECOND
    print(
        f"{len(wanted)} rows, {using.kills} workers killed, {using.compactions} batches of compactions,"
        f" {using.files} files at the end"
    )


BY = pytest.mark.parametrize("by_sink", [False, True], ids=["by the command", "by the sink"])


@pytest.mark.slow
@BY
def test_a_table_in_use_is_the_same_for_every_reader(
    spark: SparkSession, tmp_path: Path, by_sink: bool
) -> None:
    use(tmp_path, 20.0, 1, spark, by_sink)


@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.timeout(0)
@BY
def test_a_table_in_use_for_an_hour(
    spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest, by_sink: bool
) -> None:
    """With `--soak 60` an hour."""
    use(tmp_path, 60.0 * request.config.getoption("--soak"), 2, spark, by_sink)
