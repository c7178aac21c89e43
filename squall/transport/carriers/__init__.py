"""Carriers move messages between workers: ZeroMQ sockets, or memory. Everything else in the transport does no I/O (Squall)."""
