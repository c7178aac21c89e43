"""Kafka for tests: a broker that is its own controller, as a real process on the loopback, which can be killed and frozen.

Maven fetches its jars once into a folder of this machine (`$SQUALL_TEST_CACHE`, else `~/.cache/squall-tests`). Where there is
no Java, no Maven or no confluent-kafka, such tests are skipped, and fail where CI=true.
"""

from __future__ import annotations

import base64
import itertools
import os
import shutil
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.certificates import make_certificates
from tests.hdfs_servers import cache_folder, missing
from tests.killable import Killable
from tests.zookeeper_servers import eventually, free_ports

KAFKA = "4.3.1"
#: Longest time for Maven to fetch 44 MB.
DOWNLOAD_SECS = 300.0
#: Longest start on a machine under load; 2 seconds on an idle one.
START_SECS = 120.0
#: Longest wait for one answer.
ANSWER_SECS = 30.0
#: Longest wait of a reader for transactions that are open: some tests leave one open.
OPEN_SECS = 0.5
#: The users of the listener with passwords: `app` may do everything, `guest` nothing.
PASSWORDS = {"app": "secret of app", "guest": "secret of guest"}

_POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>squall.tests</groupId><artifactId>kafka</artifactId><version>1</version><dependencies>
<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{KAFKA}</version></dependency>
<dependency><groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>1.7.36</version></dependency>
</dependencies></project>
"""
_names = itertools.count(1)


def class_path() -> str:
    """The jars of the broker's JVM; fetched if necessary."""
    try:
        import confluent_kafka  # noqa: F401
    except ImportError:
        missing("confluent-kafka is not installed: pip install '.[kafka]'")
    if shutil.which("java") is None:
        missing("there is no Java on PATH")
    with cache_folder() as cache:
        jars = cache / f"kafka-{KAFKA}"
        if not jars.exists():
            _fetch(cache, jars)
    return f"{jars}/*"


def _fetch(cache: Path, jars: Path) -> None:
    """Have Maven fetch the jars."""
    maven = shutil.which("mvn")
    if maven is None:
        missing(f"there is no Maven on PATH to fetch Kafka {KAFKA}")
    fresh = cache / "kafka.tmp"
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir()
    (fresh / "pom.xml").write_text(_POM)
    done = subprocess.run(
        [maven, "-q", "-B", "dependency:copy-dependencies", "-DincludeScope=runtime", "-DoutputDirectory=jars"],
        cwd=fresh,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=DOWNLOAD_SECS,
        check=False,
    )  # fmt: skip
    if done.returncode != 0:
        missing(f"Maven could not fetch Kafka {KAFKA}: {done.stdout.decode(errors='replace')[-500:]}")
    (fresh / "jars").rename(jars)
    shutil.rmtree(fresh)


