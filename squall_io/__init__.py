"""Squall's spouts and bolts for the outside world: one module or folder for each kind of source and sink.

A connector knows the user's API, the worker's cores without I/O, and its own library, which it imports only
where it is used: importing `squall_io` needs none of them installed.
"""
