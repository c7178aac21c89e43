"""Kafka: topics as streams. Needs the extra `squall[kafka]`."""

from squall_io.kafka.sink import KafkaSink
from squall_io.kafka.spout import KafkaSpout

__all__ = ["KafkaSink", "KafkaSpout"]