class KafkaServer(Killable):
    """One broker. Its addresses are the same after every start; topics are made by `create` only."""

    def __init__(self, folder: Path, settings: Mapping[str, str] | None = None) -> None:
        super().__init__(folder / "broker.log")
        self.folder = folder
        port, sasl, tls, controller = free_ports(4)
        self.servers = f"127.0.0.1:{port}"
        #: The listener that asks for a password: SASL_PLAINTEXT, PLAIN. See `PASSWORDS`.
        self.sasl_servers = f"127.0.0.1:{sasl}"
        #: The listener that is encrypted, and asks for a certificate that its authority signed.
        self.tls_servers = f"127.0.0.1:{tls}"
        self.certificates = make_certificates(folder / "certificates")
        flags = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-Xmx384m"]
        self._java = [shutil.which("java") or "java", *flags, "-cp", class_path()]
        self._file = folder / "server.properties"
        self.controller = f"127.0.0.1:{controller}"
        self.cluster_id = base64.urlsafe_b64encode(os.urandom(16)).decode().rstrip("=").replace("-", "a")
        #: What its file of settings gets at each start.
        self.given = {**self._defaults(), **(settings or {})}
        self._admin: Any = None

    def _defaults(self) -> dict[str, str]:
        users = " ".join(f'user_{name}="{password}"' for name, password in PASSWORDS.items())
        login = "org.apache.kafka.common.security.plain.PlainLoginModule"
        listeners = f"OPEN://{self.servers},AUTH://{self.sasl_servers},TLS://{self.tls_servers}"
        certificates = self.certificates
        identity = self.folder / "certificates" / "identity.pem"
        identity.write_text(Path(certificates.key).read_text() + Path(certificates.certificate).read_text())
        return {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@{self.controller}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"{listeners},CONTROLLER://{self.controller}",
            "advertised.listeners": listeners,
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,OPEN:PLAINTEXT,AUTH:SASL_PLAINTEXT,TLS:SSL",
            "inter.broker.listener.name": "OPEN",
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.auth.plain.sasl.jaas.config": f"{login} required {users};",
            "listener.name.tls.ssl.keystore.type": "PEM",
            "listener.name.tls.ssl.keystore.location": str(identity),
            "listener.name.tls.ssl.truststore.type": "PEM",
            "listener.name.tls.ssl.truststore.location": certificates.ca,
            "listener.name.tls.ssl.client.auth": "required",
            "listener.name.tls.ssl.principal.mapping.rules": "RULE:^.*$/app/",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS;User:app",
            "log.dirs": str(self.folder / "data"),
            "auto.create.topics.enable": "false",
            # A broker that was killed may come back when its session has ended.
            "broker.session.timeout.ms": "2000",
            "broker.heartbeat.interval.ms": "200",
            "message.max.bytes": "20000000",
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "1",
            "group.initial.rebalance.delay.ms": "0",
        }

    def start(self) -> None:
        """Start it and wait until it answers; again after `stop` and `kill`, with its data."""
        self.begin()
        try:
            self.wait_ready()
        except BaseException:
            self.kill()
            raise

    def begin(self) -> None:
        """Start it, and do not wait."""
        self._file.write_text("".join(f"{name}={value}\n" for name, value in self.given.items()))
        if not (self.folder / "data").exists():
            self._format()
        self.launch([*self._java, "kafka.Kafka", str(self._file)])

    def _format(self) -> None:
        done = subprocess.run(
            [*self._java, "kafka.tools.StorageTool", "format", "-t", self.cluster_id, "-c", str(self._file)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=START_SECS,
            check=False,
        )
        assert done.returncode == 0, done.stdout.decode(errors="replace")[-2000:]

    def wait_ready(self) -> None:
        """Wait until it answers."""

        def answers() -> bool:
            assert self.running, f"the broker has ended:\n{self.log()[-2000:]}"
            try:
                return bool(self.admin.list_topics(timeout=0.5).brokers)
            except self._error():
                return False

        eventually(answers, START_SECS, every=0.1)

    @property
    def admin(self) -> Any:
        """A client that manages topics, made at the first use."""
        if self._admin is None:
            from confluent_kafka.admin import AdminClient

            self._admin = AdminClient({**self.settings, "reconnect.backoff.max.ms": 200}, logger=_Silent())
        return self._admin

    @property
    def settings(self) -> dict[str, Any]:
        """The settings of a client."""
        return {"bootstrap.servers": self.servers}

    @staticmethod
    def _error() -> type[Exception]:
        import confluent_kafka

        kind: type[Exception] = confluent_kafka.KafkaException
        return kind

    def create(
        self,
        name: str = "orders",
        partitions: int = 1,
        settings: Mapping[str, str] | None = None,
        copies: int = 1,
    ) -> str:
        """Create a topic and return its whole name, which no other test has."""
        return self.create_again(f"{name}-{next(_names)}", partitions, settings, copies)

    def create_again(
        self, topic: str, partitions: int = 1, settings: Mapping[str, str] | None = None, copies: int = 1
    ) -> str:
        """Create a topic of this very name, which may have been deleted before."""
        from confluent_kafka.admin import NewTopic

        def created() -> bool:
            made = NewTopic(topic, partitions, replication_factor=copies, config=dict(settings or {}))
            try:
                self.admin.create_topics([made])[topic].result(ANSWER_SECS)
            except self._error() as error:  # a deleted one may still be there for a moment
                assert error.args[0].name() == "TOPIC_ALREADY_EXISTS", error
                return False
            return True

        eventually(created, ANSWER_SECS, every=0.1)
        eventually(lambda: len(self.partitions(topic)) == partitions, ANSWER_SECS, every=0.05)
        return topic

    def partitions(self, topic: str) -> list[int]:
        """The partitions that a client sees; none if it sees no such topic."""
        found = self.admin.list_topics(timeout=ANSWER_SECS).topics.get(topic)
        return [] if found is None else sorted(found.partitions)

    def add_partitions(self, topic: str, total: int) -> None:
        """Give a topic more partitions."""
        from confluent_kafka.admin import NewPartitions

        self.admin.create_partitions([NewPartitions(topic, total)])[topic].result(ANSWER_SECS)
        eventually(lambda: len(self.partitions(topic)) == total, ANSWER_SECS, every=0.05)

    def delete(self, topic: str) -> None:
        """Delete a topic."""
        self.admin.delete_topics([topic])[topic].result(ANSWER_SECS)
        eventually(lambda: not self.partitions(topic), ANSWER_SECS, every=0.05)

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        """Delete the messages before an offset, as retention does."""
        from confluent_kafka import TopicPartition

        place = TopicPartition(topic, partition, before)
        self.admin.delete_records([place])[place].result(ANSWER_SECS)

    def send(
        self,
        topic: str,
        values: Iterable[bytes | str | None],
        *,
        partition: int = 0,
        transaction: str | None = None,
        settings: Mapping[str, Any] | None = None,
        **of_each: Any,
    ) -> None:
        """Append messages, and wait until they are there. transaction: "commit" or "abort": they are in one that ends so.
        of_each: key, headers, timestamp (milliseconds) of all of them.
        """
        from confluent_kafka import Producer

        in_transaction = {} if transaction is None else {"transactional.id": f"sender-{next(_names)}"}
        conf = {**self.settings, "linger.ms": 0, "message.max.bytes": 20_000_000, **in_transaction}
        producer = Producer({**conf, **(settings or {})}, logger=_Silent())
        failed: list[Any] = []

        def note(error: Any, message: Any) -> None:
            if error is not None:
                failed.append(error)

        if transaction is not None:
            producer.init_transactions(ANSWER_SECS)
            producer.begin_transaction()
        for value in values:
            while True:
                try:
                    producer.produce(
                        topic, value, partition=partition, on_delivery=note, **of_each
                    )  # fmt: skip
                    break
                except BufferError:
                    producer.poll(0.1)
        assert producer.flush(ANSWER_SECS) == 0
        assert not failed, failed[0]
        if transaction is not None:
            (producer.commit_transaction if transaction == "commit" else producer.abort_transaction)(
                ANSWER_SECS
            )

    def read(self, topic: str, *, committed: bool = True) -> list[Any]:
        """All messages of a topic, as confluent_kafka has them. committed: without those of aborted transactions."""
        from confluent_kafka import Consumer, TopicPartition

        level = "read_committed" if committed else "read_uncommitted"
        conf = {**self.settings, "group.id": "reader", "isolation.level": level, "enable.partition.eof": True}
        more = {"enable.auto.commit": False, "auto.offset.reset": "earliest"}
        more["fetch.wait.max.ms"] = (
            5  # at the end of a partition a broker waits for more, by default for 500 ms
        )
        consumer = Consumer({**conf, **more}, logger=_Silent())
        try:
            left = set(self.partitions(topic))
            consumer.assign([TopicPartition(topic, number, 0) for number in left])
            found = []
            while left:
                message = consumer.poll(ANSWER_SECS)
                assert message is not None, "no answer"
                if message.error() is None:
                    found.append(message)
                else:
                    assert message.error().name() == "_PARTITION_EOF", message.error()
                    left.discard(message.partition())
            return found
        finally:
            consumer.close()

    def _await_commits(self, topic: str) -> None:
        """Wait until no transaction is open, for half a second at most: a broker answers a commit before its rows are seen."""
        from confluent_kafka import IsolationLevel, TopicPartition
        from confluent_kafka.admin import OffsetSpec

        asked = {TopicPartition(topic, number): OffsetSpec.latest() for number in self.partitions(topic)}

        def ends(level: Any) -> list[int]:
            answers = self.admin.list_offsets(asked, isolation_level=level)
            return [answers[place].result(ANSWER_SECS).offset for place in asked]

        until = time.monotonic() + OPEN_SECS
        while ends(IsolationLevel.READ_UNCOMMITTED) != ends(IsolationLevel.READ_COMMITTED):
            if time.monotonic() >= until:
                return
            time.sleep(0.005)

    def committed(self, group: str, topic: str) -> dict[int, int]:
        """The offsets that a group has committed, by partition."""
        from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

        asked = [TopicPartition(topic, number) for number in self.partitions(topic)]
        request = [ConsumerGroupTopicPartitions(group, asked)]
        answer = self.admin.list_consumer_group_offsets(request)[group].result(ANSWER_SECS)
        return {place.partition: place.offset for place in answer.topic_partitions if place.offset >= 0}

    def __enter__(self) -> KafkaServer:
        self.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self.kill()


class KafkaBrokers:
    """Three brokers, each of which has a copy of each message. Topics are made, filled and read by `first`."""

    def __init__(self, folder: Path) -> None:
        self.brokers = []
        for number in (1, 2, 3):
            (folder / str(number)).mkdir()
            self.brokers.append(KafkaServer(folder / str(number)))
        voters = ",".join(f"{n}@{each.controller}" for n, each in enumerate(self.brokers, 1))
        copied = {
            "controller.quorum.voters": voters,
            "default.replication.factor": "3",
            "min.insync.replicas": "2",
            "offsets.topic.replication.factor": "3",
            "transaction.state.log.replication.factor": "3",
            "transaction.state.log.min.isr": "2",
        }
        for number, each in enumerate(self.brokers, 1):
            each.cluster_id = self.brokers[0].cluster_id
            each.given |= copied | {"node.id": str(number)}

    @property
    def first(self) -> KafkaServer:
        """The broker by which tests reach all of them."""
        return self.brokers[0]

    @property
    def servers(self) -> str:
        """The addresses of all brokers."""
        return ",".join(each.servers for each in self.brokers)

    def __enter__(self) -> KafkaBrokers:
        try:
            for each in self.brokers:
                each.begin()
            for each in self.brokers:
                each.wait_ready()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *raised: object) -> None:
        for each in self.brokers:
            if each.running:
                each.kill()


class _Silent:
    """A logger of clients that says nothing: a broker that is killed on purpose is no news."""

    def log(self, level: int, text: str, *arguments: object) -> None:
        """Say nothing."""


def values_of(messages: Sequence[Any]) -> list[bytes | None]:
    """The values of messages."""
    return [message.value() for message in messages]


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    """A broker for all tests that leave it running."""
    with KafkaServer(tmp_path_factory.mktemp("kafka")) as server:
        yield server
