"""The example of accounts, killed every three seconds for as long as one wants, writes each entry once in two places."""

from __future__ import annotations

import importlib
import random
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from local_cluster import LocalCluster
from squall_io.spark import read_committed
from tests.accounts_ledger import CONF, EXAMPLES, assert_exact, entries, kill_one, write_transfers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_an_hour_of_kills_every_three_seconds(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """With `--soak 60` an hour, one file of transfers after the other, into a SQL database and a table of Spark."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    accounts = importlib.import_module("accounts")
    minutes, draw, kills, rounds = request.config.getoption("--soak"), random.Random(1), 0, 0
    end = time.monotonic() + 60 * minutes
    while time.monotonic() < end:
        folder = tmp_path / str(rounds)
        folder.mkdir()
        names = [str(folder / name) for name in ("transfers.txt", "accounts.sqlite", "state", "table")]
        wanted = write_transfers(Path(names[0]), 100_000)
        with LocalCluster(processes=True) as cluster:
            cluster.submit(accounts.topology(*names), {**CONF, "topology.epoch.secs": 1})
            while cluster.last_status("accounts").state == "ACTIVE" and time.monotonic() < end:
                time.sleep(3)
                kills += kill_one(cluster, draw.randrange(3))
            cluster.wait("accounts", 600)
        found = entries(Path(names[1]))
        assert_exact(found, 100_000, wanted)
        assert Counter(map(tuple, read_committed(spark, names[3]).collect())) == Counter(found)
        rounds += 1
        print(f"{rounds} files of 100,000 transfers are exact after {kills} kills")
    assert kills >= 4 * minutes
