"""Squall's spouts and bolts for the outside world: one module or folder for each kind of source and sink.

A connector uses the user's API, the worker's cores without I/O, and its own library. It imports that library only where the
library is used, so `squall_io` can be imported without any connector's library.
"""
