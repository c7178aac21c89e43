"""The ends of pipes that are files, and tables that Spark writes.

Must not know: topologies.
"""

from __future__ import annotations

from typing import Final

from squall_io.pipes.addresses import PipeAddress
from squall_io.pipes.making import (
    SinkEnd,
    SourceEnd,
    made,
    with_fields,
)

#: What an address begins with if it names a table that Spark writes: `spark+hdfs://`, `spark+file:`.
SPARK: Final = "spark+"


def file_lines(address: PipeAddress) -> SourceEnd:
    from squall_io.files import FileSpout

    return with_fields(made(FileSpout, address, address.path))


def file_folder(address: PipeAddress) -> SinkEnd:
    from squall_io.files import FileSink

    sink = made(FileSink, address, address.path)
    return SinkEnd(sink, sink.fields)


def store_lines(address: PipeAddress) -> SourceEnd:
    from squall_io.spark import HdfsLines

    return with_fields(made(HdfsLines, address, f"{address.scheme}:{address.place}"))


def store_files(address: PipeAddress) -> SinkEnd:
    from squall_io.files import FileSink

    sink = made(FileSink, address, f"{address.scheme}:{address.place}")
    return SinkEnd(sink, sink.fields)


def _spark_path(address: PipeAddress) -> str:
    scheme = address.scheme.removeprefix(SPARK)
    return f"file://{address.path}" if scheme == "file" else f"{scheme}:{address.place}"


def committed_rows(address: PipeAddress) -> SourceEnd:
    from squall_io.spark import CommittedRows

    return with_fields(made(CommittedRows, address, _spark_path(address)))


def spark_table(address: PipeAddress) -> SinkEnd:
    from squall_io.spark import SparkSink

    sink = made(SparkSink, address, _spark_path(address))
    return SinkEnd(sink, tuple(column.name for column in sink.settings.schema.columns))
