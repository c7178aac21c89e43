"""Replay: the bolts of a topology over history, as a batch job of Spark.

    from squall_io.spark import replay_topology

    with replay_topology(spark, topology, sources={"lines": frame}, outputs=["count"]) as done:
        done["count"].show()

The modules: plan.py decides what runs; tasks.py runs it without Spark, with the worker's own tasks and groupings; sources.py
sends the rows of a source to the tasks, as columns (portions.py); frames.py lets Spark move the tuples between tasks; run.py is
the whole job. Importing this package needs no pyspark.
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
