"""File systems that a table can lie on: the one that a path names, opened."""

from squall_io.spark.stores.opening import WEBHDFS, Store, open_files
from squall_io.spark.stores.paths import InvalidPath, check_path

__all__ = ["WEBHDFS", "InvalidPath", "Store", "check_path", "open_files"]
