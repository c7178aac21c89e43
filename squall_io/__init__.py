"""Squall's spouts and bolts for the outside world: one module or folder for each kind of source and sink.

A connector knows the user's API, the worker's cores without I/O, and its own library. It imports that library only where it
is used, so `squall_io` can be imported without any of these libraries.
"""
