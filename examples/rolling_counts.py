"""Rolling counts: how often did each sensor report within the last seconds?

    squall run --seconds 10 examples/rolling_counts.py

It teaches ticks. `tick()` is called every `tick_interval` seconds, between two calls of `execute`, so no lock is
needed. The window is a ring of slots, one per tick: a tick emits the sums and clears the oldest slot. The runtime controls the
time (by ticks, and by the seconds that `next_tuple` returns) and there is no `time.sleep`, so the same topology runs on
simulated time in a test.

The source never ends; stop it by Ctrl-C or by `--seconds`.
"""

from collections import Counter

from topology_api import Bolt, Fields, Spout, TopologyBuilder


class Sensors(Spout):
    """`north` reports four times a second, `south` once."""

    outputs = Fields("sensor")

    def open(self, context):
        self.number = 0

    def next_tuple(self):
        self.emit(("north",), message_id=self.number)
        if self.number % 4 == 0:
            self.emit(("south",), message_id=self.number)
        self.number += 1
        return 0.25  # seconds until the next call


class RollingCount(Bolt):
    outputs = Fields("sensor", "count")
    tick_interval = 1.0

    def __init__(self, window):
        self.window = window  # ticks

    def prepare(self, context):
        self.slots = [Counter() for _ in range(self.window)]
        self.current = 0

    def execute(self, tup):
        self.slots[self.current][tup["sensor"]] += 1

    def tick(self):
        for sensor, count in sorted(sum(self.slots, Counter()).items()):
            self.emit((sensor, count))
        self.current = (self.current + 1) % self.window
        self.slots[self.current] = Counter()


class Show(Bolt):
    def execute(self, tup):
        print(f"{tup['sensor']}: {tup['count']} in the window")


def topology(window="5"):
    builder = TopologyBuilder("rolling-counts")
    sensors = builder.set_spout("sensors", Sensors())
    counts = builder.set_bolt("counts", RollingCount(int(window)), parallelism=2)
    counts.fields_grouping(sensors, "sensor")
    builder.set_bolt("show", Show()).global_grouping(counts)
    return builder.build()
