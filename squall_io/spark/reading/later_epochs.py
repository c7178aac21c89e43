"""Counts the rows that a table has of the epochs of a sink after a certain one: they come again if a topology goes back to it.

Must not know: which epochs are kept, commands.
"""

from __future__ import annotations

from dataclasses import dataclass

from squall.stores.files import FilesError
from squall.stores.opening import default_webhdfs
from squall_io.spark.manifest.envelopes import UnreadableRecord
from squall_io.spark.manifest.layout import epoch_batch
from squall_io.spark.manifest.state import read_state
from squall_io.spark.sink.settings import SinkSettings
from squall_io.spark.stores import WEBHDFS, open_files


@dataclass(frozen=True)
class LaterRows:
    """The batches of later epochs in a table."""

    path: str
    batches: int
    rows: int
    #: The first and the last of these epochs; 0 if there is none.
    first: int
    last: int


def rows_after(settings: SinkSettings, lineage: str, component: str, epoch: int) -> LaterRows | None:
    """Return what the table of a sink has of later epochs than `epoch`; None if it cannot be read from here.

    lineage: the name of the state in names of batches. No Java is started: HDFS is read through WebHDFS.
    """
    path, conf = settings.path, dict(settings.conf)
    if WEBHDFS not in conf and (address := default_webhdfs(path)) is not None:
        conf[WEBHDFS] = address
    writer_id = epoch_batch(lineage, component, epoch).writer_id
    try:
        with open_files(path, conf=conf) as files:
            counted = read_state(files).counted
    except (FilesError, UnreadableRecord, OSError):
        return None
    later = [
        entry for batch, entry in counted.items() if batch.writer_id == writer_id and batch.number > epoch
    ]
    numbers = [entry.batch.number for entry in later]
    return LaterRows(
        path,
        len(later),
        sum(entry.rows for entry in later),
        min(numbers, default=0),
        max(numbers, default=0),
    )
