"""HTTP: webhooks as a stream, and rows as POSTs. The sink needs the extra `squall[http]`."""

from squall_io.http.sink import HttpSink
from squall_io.http.spout import HttpSpout

__all__ = ["HttpSink", "HttpSpout"]
