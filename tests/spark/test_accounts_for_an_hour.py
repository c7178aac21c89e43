"""The example of accounts, killed every three seconds for as long as one wants, writes each entry once in two places."""

from __future__ import annotations

import importlib
import random
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from local_cluster import LocalCluster
from squall_io.spark import read_committed
from tests.accounts_ledger import (
    CONF,
    EXAMPLES,
    assert_exact,
    entries,
    kill_one,
    number_of_entries,
    write_transfers,
)
from tests.local_cluster.words_with_state import eventually

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

TRANSFERS = 100_000


def is_active(cluster: LocalCluster) -> bool:
    return cluster.last_status("accounts").state == "ACTIVE"


def has_more(cluster: LocalCluster, database: Path, before: int) -> bool:
    return number_of_entries(database) > before or not is_active(cluster)


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_an_hour_of_kills_every_three_seconds(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """With `--soak 60` an hour, one file of transfers after the other, into a SQL database and a table of Spark.

    A kill also waits for the first commit after the one before: a Java that is started again takes longer than three seconds.
    """
    monkeypatch.syspath_prepend(str(EXAMPLES))
    accounts = importlib.import_module("accounts")
    minutes, draw, kills, rounds = request.config.getoption("--soak"), random.Random(1), 0, 0
    began = time.monotonic()
    end = began + 60 * minutes
    while time.monotonic() < end:
        folder = tmp_path / str(rounds)
        folder.mkdir()
        names = [str(folder / name) for name in ("transfers.txt", "accounts.sqlite", "state", "table")]
        database = Path(names[1])
        wanted = write_transfers(Path(names[0]), TRANSFERS)
        with LocalCluster(processes=True) as cluster:
            cluster.submit(accounts.topology(*names), {**CONF, "topology.epoch.secs": 1})
            while is_active(cluster) and time.monotonic() < end:
                before = number_of_entries(database)
                time.sleep(3)
                eventually(partial(has_more, cluster, database, before), 300)
                kills += kill_one(cluster, draw.randrange(3))
            cluster.wait("accounts", 600)
        found = entries(database)
        assert_exact(found, TRANSFERS, wanted)
        assert Counter(map(tuple, read_committed(spark, names[3]).collect())) == Counter(found)
        rounds += 1
        print(
            f"{time.monotonic() - began:.0f} s, {kills} kills: {rounds} files of {TRANSFERS} transfers exact"
        )
    assert kills >= minutes
