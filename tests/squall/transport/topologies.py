"""Topologies of one component, for tests of numbering and sending."""

from __future__ import annotations

from topology_api import Fields, Spout, Topology, TopologyBuilder


class _Words(Spout):
    outputs = {"default": Fields("word"), "other": Fields("a", "b")}

    def next_tuple(self) -> None:
        self.finish()


class _Many(Spout):
    outputs = {f"s{number}": Fields("word") for number in range(5_000)}

    def next_tuple(self) -> None:
        self.finish()


def two_streams() -> Topology:
    """One component, `words`, with the streams `default` and `other`."""
    return _alone("words", _Words())


def many_streams() -> Topology:
    """One component, `many`, with 5,000 streams."""
    return _alone("many", _Many())


def _alone(name: str, spout: Spout) -> Topology:
    builder = TopologyBuilder(f"only-{name}")
    builder.set_spout(name, spout)
    return builder.build()
