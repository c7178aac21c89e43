"""Counts the words of a file: the first topology to read.

    squall run examples/word_count.py -- README.md
    squall submit examples/word_count.py --wait    # to a cluster, where it counts the words of this file

It teaches the three parts of every topology. A spout reads a source and emits tuples; a bolt takes tuples and may emit more
tuples; groupings say which task of a bolt gets a tuple. Here any task of `split` may take a line, but all tuples of one word go
to the same task of `count`, because the counts would be wrong otherwise.

Each line has a message id, so its tree is tracked: either the line and its words are all processed, or the line is emitted
again.
"""

from topology_api import Bolt, Fields, Spout, TopologyBuilder


class Lines(Spout):
    outputs = Fields("line")

    def __init__(self, path):  # runs where the topology is built; the instance is pickled
        self.path = path

    def open(self, context):  # runs once in the task, before the first next_tuple
        # On a cluster this is a file of the task's host. This example file is there too, since it is sent with the topology.
        self.file = open(self.path or __file__, encoding="utf-8")
        self.lines = enumerate(self.file)

    def next_tuple(self):  # called repeatedly; emitting nothing is fine
        numbered = next(self.lines, None)
        if numbered is None:
            return self.finish()  # this source has ended (optional: most never do)
        number, line = numbered
        self.emit((line,), message_id=number)  # with a message id: tracked, acked or failed

    def close(self):
        self.file.close()


class Split(Bolt):
    outputs = Fields("word")

    def execute(self, tup):
        for word in tup["line"].split():
            self.emit((word,))  # anchored to tup; tup is acked when execute returns


class Count(Bolt):
    outputs = Fields("word", "count")

    def prepare(self, context):
        self.counts = {}

    def execute(self, tup):
        word = tup["word"]
        self.counts[word] = count = self.counts.get(word, 0) + 1
        self.emit((word, count))


def topology(path=None):
    builder = TopologyBuilder("word-count")
    builder.set_spout("lines", Lines(path))
    builder.set_bolt("split", Split(), parallelism=2).shuffle_grouping("lines")
    builder.set_bolt("count", Count(), parallelism=2).fields_grouping("split", "word")
    return builder.build()
