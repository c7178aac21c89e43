"""Topologies from two addresses: where rows come from, and where they go."""

from squall_io.pipes.topology import Pipe, topology_of

__all__ = ["Pipe", "topology_of"]
