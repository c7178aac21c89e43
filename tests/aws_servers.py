"""SQS and Kinesis for tests: moto as a process on the loopback, which keeps all in memory (`tests/aws_moto.py`), behind a door
that tests kill and freeze (`tests/aws_door.py`).

Where boto3 or moto is missing, the tests are skipped; with CI=true they fail.
"""

from __future__ import annotations

import importlib.util
import itertools
import json
import os
import socket
import sys
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.hdfs_servers import missing
from tests.killable import Killable
from tests.s3_servers import KEYS
from tests.zookeeper_servers import eventually, free_ports

START_SECS = 120.0
REGION = "us-east-1"
_names = itertools.count(1)


class AwsServer(Killable):
    """The door of moto: `kill`, `freeze` and `start` are about the door, so that what moto has stays."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / "door.log")
        self._moto = Killable(folder / "moto.log")
        self._port, self._behind = free_ports(2)
        self.url = f"http://127.0.0.1:{self._port}"
        self._clients: dict[str, Any] = {}

    def begin(self) -> None:
        """Start moto and the door."""
        for name in ("boto3", "moto", "flask"):
            if importlib.util.find_spec(name) is None:
                missing(f"{name} is not installed: pip install '.[dev]'")
        self._moto.launch([sys.executable, str(Path(__file__).with_name("aws_moto.py")), str(self._behind)])
        eventually(lambda: _answers(self._moto, self._behind), START_SECS, every=0.1)
        self.start()

    def start(self) -> None:
        """Open the door."""
        script = str(Path(__file__).with_name("aws_door.py"))
        self.launch([sys.executable, "-S", "-E", script, str(self._port), str(self._behind)])
        eventually(lambda: _answers(self, self._port), START_SECS, every=0.02)

    def end(self) -> None:
        """End both."""
        self.kill()
        self._moto.kill()

    def client(self, service: str) -> Any:
        """boto3's client of a service, which does not go through the door."""
        if service not in self._clients:
            import boto3

            self._clients[service] = boto3.client(
                service,
                region_name=REGION,
                endpoint_url=f"http://127.0.0.1:{self._behind}",
                aws_access_key_id=KEYS["AWS_ACCESS_KEY_ID"],
                aws_secret_access_key=KEYS["AWS_SECRET_ACCESS_KEY"],
            )
        return self._clients[service]

    def fails(self, *faults: tuple[str, str]) -> None:
        """Let operations fail, each fault once: its name, and how: see `aws_moto.Server`."""
        self._ask("/faults", json.dumps(faults).encode())

    def faults(self) -> list[list[str]]:
        """The faults that no operation has met."""
        found: list[list[str]] = json.loads(self._ask("/faults"))
        return found

    def requests(self) -> list[str]:
        """The operations since the last call."""
        found: list[str] = json.loads(self._ask("/requests"))
        return found

    def _ask(self, path: str, data: bytes | None = None) -> bytes:
        request = urllib.request.Request(f"http://127.0.0.1:{self._behind}{path}", data)
        with urllib.request.urlopen(request, timeout=30) as answer:
            body: bytes = answer.read()
        return body

    # SQS.

    def queue(self, fifo: bool = False, **attributes: str) -> str:
        """Make a queue; return its name."""
        name = f"queue-{os.getpid()}-{next(_names)}{'.fifo' if fifo else ''}"
        self.make_queue(name, attributes)
        return name

    def make_queue(self, name: str, attributes: Mapping[str, str] | None = None) -> None:
        """Make a queue of this name."""
        fifo = {"FifoQueue": "true"} if name.endswith(".fifo") else {}
        self.client("sqs").create_queue(QueueName=name, Attributes={**fifo, **(attributes or {})})

    def queue_url(self, name: str) -> str:
        """The URL of a queue."""
        url: str = self.client("sqs").get_queue_url(QueueName=name)["QueueUrl"]
        return url

    def send(self, queue: str, bodies: Iterable[str], **more: Any) -> None:
        """Send messages."""
        url, entries = self.queue_url(queue), list[dict[str, Any]]()
        for at, body in enumerate(bodies):
            ids = {"MessageDeduplicationId": f"{next(_names)}-{at}"} if queue.endswith(".fifo") else {}
            entries.append({"Id": str(at), "MessageBody": body, **ids, **more})
        for at in range(0, len(entries), 10):
            answer = self.client("sqs").send_message_batch(QueueUrl=url, Entries=entries[at : at + 10])
            assert not answer.get("Failed"), answer["Failed"]

    def bodies(self, queue: str) -> list[str]:
        """Receive and delete all messages; return their bodies."""
        url, sqs, found = self.queue_url(queue), self.client("sqs"), list[str]()
        while messages := sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages"):
            found += [message["Body"] for message in messages]
            entries = [
                {"Id": str(at), "ReceiptHandle": each["ReceiptHandle"]} for at, each in enumerate(messages)
            ]
            sqs.delete_message_batch(QueueUrl=url, Entries=entries)
        return found

    def left(self, queue: str) -> int:
        """How many messages a queue has, those in flight included."""
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        found = self.client("sqs").get_queue_attributes(QueueUrl=self.queue_url(queue), AttributeNames=names)
        return sum(int(found["Attributes"][name]) for name in names)

    # Kinesis.

    def stream(self, shards: int = 1) -> str:
        """Make a stream; return its name."""
        name = f"stream-{os.getpid()}-{next(_names)}"
        self.make_stream(name, shards)
        return name

    def make_stream(self, name: str, shards: int = 1) -> None:
        """Make a stream of this name."""
        self.client("kinesis").create_stream(StreamName=name, ShardCount=shards)
        eventually(lambda: len(self.shards(name)) == shards, START_SECS)

    def shards(self, stream: str) -> list[Any]:
        """The shards of a stream, closed ones included, as the service lists them."""
        found: list[Any] = self.client("kinesis").list_shards(StreamName=stream)["Shards"]
        return found

    def put(self, stream: str, values: Iterable[str | bytes], shard: int = 0, key: str = "k") -> None:
        """Put records into a shard."""
        first = self.shards(stream)[shard]["HashKeyRange"]["StartingHashKey"]
        records = [{"Data": value, "PartitionKey": key, "ExplicitHashKey": first} for value in values]
        answer = self.client("kinesis").put_records(StreamName=stream, Records=records)
        assert answer["FailedRecordCount"] == 0, answer

    def records(self, stream: str) -> list[Any]:
        """All records of a stream."""
        kinesis, found = self.client("kinesis"), []
        for shard in self.shards(stream):
            iterator = kinesis.get_shard_iterator(
                StreamName=stream, ShardId=shard["ShardId"], ShardIteratorType="TRIM_HORIZON"
            )["ShardIterator"]
            while records := (answer := kinesis.get_records(ShardIterator=iterator))["Records"]:
                found += records
                if (iterator := answer.get("NextShardIterator")) is None:
                    break
        return found


def _answers(process: Killable, port: int) -> bool:
    assert process.running, f"it has ended:\n{process.log()[-2000:]}"
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture(scope="session")
def aws(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AwsServer]:
    """The services for all tests, and keys that they take, in the environment."""
    server = AwsServer(tmp_path_factory.mktemp("aws"))
    with pytest.MonkeyPatch.context() as patch:
        for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL"):
            patch.delenv(name, raising=False)
        for name, value in KEYS.items():
            patch.setenv(name, value)
        for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
            patch.setenv(name, "/dev/null")
        try:
            server.begin()
            yield server
        finally:
            server.end()
