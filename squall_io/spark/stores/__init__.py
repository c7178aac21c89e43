"""The file systems that can hold a table. `opening.open_files` opens the file system that a path names."""

from squall_io.spark.manifest.files import OpenStore
from squall_io.spark.stores.opening import WEBHDFS, open_files
from squall_io.spark.stores.paths import InvalidPath, check_path

__all__ = ["WEBHDFS", "InvalidPath", "OpenStore", "check_path", "open_files"]
