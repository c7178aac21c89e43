"""Books transfers between accounts from a file to a SQL database: each once, and each balance exact, whatever dies.

    squall run examples/accounts.py -- transfers.txt accounts.sqlite state

It teaches state that survives. Each line of the file is a transfer: its id, the two accounts and the amount. `Book` has the
balance of each account as a `ValueState`, the file spout has a position that it can go back to, and `SqlSink` writes the
rows of an epoch in one transaction, after all three were committed together. So end it with `kill -9` in the middle and run
it again: it goes on, and the database has each entry once, with the balance after it. With `--workers 3`, on a cluster,
kill any worker: the others go back to the last commit, too.

The file, of 2,000 transfers, and the table are made if they are not there. It needs `squall[sql]`.
"""

import random
import sqlite3
from pathlib import Path

from squall_io.files import FileSpout
from squall_io.sql import SqlSink
from topology_api import Bolt, FailTuple, Fields, StatefulBolt, TopologyBuilder, ValueState


class Split(Bolt):
    """Makes two entries of each transfer."""

    outputs = Fields("account", "transfer", "amount")

    def execute(self, tup):
        try:
            transfer, payer, payee, amount = tup["line"].split()
            cents = int(amount)
        except ValueError:
            raise FailTuple(f"{tup['line']!r} is no transfer") from None
        self.emit((payer, transfer, -cents))
        self.emit((payee, transfer, cents))


class Book(StatefulBolt):
    """Adds each entry to the balance of its account."""

    key = "account"
    outputs = Fields("account", "transfer", "amount", "balance")
    balance = ValueState(int, default=0)

    def execute(self, tup):
        self.balance.value += tup["amount"]
        self.emit((tup["account"], tup["transfer"], tup["amount"], self.balance.value))


def make_inputs(transfers, database):
    """Write a file of transfers, and make the table of entries, if they are not there."""
    if not transfers.exists():
        draw = random.Random(1)
        people = ["ada", "bela", "chen", "dora", "emil"]
        lines = [
            f"t{number} {' '.join(draw.sample(people, 2))} {draw.randint(1, 500)}" for number in range(2000)
        ]
        transfers.write_text("\n".join(lines) + "\n", encoding="utf-8")
    with sqlite3.connect(database) as connection:
        connection.execute(
            "create table if not exists entry (account text, transfer text, amount integer, balance integer)"
        )
    connection.close()


def topology(transfers="transfers.txt", database="accounts.sqlite", state="state"):
    transfers, database, state = (Path(path).resolve() for path in (transfers, database, state))
    make_inputs(transfers, database)
    builder = TopologyBuilder(
        "accounts", conf={"topology.state.path": f"file://{state}", "topology.require": "exactly-once"}
    )
    builder.set_spout("transfers", FileSpout(transfers, follow=False))
    builder.set_bolt("split", Split(), parallelism=2).shuffle_grouping("transfers")
    builder.set_bolt("book", Book(), parallelism=2).fields_grouping("split", "account")
    sink = SqlSink(f"sqlite:///{database}", "entry", ["account", "transfer", "amount", "balance"])
    builder.set_bolt("entries", sink).fields_grouping("book", "account")
    return builder.build()
