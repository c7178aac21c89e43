"""Spark: topologies write their rows to HDFS exactly once per batch, and stored rows are read, reprocessed and replayed.

This module only has names, each loaded at its first use. Importing it needs neither pyspark nor pyarrow nor Java, so a
topology with a `SparkSink` can be built and submitted where Spark is not installed.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from squall_io.spark.reading.committed import read_committed
    from squall_io.spark.reading.file_list import committed_files
    from squall_io.spark.replay import replay_topology
    from squall_io.spark.retention.holding import hold_table
    from squall_io.spark.sink.bolt import SparkSink
    from squall_io.spark.source.registering import register
    from squall_io.spark.spouts.committed_rows import CommittedRows
    from squall_io.spark.spouts.lines import HdfsLines

__all__ = [
    "CommittedRows",
    "HdfsLines",
    "SparkSink",
    "committed_files",
    "hold_table",
    "read_committed",
    "register",
    "replay_topology",
]

_MODULES: Final = {
    "CommittedRows": "spouts.committed_rows",
    "HdfsLines": "spouts.lines",
    "SparkSink": "sink.bolt",
    "committed_files": "reading.file_list",
    "hold_table": "retention.holding",
    "read_committed": "reading.committed",
    "register": "source.registering",
    "replay_topology": "replay",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
