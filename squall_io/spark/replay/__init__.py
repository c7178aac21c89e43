"""Replay: the bolts of a topology over history, as a batch job of Spark.

    from squall_io.spark import replay_topology

    with replay_topology(spark, topology, sources={"lines": frame}, outputs=["count"]) as done:
        done["count"].show()

Which modules do what: plan.py decides what is run; tasks.py runs it, with the worker's own tasks and groupings and without
Spark; frames.py lets Spark move what goes between them; run.py is the job. Importing this needs no
pyspark.
"""

from squall_io.spark.replay.problems import CannotReplay, ReplayFailed, TooManyErrors
from squall_io.spark.replay.records import ComponentTotals
from squall_io.spark.replay.run import Replayed, replay_topology

__all__ = [
    "CannotReplay",
    "ComponentTotals",
    "ReplayFailed",
    "Replayed",
    "TooManyErrors",
    "replay_topology",
]
