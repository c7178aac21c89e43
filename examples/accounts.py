"""Books transfers between accounts from a file to a SQL database: each once, and each balance exact, whatever dies.

    squall run examples/accounts.py -- transfers.txt accounts.sqlite state

It teaches state that survives. Each line of the file is a transfer: its id, the two accounts and the amount. `Book` has the
balance of each account as a `ValueState`, the file spout has a position that it can go back to, and `SqlSink` writes the
rows of an epoch in one transaction, after all three were committed together. So end it with `kill -9` in the middle and run
it again: it goes on, and the database has each entry once, with the balance after it. With `--workers 3`, on a cluster,
kill any worker: the others go back to the last commit, too.

With a fourth argument, a Spark sink writes the same entries to a table at this path, once too: each epoch becomes a batch.

The file, of 2,000 transfers, and the tables are made if they are not there. It needs `squall[sql]`; for the fourth argument
also `squall[spark]` and Java.
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


class Transfers(FileSpout):
    """Makes the file if it is not there. Do it in `open`: a topology is also built to be looked at."""

    def open(self, context):
        if not Path(self.path).exists():
            draw = random.Random(1)
            people = ["ada", "bela", "chen", "dora", "emil"]
            lines = [f"t{at} {' '.join(draw.sample(people, 2))} {draw.randint(1, 500)}" for at in range(2000)]
            Path(self.path).write_text("\n".join(lines) + "\n", encoding="utf-8")
        super().open(context)


class Entries(SqlSink):
    """Makes the table if it is not there."""

    def __init__(self, database):
        super().__init__(f"sqlite:///{database}", "entry", ["account", "transfer", "amount", "balance"])
        self.database = database

    def prepare(self, context):
        connection = sqlite3.connect(self.database)
        with connection:
            connection.execute(
                "create table if not exists entry (account text, transfer text, amount integer, balance integer)"
            )
        connection.close()
        super().prepare(context)


def topology(transfers="transfers.txt", database="accounts.sqlite", state="state", table=None):
    transfers, database, state = (Path(path).resolve() for path in (transfers, database, state))
    builder = TopologyBuilder(
        "accounts", conf={"topology.state.path": f"file://{state}", "topology.require": "exactly-once"}
    )
    builder.set_spout("transfers", Transfers(transfers, follow=False))
    builder.set_bolt("split", Split(), parallelism=2).shuffle_grouping("transfers")
    builder.set_bolt("book", Book(), parallelism=2).fields_grouping("split", "account")
    builder.set_bolt("entries", Entries(database)).fields_grouping("book", "account")
    if table is not None:
        from squall_io.spark import SparkSink

        schema = "account string, transfer string, amount bigint, balance bigint"
        sink = SparkSink(str(Path(table).resolve()), schema, batch_interval=2)
        builder.set_bolt("table", sink).fields_grouping("book", "account")
    return builder.build()
