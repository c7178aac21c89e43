"""Amazon's queues and streams. Needs the extra `squall[aws]`."""

from squall_io.aws.kinesis_shards import LostRecords
from squall_io.aws.kinesis_sink import KinesisSink
from squall_io.aws.kinesis_spout import KinesisSpout
from squall_io.aws.sqs_sink import SqsSink
from squall_io.aws.sqs_spout import SqsSpout

__all__ = ["KinesisSink", "KinesisSpout", "LostRecords", "SqsSink", "SqsSpout"]
