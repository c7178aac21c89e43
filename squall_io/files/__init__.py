"""Files of this machine as streams, and streams as files, of this machine or on HDFS and S3. On this machine it needs no
further library, no Spark and no Java."""

from squall_io.files.sink import FileSink
from squall_io.files.spout import FileSpout

__all__ = ["FileSink", "FileSpout"]
