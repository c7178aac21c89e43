"""File systems that a table can lie on: the one that a path names, opened."""

from squall_io.spark.stores.opening import WEBHDFS, open_files
from squall_io.spark.stores.paths import InvalidPath, check_path
from squall_io.spark.stores.renaming import OpenStore

__all__ = ["WEBHDFS", "InvalidPath", "OpenStore", "check_path", "open_files"]
