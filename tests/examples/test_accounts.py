"""The example of accounts keeps its promise while its workers are killed: each entry once, each balance exact."""

from __future__ import annotations

import importlib
import os
import signal
import sqlite3
import sys
from collections import Counter
from pathlib import Path

import pytest

from local_cluster import LocalCluster
from tests.local_cluster.words_with_state import eventually

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
CONF = {"topology.workers": 3, "topology.epoch.secs": 0.2, "topology.max.spout.pending": 100}
TRANSFERS = 15_000

pytestmark = pytest.mark.slow


def entries(path: Path) -> list[tuple[str, str, int, int]]:
    """The rows of the table, in the order in which they were written."""
    if not path.exists():
        return []
    with sqlite3.connect(path) as connection:
        if not connection.execute("select 1 from sqlite_master where name = 'entry'").fetchall():
            return []
        rows = connection.execute(
            "select account, transfer, amount, balance from entry order by rowid"
        ).fetchall()
    connection.close()
    return rows


def test_each_balance_is_exact_whichever_worker_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    accounts = importlib.import_module("accounts")
    transfers, database = tmp_path / "transfers.txt", tmp_path / "accounts.sqlite"
    people = ["ada", "bela", "chen", "dora", "emil"]
    lines = [
        f"t{at} {people[at % 5]} {people[(at + 1 + at % 3) % 5]} {at % 500 + 1}" for at in range(TRANSFERS)
    ]
    transfers.write_text("\n".join(lines) + "\n", encoding="utf-8")
    wanted: Counter[str] = Counter()
    for line in lines:
        _, payer, payee, cents = line.split()
        wanted[payer] -= int(cents)
        wanted[payee] += int(cents)

    kills = 0
    with LocalCluster(processes=True) as cluster:
        cluster.submit(accounts.topology(str(transfers), str(database), str(tmp_path / "state")), CONF)
        while cluster.last_status("accounts").state == "ACTIVE" and kills < 8:
            before = len(entries(database))
            eventually(
                lambda before=before: (  # type: ignore[misc]
                    len(entries(database)) > before or cluster.last_status("accounts").state != "ACTIVE"
                )
            )
            workers = sorted(cluster.workers("accounts"), key=lambda worker: worker.worker)
            pids = [worker.pid for worker in workers if worker.pid]
            if len(pids) == 3:
                os.kill(pids[kills % 3], signal.SIGKILL)
                kills += 1
        cluster.wait("accounts", 120)
    found = entries(database)
    assert kills >= 3, "the topology was faster than the kills: give it more transfers"
    assert len(found) == len({(account, transfer) for account, transfer, *_ in found}) == 2 * TRANSFERS
    balances: Counter[str] = Counter()
    for account, _, amount, balance in found:
        balances[account] += amount
        assert balance == balances[account]
    assert balances == wanted
    sys.modules.pop("accounts", None)
