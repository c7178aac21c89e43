"""MQTT for tests: mosquitto as a real process on the loopback, which can be killed, frozen and started again.

It keeps its sessions on disk after each change, so that a killed one has lost nothing. Where mosquitto or paho-mqtt is missing,
the tests are skipped; with CI=true they fail.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.hdfs_servers import missing
from tests.killable import Killable
from tests.zookeeper_servers import eventually, free_ports

#: Where packages put what is on PATH of root only.
_FOLDERS = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"))
START_SECS = 60.0
ANSWER_SECS = 30.0
#: Users of the listener that asks for a password. `guest` may do nothing.
PASSWORDS = {"app": "secret of app", "guest": "secret of guest"}
#: The largest packet that the broker takes.
MOST_BYTES = 100_000


class MosquittoServer(Killable):
    """One broker. Its addresses are the same after every start.

    url: for everyone. login_url: asks for a user, without one in it; `login_as` adds one.
    """

    def __init__(self, folder: Path, *more: str) -> None:
        super().__init__(folder / "mosquitto.log")
        self.folder = folder
        self._command = shutil.which("mosquitto", path=_FOLDERS)
        self._port, self._login_port = free_ports(2)
        self.url = f"mqtt://127.0.0.1:{self._port}"
        self._more = more

    def login_as(self, user: str) -> str:
        """The URL of the listener that asks for a password, for a user."""
        return f"mqtt://{user}@127.0.0.1:{self._login_port}"

    def start(self) -> None:
        """Start it, and wait until it answers."""
        if self._command is None:
            missing("there is no mosquitto: install the system's package `mosquitto`")
        if importlib.util.find_spec("paho") is None:
            missing("paho-mqtt is not installed: pip install '.[mqtt]'")
        conf = self.folder / "mosquitto.conf"
        if not conf.exists():
            self._configure(conf)
        self.launch([self._command, "-c", str(conf)])
        try:
            eventually(self._answers, START_SECS, every=0.02)
        except BaseException:
            self.kill()
            raise

    def _configure(self, conf: Path) -> None:
        passwords, rights = self.folder / "passwords", self.folder / "rights"
        passwords.write_text("".join(f"{name}:{password}\n" for name, password in PASSWORDS.items()))
        passwords.chmod(0o600)
        subprocess.run(["mosquitto_passwd", "-U", str(passwords)], check=True, timeout=30)
        rights.write_text("user app\ntopic readwrite #\n")
        user = ["user root"] if os.geteuid() == 0 else []
        lines = [
            *user,
            "per_listener_settings true",
            f"listener {self._port} 127.0.0.1",
            "allow_anonymous true",
            "persistence true",
            f"persistence_location {self.folder}/",
            f"listener {self._login_port} 127.0.0.1",
            "allow_anonymous false",
            f"password_file {passwords}",
            f"acl_file {rights}",
            f"max_packet_size {MOST_BYTES}",
            "autosave_interval 1",
            "autosave_on_changes true",
            *self._more,
        ]
        conf.write_text("".join(f"{line}\n" for line in lines))

    def send(self, topic: str, payloads: Iterable[str | bytes], qos: int = 1, retain: bool = False) -> None:
        """Send messages, and wait until the broker has them."""
        client = _client()
        client.connect("127.0.0.1", self._port)
        client.loop_start()
        try:
            for sent in [client.publish(topic, payload, qos, retain) for payload in payloads]:
                sent.wait_for_publish(ANSWER_SECS)
                assert sent.is_published()
        finally:
            client.disconnect()
            client.loop_stop()

    def listen(self, *topics: str, session: str = "") -> Listener:
        """A client that keeps what comes from now on. session: the name of one that outlives its connections."""
        return Listener(self._port, topics, session)

    def _answers(self) -> bool:
        assert self.running, f"mosquitto has ended:\n{self.log()[-2000:]}"
        with socket.socket() as one:
            return one.connect_ex(("127.0.0.1", self._port)) == 0

    def __enter__(self) -> MosquittoServer:
        self.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self.kill()


def _client(session: str = "") -> Any:
    import paho.mqtt.client as paho
    from paho.mqtt.enums import CallbackAPIVersion

    return paho.Client(CallbackAPIVersion.VERSION2, session, protocol=paho.MQTTv5)


class Listener:
    """A subscriber: `messages` has (topic, payload, qos, retain) of what has come."""

    def __init__(self, port: int, topics: Iterable[str], session: str) -> None:
        self.messages: list[tuple[str, bytes, int, bool]] = []
        self._client = _client(session)
        self._client.reconnect_delay_set(0.1, 0.5)
        subscribed: list[int] = []
        self._client.on_subscribe = lambda *given: subscribed.append(1)
        self._client.on_message = lambda client, data, message: self.messages.append(
            (message.topic, message.payload, message.qos, message.retain)
        )
        from paho.mqtt.packettypes import PacketTypes
        from paho.mqtt.properties import Properties

        properties: Any = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
        properties.SessionExpiryInterval = 3600 if session else 0
        self._client.connect("127.0.0.1", port, 5, clean_start=not session, properties=properties)
        self._client.loop_start()
        self._client.subscribe([(topic, 1) for topic in topics])
        eventually(lambda: subscribed, ANSWER_SECS)

    def payloads(self, count: int) -> list[bytes]:
        """The payloads, when there are as many as that."""
        eventually(lambda: len(self.messages) >= count, ANSWER_SECS)
        return [payload for _, payload, _, _ in self.messages]

    def __enter__(self) -> Listener:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def close(self) -> None:
        """End the connection."""
        self._client.disconnect()
        self._client.loop_stop()


@pytest.fixture(scope="session")
def mosquitto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MosquittoServer]:
    """A broker for all tests that leave it running."""
    with MosquittoServer(tmp_path_factory.mktemp("mosquitto")) as server:
        yield server
