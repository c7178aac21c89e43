"""Components as a script defines them: their classes travel in the pickle, and what these use of ours by its name.

Classes that a function makes are pickled as those of a script (`__main__`) are. Must not know: how they are pickled.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import topology_api
from local_cluster.testing import TICK, Pause, ScriptedSpout, complete_topology, run_bolt
from squall_io.spark import CommittedRows, HdfsLines, SparkSink, read_committed
from topology_api import (
    BatchBolt,
    Bolt,
    Context,
    FailTuple,
    Failure,
    Fields,
    Grouping,
    Replay,
    Spout,
    Stream,
    Tuple,
)


def script_components() -> dict[str, Any]:
    """Instances of classes that no module has."""

    class Words(Spout):
        outputs = {"default": Fields("word"), "straight": Stream("x", direct=True)}
        replay = Replay(2)

        def open(self, context: Context) -> None:
            self.left = ["to", "be", "or"]

        def next_tuple(self) -> None:
            if not self.left:
                return self.finish()
            return self.emit((self.left.pop(0),), message_id=1)

        def fail(self, message_id: object, failure: Failure) -> None:
            raise topology_api.SquallError(f"{failure.reason} {TICK} {Pause(1)}")

    class Upper(Bolt):
        outputs = Fields("word")

        def execute(self, tup: Tuple) -> None:
            if tup["word"] == "be":
                raise FailTuple("it is to be")
            self.emit((tup["word"].upper(),))

    class Gather(BatchBolt):
        batch_size = 3

        def execute_batch(self, tups: Sequence[Tuple]) -> None:
            assert all(isinstance(each, Tuple) for each in tups)

    class First(Grouping):
        def choose(self, values: tuple[object, ...]) -> Sequence[int]:
            return []

    class Sink(SparkSink):
        pass

    class Others(Bolt):
        def execute(self, tup: Tuple) -> None:
            self.used = (read_committed, complete_topology, run_bolt, ScriptedSpout, HdfsLines, CommittedRows)

    return {
        "spout": Words(),
        "bolt": Upper(),
        "batch bolt": Gather(),
        "grouping": First(),
        "sink": Sink("/tables/words", "word string"),
        "others": Others(),
    }
