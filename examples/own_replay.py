"""A reliable spout that replays by itself.

    squall run --allow-failures examples/own_replay.py

It teaches Storm's way: with `replay = None` the runtime keeps nothing, `fail` is called on the first failure, and the spout
decides what to do. That suits a source that can read any message again, such as a log with offsets. This spout keeps the
numbers of pending lines, reads a failed line again (before new lines), and gives the line up after `attempts`. It finishes only
when no line is pending. For the runtime, each of these failures is final, so the command needs `--allow-failures`.

The bolt fails every third line the first time, as an overloaded service would.
"""

from topology_api import Bolt, FailTuple, Fields, Spout, TopologyBuilder

LINES = [f"line {number}" for number in range(10)]


class Log(Spout):
    """A list that is read by position, as a log is read by offset."""

    outputs = Fields("line", "attempt")
    replay = None

    def __init__(self, lines, attempts):
        self.lines = lines
        self.attempts = attempts

    def open(self, context):
        self.position = 0
        self.again = []  # positions that failed
        self.under_way = {}  # position -> attempt
        self.given_up = context.counter("given up")

    def next_tuple(self):
        if self.again:
            self.read(self.again.pop(0))
        elif self.position < len(self.lines):
            self.read(self.position)
            self.position += 1
        elif not self.under_way:
            self.finish()

    def read(self, position):
        self.under_way[position] = attempt = self.under_way.get(position, 0) + 1
        self.emit((self.lines[position], attempt), message_id=position)

    def ack(self, position):
        del self.under_way[position]

    def fail(self, position, failure):
        if self.under_way[position] < self.attempts:
            self.again.append(position)
            return
        del self.under_way[position]
        self.given_up.add()
        print(f"gave up {self.lines[position]!r}: {failure.error}")


class Store(Bolt):
    outputs = Fields("line", "attempt")

    def execute(self, tup):
        line, attempt = tup
        if attempt == 1 and int(line.split()[1]) % 3 == 0:
            raise FailTuple("overloaded")  # fails the tuple without an error report
        print(f"stored {line!r} at attempt {attempt}")
        self.emit((line, attempt))


def topology(attempts="3"):
    builder = TopologyBuilder("own-replay")
    log = builder.set_spout("log", Log(LINES, int(attempts)))
    builder.set_bolt("store", Store(), parallelism=2).shuffle_grouping(log)
    return builder.build()
