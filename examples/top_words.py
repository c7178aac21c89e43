"""The usual first word counter: reads a file, normalises and counts its words, and prints the top ten.

    squall run examples/top_words.py -- README.md

It teaches the end of a finite source. When all lines are processed, every task of `count` gets `end_of_input` and emits its
counts; after all of them, the only task of `top` gets `end_of_input` and prints the table. A topology whose source never ends
would use ticks instead: see rolling_counts.py.
"""

import re
from collections import Counter

from topology_api import Bolt, Fields, Spout, TopologyBuilder


class File(Spout):
    outputs = Fields("line")

    def __init__(self, path):
        self.path = path

    def open(self, context):
        self.file = open(self.path, encoding="utf-8", errors="replace")

    def next_tuple(self):
        line = self.file.readline()
        if not line:
            return self.finish()
        self.emit((line,), message_id=self.file.tell())

    def close(self):
        self.file.close()


class Normalise(Bolt):
    """Words in lower case, without the punctuation around them."""

    outputs = Fields("word")

    @staticmethod
    def words(line):
        return re.findall(r"[^\W\d_]+", line.casefold())

    def execute(self, tup):
        for word in self.words(tup["line"]):
            self.emit((word,))


class Count(Bolt):
    outputs = Fields("word", "count")

    def prepare(self, context):
        self.counts = Counter()

    def execute(self, tup):
        self.counts[tup["word"]] += 1

    def end_of_input(self):
        for pair in self.counts.items():
            self.emit(pair)


class Top(Bolt):
    outputs = Fields("rank", "word", "count")

    def __init__(self, size):
        self.size = size

    def prepare(self, context):
        self.counts = {}

    def execute(self, tup):
        self.counts[tup["word"]] = tup["count"]

    def end_of_input(self):
        by_count = sorted(self.counts.items(), key=lambda pair: (-pair[1], pair[0]))
        for rank, (word, count) in enumerate(by_count[: self.size], 1):
            print(f"{rank:3}  {count:7,}  {word}")
            self.emit((rank, word, count))


def topology(path="README.md", size="10"):  # arguments of the command line are strings
    builder = TopologyBuilder("top-words")
    lines = builder.set_spout("lines", File(path))
    words = builder.set_bolt("normalise", Normalise(), parallelism=2).shuffle_grouping(lines)
    counts = builder.set_bolt("count", Count(), parallelism=4).fields_grouping(words, "word")
    builder.set_bolt("top", Top(int(size))).global_grouping(counts)
    return builder.build()
