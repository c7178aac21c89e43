"""NATS JetStream: a spout of streams and a sink to subjects (part of Squall). Needs the extra `nats`."""

from squall_io.nats.sink import NatsSink
from squall_io.nats.spout import NatsSpout

__all__ = ["NatsSink", "NatsSpout"]
