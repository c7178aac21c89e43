"""Writes rows into SQLite, each batch in one transaction.

    squall run examples/batches_to_sqlite.py -- /tmp/readings.sqlite

It teaches the batch bolt, and how to deal with replays. A database works best with a thousand rows at a time, and a spout waits
for acks; so a batch is executed when it is full, when `batch_interval` has passed, when the spouts wait at their pending limit,
and at the end of the input. All its tuples are acked when `execute_batch` returns, and fail when it raises.

A tuple that was written may arrive again, if its ack was lost or a different branch of its tree failed. So each row has a key,
and a second write replaces the row by an equal one. `threaded` gives the task a thread of its own: SQLite blocks, and the other
tasks of the worker must not wait for it.
"""

import sqlite3

from topology_api import BatchBolt, Fields, Spout, TopologyBuilder


class Readings(Spout):
    outputs = Fields("number", "celsius")

    def __init__(self, count):
        self.count = count

    def open(self, context):
        self.number = 0

    def next_tuple(self):
        if self.number == self.count:
            return self.finish()
        self.emit((self.number, 20 + self.number % 7 / 2), message_id=self.number)
        self.number += 1


class ToSqlite(BatchBolt):
    threaded = True
    batch_size = 1000
    batch_interval = 0.5

    def __init__(self, path):
        self.path = path

    def prepare(self, context):
        self.database = sqlite3.connect(self.path)
        with self.database:
            self.database.execute(
                "create table if not exists reading (number integer primary key, celsius real)"
            )
        self.batches = context.counter("batches")

    def execute_batch(self, tups):
        with self.database:  # one transaction: the whole batch or nothing
            self.database.executemany("replace into reading values (?, ?)", (tup.values for tup in tups))
        self.batches.add()

    def cleanup(self):
        self.database.close()


def topology(path="readings.sqlite", count="5000"):
    builder = TopologyBuilder("batches-to-sqlite")
    readings = builder.set_spout("readings", Readings(int(count)))
    builder.set_bolt("sqlite", ToSqlite(path)).shuffle_grouping(readings)
    return builder.build()
