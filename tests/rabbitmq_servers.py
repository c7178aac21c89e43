"""RabbitMQ for tests: a server as a real process on the loopback, which can be killed, frozen and started again.

Its Erlang node asks no `epmd` for ports, and starts none. Where rabbitmq-server or pika is missing, the tests are skipped; with
CI=true they fail.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import json
import os
import shutil
import socket
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.certificates import Certificates, make_certificates
from tests.hdfs_servers import missing
from tests.killable import Killable
from tests.zookeeper_servers import eventually, free_ports

#: Debian's wrapper on PATH starts the server as another user; this is the server's own script.
_FOLDERS = os.pathsep.join(("/usr/lib/rabbitmq/bin", os.environ.get("PATH", ""), "/usr/local/sbin"))
START_SECS = 120.0
ANSWER_SECS = 30.0
#: Users with all rights, and one that may do nothing but connect. URLs without a user are for `guest`.
PASSWORDS = {"guest": "guest", "app": "secret of app", "stranger": "secret of stranger"}
#: The largest message that the server takes.
MOST_BYTES = 100_000


class RabbitServer(Killable):
    """One server. Its address is the same after every start, and so are its queues and messages that are durable.

    tls_url: of its listener for TLS, whose certificate `certificates` has. It asks for one of the client, and takes none.
    """

    certificates: Certificates

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / "rabbitmq.log")
        self.folder = folder
        self._command = shutil.which("rabbitmq-server", path=_FOLDERS)
        self._port, self._tls_port, self._node_port = free_ports(3)
        self._node = f"rabbit-test-{self._port}@localhost"
        self.url = f"amqp://127.0.0.1:{self._port}"
        self.tls_url = f"amqps://127.0.0.1:{self._tls_port}"

    def login_as(self, user: str, vhost: str = "%2F") -> str:
        """The URL for a user."""
        return f"amqp://{user}@127.0.0.1:{self._port}/{vhost}"

    def start(self) -> None:
        """Start it, and wait until it answers."""
        if self._command is None:
            missing("there is no rabbitmq-server: install the system's package `rabbitmq-server`")
        if importlib.util.find_spec("pika") is None:
            missing("pika is not installed: pip install '.[rabbitmq]'")
        if not (self.folder / "rabbitmq.conf").exists():
            self._configure()
        settings = [f"{name}={value}" for name, value in self._settings().items()]
        self.launch(["/usr/bin/env", "-C", str(self.folder), *settings, self._command])
        try:
            eventually(self._answers, START_SECS, every=0.05)
        except BaseException:
            self.kill()
            raise

    def _settings(self) -> dict[str, str]:
        folder = self.folder
        return {
            "HOME": str(folder),
            "RABBITMQ_NODENAME": self._node,
            "RABBITMQ_CONF_ENV_FILE": f"{folder}/none",
            "RABBITMQ_CONFIG_FILE": f"{folder}/rabbitmq.conf",
            "RABBITMQ_ENABLED_PLUGINS_FILE": f"{folder}/plugins",
            "RABBITMQ_MNESIA_BASE": f"{folder}/data",
            "RABBITMQ_LOG_BASE": f"{folder}/log",
            "RABBITMQ_PID_FILE": f"{folder}/pid",
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": (
                f"-sname {self._node} -erl_epmd_port {self._node_port}"
                " -kernel inet_dist_use_interface {127,0,0,1} +S 2:2"
            ),
            "ERL_AFLAGS": "-start_epmd false",  # also for what the server starts itself
            "detached": "1",  # the script becomes the server, without a shell in between
        }

    def _configure(self) -> None:
        folder = self.folder
        self.certificates = tls = make_certificates(folder / "tls")
        (folder / "plugins").write_text("[].")
        (folder / "users.json").write_text(
            json.dumps(
                {
                    "users": [_user(name, password) for name, password in PASSWORDS.items()],
                    "vhosts": [{"name": "/"}],
                    "permissions": [
                        _permissions(name, "" if name == "stranger" else ".*") for name in PASSWORDS
                    ],
                }
            )
        )
        (folder / "rabbitmq.conf").write_text(
            f"listeners.tcp.1 = 127.0.0.1:{self._port}\nlisteners.ssl.1 = 127.0.0.1:{self._tls_port}\n"
            f"ssl_options.cacertfile = {tls.ca}\nssl_options.certfile = {tls.certificate}\n"
            f"ssl_options.keyfile = {tls.key}\nssl_options.verify = verify_peer\nload_definitions = {folder}/users.json\n"
            f"max_message_size = {MOST_BYTES}\ndisk_free_limit.absolute = 1MB\nraft.wal_max_size_bytes = 16777216\n"
            "log.console = true\nlog.console.level = warning\nlog.file = false\n"
        )

    def _answers(self) -> bool:
        assert self.running, f"rabbitmq-server has ended:\n{self.log()[-2000:]}"
        with socket.socket() as one:
            if one.connect_ex(("127.0.0.1", self._port)) != 0:
                return False
        import pika.exceptions

        try:
            with self.channel():
                return True
        except pika.exceptions.AMQPError:
            return False

    @contextmanager
    def channel(self) -> Iterator[Any]:
        """A channel of pika, for the other side."""
        import pika

        with pika.BlockingConnection(
            pika.ConnectionParameters(
                "127.0.0.1", self._port, socket_timeout=ANSWER_SECS, blocked_connection_timeout=ANSWER_SECS
            )
        ) as connection:
            yield connection.channel()

    def declare(self, queue: str, **arguments: Any) -> None:
        """Declare a durable queue. arguments: such as `x_queue_type="quorum"`."""
        given = {name.replace("_", "-"): value for name, value in arguments.items()}
        with self.channel() as channel:
            channel.queue_declare(queue, durable=True, arguments=given)

    def bind(self, exchange: str, queue: str, key: str = "", kind: str = "topic") -> None:
        """Declare a durable exchange and a queue, and bind them."""
        self.declare(queue)
        with self.channel() as channel:
            channel.exchange_declare(exchange, kind, durable=True)
            channel.queue_bind(queue, exchange, key)

    def delete(self, queue: str = "", exchange: str = "") -> None:
        """Delete a queue or an exchange."""
        with self.channel() as channel:
            if queue:
                channel.queue_delete(queue)
            if exchange:
                channel.exchange_delete(exchange)

    def send(self, key: str, bodies: Iterable[bytes | str], exchange: str = "", **properties: Any) -> None:
        """Publish persistent messages, and wait until the server has them."""
        import pika

        given = pika.BasicProperties(delivery_mode=2, **properties)
        with self.channel() as channel:
            channel.tx_select()
            for body in bodies:
                channel.basic_publish(
                    exchange, key, body if isinstance(body, bytes) else body.encode(), given
                )
            channel.tx_commit()

    def take(self, queue: str) -> list[tuple[Any, Any, bytes]]:
        """All messages that wait in a queue, removed: frame, properties and body."""
        found = []
        with self.channel() as channel:
            while (got := channel.basic_get(queue, auto_ack=True))[0] is not None:
                found.append(got)
        return found

    def bodies(self, queue: str) -> list[bytes]:
        """The bodies of all messages that wait in a queue, removed."""
        return [body for _, _, body in self.take(queue)]

    def count(self, queue: str) -> int:
        """How many messages wait in a queue."""
        with self.channel() as channel:
            return int(channel.queue_declare(queue, passive=True).method.message_count)

    def alarm(self, is_set: bool) -> None:
        """Have the server believe that it is short of memory, or not any more."""
        node = f'list_to_atom("{self._node}")'
        source = f"{{resource_limit, memory, {node}}}"
        change = f"set_alarm, [{{{source}, []}}]" if is_set else f"clear_alarm, [{source}]"
        subprocess.run(
            [
                "erl", "-noinput", "-sname", f"control-{self._port}@localhost", "-dist_listen", "false", "-erl_epmd_port",
                str(self._node_port), "-eval", f"ok = rpc:call({node}, rabbit_alarm, {change}), halt().",
            ],
            env={**os.environ, "HOME": str(self.folder), "ERL_AFLAGS": "-start_epmd false"},
            check=True,
            timeout=60,
            stdin=subprocess.DEVNULL,
            capture_output=True,
        )  # fmt: skip

    def __enter__(self) -> RabbitServer:
        self.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self.kill()


def _user(name: str, password: str) -> dict[str, object]:
    """A user as the server keeps it."""
    salt = b"salt"
    hashed = base64.b64encode(salt + hashlib.sha256(salt + password.encode()).digest()).decode()
    algorithm = "rabbit_password_hashing_sha256"
    return {"name": name, "password_hash": hashed, "hashing_algorithm": algorithm, "tags": ""}


def _permissions(user: str, pattern: str) -> dict[str, str]:
    return {"user": user, "vhost": "/", "configure": pattern, "write": pattern, "read": pattern}


@pytest.fixture(scope="session")
def rabbitmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitServer]:
    """A server for all tests that leave it running."""
    with RabbitServer(tmp_path_factory.mktemp("rabbitmq")) as server:
        yield server
