"""RabbitMQ: a spout of queues and a sink to exchanges (part of Squall). Needs the extra `rabbitmq`."""

from squall_io.rabbitmq.sink import RabbitSink
from squall_io.rabbitmq.spout import RabbitSpout

__all__ = ["RabbitSink", "RabbitSpout"]
