"""Files of this machine as streams, and streams as files. Needs no further library, no Spark and no Java."""

from squall_io.files.sink import FileSink
from squall_io.files.spout import FileSpout

__all__ = ["FileSink", "FileSpout"]
