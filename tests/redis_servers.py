"""Redis for tests: a server as a real process on the loopback, which can be killed, frozen and started again with its data.

Where there is no redis-server or no redis-py, such tests are skipped, and fail where CI=true.
"""

from __future__ import annotations

import importlib
import itertools
import shutil
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.hdfs_servers import missing
from tests.killable import Killable
from tests.zookeeper_servers import eventually, free_ports

#: Longest start on a machine under load.
START_SECS = 60.0
_names = itertools.count(1)


class RedisServer(Killable):
    """One server. `url` is the same after every start. Its writes are in a file before they are answered (AOF).

    settings: those of redis.conf. options: what its clients need beside the address, such as a password.
    """

    def __init__(
        self,
        folder: Path,
        settings: Mapping[str, str] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(folder / "redis.log")
        path = shutil.which("redis-server")
        if path is None:
            missing("there is no redis-server on PATH: install the system's package `redis-server`")
        try:
            importlib.import_module("redis")
        except ImportError:
            missing("redis-py is not installed: pip install '.[redis]'")
        self.folder = folder
        (self.port,) = free_ports(1)
        self.address = f"127.0.0.1:{self.port}"
        self.url = f"redis://{self.address}/0"
        defaults = {
            "bind": "127.0.0.1",
            "port": str(self.port),
            "dir": str(folder),
            "save": '""',
            "appendonly": "yes",
            "enable-debug-command": "local",
        }
        given = {**defaults, **(settings or {})}
        file = folder / "redis.conf"
        file.write_text("".join(f"{name} {value}\n" for name, value in given.items()))
        self._command = [str(path), str(file)]
        self._options = dict(options or {})
        self._client: Any = None

    def start(self) -> None:
        """Start it and wait until it answers; again after `stop` and `kill`, with its data."""
        self.launch(self._command)
        try:
            eventually(self.answers, START_SECS, every=0.01)
        except BaseException:
            self.kill()
            raise

    def answers(self) -> bool:
        """Whether it answers."""
        assert self.running, f"the server has ended:\n{self.log()[-2000:]}"
        redis = importlib.import_module("redis")
        try:
            return bool(self.client.ping())
        except (redis.ConnectionError, OSError):
            return False

    @property
    def client(self) -> Any:
        """A client of redis-py, whose answers are text."""
        if self._client is None:
            redis = importlib.import_module("redis")
            settings = {"socket_timeout": 30, "decode_responses": True, "protocol": 3, **self._options}
            self._client = redis.Redis(host="127.0.0.1", port=self.port, **settings)
        return self._client

    def name(self, what: str = "orders") -> str:
        """A key that no other test has."""
        return f"{what}-{next(_names)}"

    def add(self, stream: str, *values: object, field: str = "value") -> list[str]:
        """Append an entry with one field for each value; return the ids."""
        with self.client.pipeline() as pipe:
            for value in values:
                pipe.xadd(stream, {field: value})
            return list(pipe.execute())

    def _closed(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def __enter__(self) -> RedisServer:
        self.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._closed()
        self.kill()


class SentinelServer(RedisServer):
    """A Sentinel that watches a master under the name `main`, and makes a replica the master when the master is gone."""

    def __init__(self, folder: Path, master: RedisServer) -> None:
        super().__init__(folder)
        lines = (
            f"bind 127.0.0.1\nport {self.port}\ndir {folder}\n"
            f"sentinel monitor main 127.0.0.1 {master.port} 1\n"
            "sentinel down-after-milliseconds main 300\nsentinel failover-timeout main 2000\n"
        )
        (folder / "redis.conf").write_text(lines)
        self._command.append("--sentinel")
        self.url = f"redis+sentinel://127.0.0.1:1,{self.address}/main/0"


class LosingProxy:
    """Stands between a client and a server, and can lose answers: it cuts the connection when one comes that it waits for.

    lose: a part of what the client sends; the answer to it is lost, once for each time that `lose` is set.
    """

    def __init__(self, port: int) -> None:
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self.lose: bytes | None = None
        self.lost = 0
        self._open: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                try:
                    server = socket.create_connection(("127.0.0.1", self._target))
                except OSError:  # it was killed
                    client.close()
                    continue
                self._open += [client, server]
                thread = threading.Thread(target=self._serve, args=(client, server), daemon=True)
                self._threads.append(thread)
                thread.start()

    def _serve(self, client: socket.socket, server: socket.socket) -> None:
        """Carry requests over, each with its answer, until one of the two hangs up or an answer is lost."""
        losing = threading.Event()
        back = threading.Thread(target=self._carry_back, args=(client, server, losing), daemon=True)
        back.start()
        with suppress(OSError):
            while data := client.recv(1 << 20):
                if self.lose is not None and self.lose in data:
                    self.lose = None
                    losing.set()
                server.sendall(data)
        for each in (client, server):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        back.join(10)

    def _carry_back(self, client: socket.socket, server: socket.socket, losing: threading.Event) -> None:
        with suppress(OSError):
            while data := server.recv(1 << 20):
                if losing.is_set():
                    self.lost += 1
                    client.shutdown(socket.SHUT_RDWR)
                    return
                client.sendall(data)
        with suppress(OSError):
            client.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> LosingProxy:
        return self

    def __exit__(self, *raised: object) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for each in self._open:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        for thread in self._threads:
            thread.join(10)


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """A server for all tests that leave it running."""
    with RedisServer(tmp_path_factory.mktemp("redis")) as server:
        yield server
