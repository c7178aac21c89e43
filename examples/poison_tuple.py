"""A poison tuple: one record that no bolt can process, and how it is handled.

    squall run --allow-failures examples/poison_tuple.py

It teaches the effects of an error. The exception fails only that tuple, and is reported with the component, the task, the tuple
and your own line; the task lives on and the other tuples flow. The runtime emits the record again as often as `replay` says.
After the last replay, the spout's `fail` is called, and the dead letters get the record with its failure, for a person to
inspect. Without `--allow-failures` the command ends with status 1, because not everything was processed.
"""

from topology_api import Bolt, Fields, Replay, Spout, TopologyBuilder

RECORDS = ["temperature=21.5", "temperature=19", "temperature=warm", "humidity=40"]


class Records(Spout):
    outputs = Fields("record")
    replay = Replay(max_attempts=3, first_delay=0.1)

    def open(self, context):
        self.records = iter(RECORDS)

    def next_tuple(self):
        record = next(self.records, None)
        if record is None:
            return self.finish()
        self.emit((record,), message_id=record)

    def fail(self, record, failure):
        print(f"given up after {failure.attempts} attempts: {record!r}")


class Parse(Bolt):
    outputs = Fields("name", "value")

    def execute(self, tup):
        name, _, value = tup["record"].partition("=")
        self.emit((name, float(value)))  # float("warm") raises


class Show(Bolt):
    def execute(self, tup):
        print(f"{tup['name']} is {tup['value']:g}")


class Morgue(Bolt):
    outputs = Fields("record", "why")

    def execute(self, tup):
        (record,) = tup["values"]  # the values that the spout emitted
        print(f"dead letter: {record!r}: {tup['failure'].component} said {tup['failure'].error}")
        self.emit((record, tup["failure"].error))


def topology():
    builder = TopologyBuilder("poison-tuple")
    records = builder.set_spout("records", Records())
    parse = builder.set_bolt("parse", Parse(), parallelism=2).shuffle_grouping(records)
    builder.set_bolt("show", Show()).shuffle_grouping(parse)
    builder.set_bolt("morgue", Morgue()).dead_letters(records)
    return builder.build()
