"""The file systems that can hold a table: those of `squall.stores`, and Hadoop's client in a JVM. `open_files` opens the file
system that a path names."""

from squall_io.spark.stores.opening import S3_ENDPOINT, WEBHDFS, open_files

__all__ = ["S3_ENDPOINT", "WEBHDFS", "open_files"]
