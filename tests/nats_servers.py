"""NATS for tests: a server with JetStream as a real process on the loopback, which can be killed, frozen and started again.

Where nats-server or nats-py is missing, the tests are skipped; with CI=true they fail.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import shutil
import socket
from collections.abc import Awaitable, Callable, Iterable, Iterator
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
#: The user of tests, and one that may do nothing but connect. Who names no user is `open`, who may do everything.
PASSWORDS = {"app": "secret of app", "guest": "secret of guest"}
#: The largest message that the server takes.
MOST_BYTES = 100_000


class NatsServer(Killable):
    """One server. Its address is the same after every start. accounts: settings that replace the users of this module.
    more: further lines of its file. client: what the clients of tests need then."""

    def __init__(
        self, folder: Path, accounts: str | None = None, more: str = "", client: dict[str, Any] | None = None
    ) -> None:
        super().__init__(folder / "nats.log")
        self.folder = folder
        self._command = shutil.which("nats-server", path=_FOLDERS)
        (self._port,) = free_ports(1)
        self.url = f"nats://127.0.0.1:{self._port}"
        self._accounts, self._more, self._client = accounts, more, client or {}

    def login_as(self, user: str) -> str:
        """The URL for a user."""
        return f"nats://{user}@127.0.0.1:{self._port}"

    def start(self) -> None:
        """Start it, and wait until it answers."""
        if self._command is None:
            missing("there is no nats-server: install the system's package `nats-server`")
        if importlib.util.find_spec("nats") is None:
            missing("nats-py is not installed: pip install '.[nats]'")
        conf = self.folder / "nats.conf"
        users = f"""
            {{user: open, password: open}}
            {{user: app, password: "{PASSWORDS["app"]}"}}
            {{user: guest, password: "{PASSWORDS["guest"]}", permissions: {{publish: "none", subscribe: ">"}}}}
        """
        conf.write_text(
            f'listen: "127.0.0.1:{self._port}"\nmax_payload: {MOST_BYTES}\n'
            f'jetstream {{ store_dir: "{self.folder}/data" }}\n'
            + (
                self._accounts
                or f"accounts {{ A {{ jetstream: enabled, users: [{users}] }} }}\nno_auth_user: open\n"
            )
            + self._more
        )
        self.launch([self._command, "-c", str(conf)])
        try:
            eventually(self._answers, START_SECS, every=0.02)
        except BaseException:
            self.kill()
            raise

    def _answers(self) -> bool:
        assert self.running, f"nats-server has ended:\n{self.log()[-2000:]}"
        with socket.socket() as one:
            if one.connect_ex(("127.0.0.1", self._port)) != 0:
                return False
        return bool(self.call(_is_ready))

    def call(self, what: Callable[[Any, Any], Awaitable[Any]]) -> Any:
        """Call with a client and its context of JetStream."""
        import nats

        async def called() -> Any:
            client = await nats.connect(self.url, allow_reconnect=False, error_cb=_ignored, **self._client)
            try:
                return await what(client, client.jetstream(timeout=ANSWER_SECS))
            finally:
                await client.close()

        return asyncio.run(asyncio.wait_for(called(), 2 * ANSWER_SECS))

    def create(self, stream: str, *subjects: str, **settings: Any) -> None:
        """Create a stream that keeps subjects; without them, `<stream>.>`."""

        async def created(client: Any, js: Any) -> None:
            await js.add_stream(name=stream, subjects=list(subjects) or [f"{stream}.>"], **settings)

        self.call(created)

    def delete(self, stream: str) -> None:
        """Delete a stream."""

        async def deleted(client: Any, js: Any) -> None:
            await js.delete_stream(stream)

        self.call(deleted)

    def send(self, subject: str, payloads: Iterable[bytes | str], **headers: str) -> None:
        """Append messages, and wait until they are stored."""

        async def sent(client: Any, js: Any) -> None:
            for payload in payloads:
                data = payload.encode() if isinstance(payload, str) else payload
                await js.publish(subject, data, headers=headers or None)

        self.call(sent)

    def read(self, stream: str) -> list[Any]:
        """All messages that a stream has now."""

        async def found(client: Any, js: Any) -> list[Any]:
            state = (await js.stream_info(stream)).state
            numbers = range(max(1, state.first_seq), state.last_seq + 1)
            return [await js.get_msg(stream, number) for number in numbers]

        return list(self.call(found))

    def pending(self, stream: str, consumer: str) -> tuple[int, int]:
        """How many messages a consumer has not delivered, and how many of the delivered ones are not acknowledged."""

        async def found(client: Any, js: Any) -> tuple[int, int]:
            info = await js.consumer_info(stream, consumer)
            return info.num_pending, info.num_ack_pending

        got: tuple[int, int] = self.call(found)
        return got

    def __enter__(self) -> NatsServer:
        self.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self.kill()


async def _is_ready(client: Any, js: Any) -> bool:
    from nats.js.errors import APIError, NoStreamResponseError

    try:
        await js.account_info()
    except (APIError, NoStreamResponseError, asyncio.TimeoutError):
        return False
    return True


async def _ignored(error: Exception) -> None:
    """A server that is killed on purpose is no news."""


@pytest.fixture(scope="session")
def nats_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    """A server for all tests that leave it running."""
    with NatsServer(tmp_path_factory.mktemp("nats")) as server:
        yield server
