"""The ledger of `examples/accounts.py`: transfers for it, and whether what it wrote of them is exact."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
from collections import Counter
from pathlib import Path
from typing import Any

from local_cluster import LocalCluster

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
CONF = {"topology.workers": 3, "topology.epoch.secs": 0.2, "topology.max.spout.pending": 100}
PEOPLE = ["ada", "bela", "chen", "dora", "emil"]
Entry = tuple[str, str, int, int]


def write_transfers(path: Path, count: int) -> Counter[str]:
    """Write a file of `count` transfers; return the balances after them."""
    balances: Counter[str] = Counter()
    with path.open("w", encoding="utf-8") as file:
        for at in range(count):
            payer, payee, cents = PEOPLE[at % 5], PEOPLE[(at + 1 + at % 3) % 5], at % 500 + 1
            file.write(f"t{at} {payer} {payee} {cents}\n")
            balances[payer] -= cents
            balances[payee] += cents
    return balances


def entries(path: Path) -> list[Entry]:
    """The rows of the table, in the order in which they were written."""
    return _asked(path, "select account, transfer, amount, balance from entry order by rowid")


def number_of_entries(path: Path) -> int:
    """How many rows the table has; 0 without a table."""
    return sum(count for (count,) in _asked(path, "select count(*) from entry"))


def _asked(path: Path, question: str) -> list[tuple[Any, ...]]:
    if not path.exists():
        return []
    with contextlib.closing(sqlite3.connect(path)) as connection:
        if not connection.execute("select 1 from sqlite_master where name = 'entry'").fetchall():
            return []
        return connection.execute(question).fetchall()


def assert_exact(found: list[Entry], transfers: int, wanted: Counter[str]) -> None:
    """Each entry is there once, and the balance beside it is the sum of the account's entries up to it."""
    assert len(found) == len({(account, transfer) for account, transfer, *_ in found}) == 2 * transfers
    balances: Counter[str] = Counter()
    for account, _, amount, balance in found:
        balances[account] += amount
        assert balance == balances[account]
    assert balances == wanted


def kill_one(cluster: LocalCluster, number: int) -> int:
    """Kill the worker of this number, 0 to 2, if all three run; return the number of kills, 0 or 1."""
    workers = sorted(cluster.workers("accounts"), key=lambda worker: worker.worker)
    pids = [worker.pid for worker in workers if worker.pid]
    if len(pids) != 3:
        return 0
    os.kill(pids[number], signal.SIGKILL)
    return 1
