"""Redis: streams as streams, keys with values, and entries of streams. Needs the extra `squall[redis]`."""

from squall_io.redis.sink import RedisSink
from squall_io.redis.spout import RedisStreamSpout
from squall_io.redis.stream_sink import RedisStreamSink

__all__ = ["RedisSink", "RedisStreamSink", "RedisStreamSpout"]
