"""Amazon's queues and streams. Needs the extra `squall[aws]`."""

from squall_io.aws.sqs_sink import SqsSink
from squall_io.aws.sqs_spout import SqsSpout

__all__ = ["SqsSink", "SqsSpout"]
