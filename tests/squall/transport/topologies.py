"""A topology with two streams, for tests of numbering and sending."""

from __future__ import annotations

from topology_api import Fields, Spout, Topology, TopologyBuilder


class _Words(Spout):
    outputs = {"default": Fields("word"), "other": Fields("a", "b")}

    def next_tuple(self) -> None:
        self.finish()


def two_streams() -> Topology:
    """One component, `words`, with the streams `default` and `other`."""
    builder = TopologyBuilder("two-streams")
    builder.set_spout("words", _Words())
    return builder.build()
