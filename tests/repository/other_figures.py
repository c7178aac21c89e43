"""Figures in the documents that promise no bound: advice, examples, measurements, and faults that tests make.

Each is a few words of its document that contain the figure. `test_promised_bounds.py` reports a figure that is neither here nor
in `promised_bounds.py`. Must not know: promises.
"""

from __future__ import annotations

from typing import Final

OTHER_FIGURES: Final[dict[str, tuple[str, ...]]] = {
    "docs/cluster.md": (
        "if it has run for more than a second",  # the meaning of a metric
        "on the average of the last ten seconds",
        "a bolt's store is away for ten seconds",  # measured
        "lower the two timeouts of 30 s",
        "every day and after each `squall submit",  # advice
    ),
    "docs/command-line.md": (
        "every two seconds (`--delay SECS`)",
        "calls of more than a second are not measured one by one",
        "GREW is blank below 1 MB",
    ),
    "docs/compiled-core.md": ("one to two minutes of processor time",),
    "docs/guaranteeing-message-processing.md": (
        "again and again for less than half a second each time, or while it gets fewer than 3 tuples",  # what is not covered
    ),
    "docs/http.md": (
        "looks for new ones every 5 s",  # an interval
        "after `Retry-After` (at most 300 s)",
    ),
    "docs/kafka.md": ("a task asks the group once a second to store what has changed",),  # an interval
    "docs/kafka-sink.md": (
        "`waiting for Kafka at kafka1:9092 for 12 s: ...`",
        "within `message.timeout.ms` (5 minutes)",  # librdkafka's
        "`transaction.timeout.ms` (60 s)",
    ),
    "docs/redis.md": (
        "`client-query-buffer-limit` (1 GB)",  # of Redis
        "it can lose a second of them when the host fails",  # Redis says so
    ),
    "docs/kinesis.md": (
        "keeps records for a day",  # Amazon's
        "1,000 records each time, and else once a second",  # an interval
        "share five reads and 2 MB a second",  # Amazon's
        "has more than 1 MiB with its key",  # Amazon's
    ),
    "docs/security.md": (
        "(1,000 nodes take 0.2 s)",
        "keep a peer out for longer than 10 s",  # asserted by the test that the row names
        "got in within 4 s, usually at once; the tests allow 10 s",  # measured
        "within some 10 ms while the code",
        "A worker that cannot open a file for 3 s nevertheless ends",
    ),
    "docs/spark-guarantees.md": (
        "files above 5 GB are copied that way everywhere",  # the most that one call of S3 copies
        "should agree to about a second (NTP)",
        "the NameNode is frozen for 30 s, or killed",
        "whose lease lasts for an hour",
        "is frozen for more than a day",
    ),
    "docs/spark-reprocessing.md": (
        "merge rows of one hour",
        "in the table about a second after its file appears",  # measured; test_soon_committed.py asserts 1.5 s
    ),
    "docs/sqs.md": (
        "SQS ends that 12 hours after",  # Amazon's
        "one call every two seconds and task",  # an interval
        "deduplication id within five minutes",  # Amazon's
    ),
    "docs/spark-sink.md": (
        "a bundle of 600 MB as its dependency",  # measured
        "run a sink with 12 MB instead",  # measured
        "should set `until` at least a minute in the past",
        "epochs of one second would make 86,400 batches a day",
        "`waiting for storage for 40 s: ...`",
        "Spark's default is 1 GB",
        "three replicas and 128 MB",
        "names a bundle of 600 MB as its dependency. The tests run a sink with 12 MB instead",  # measured
    ),
    "docs/spark.md": ("how many rows the example's bolt writes for one hour",),
    "docs/state.md": (
        "of a million in some 30 ms",  # measured
        "calls `on_timer` for this key in 60 seconds",  # an example
    ),
    "docs/submitting.md": ("(for at most 60 seconds here;",),
}
