"""Files of this machine as streams. Needs no further library, no Spark and no Java."""

from squall_io.files.spout import FileSpout

__all__ = ["FileSpout"]
