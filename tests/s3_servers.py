"""S3 for tests: moto as a process on the loopback, which keeps its objects in memory (`tests/s3_moto.py`).

Where boto3 or moto is missing, its tests are skipped; with CI=true they fail.
"""

from __future__ import annotations

import importlib.util
import json
import socket
import sys
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.hdfs_servers import missing
from tests.killable import Killable
from tests.zookeeper_servers import eventually, free_ports

#: As in `tests/s3_moto.py`, which this process does not import: it would load all of moto.
COPIES, PARTS, PUTS, IGNORES, REFUSES = BUCKETS = ("copies", "parts", "puts", "ignores", "refuses")
#: Longest start on a machine under load; about 3 seconds on an idle one.
START_SECS = 120.0
#: Keys that moto takes as it takes any.
KEYS = {
    "AWS_ACCESS_KEY_ID": "test-key",
    "AWS_SECRET_ACCESS_KEY": "hush-hush",
    "AWS_DEFAULT_REGION": "us-east-1",
}


class S3Server(Killable):
    """moto's S3 with the buckets `BUCKETS`; objects are gone when it ends."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / "moto.log")
        self._port = free_ports(1)[0]
        self.url = f"http://127.0.0.1:{self._port}"

    def start(self) -> S3Server:
        """Start it, and make the buckets."""
        for name in ("boto3", "moto", "flask"):
            if importlib.util.find_spec(name) is None:
                missing(f"{name} is not installed: pip install '.[dev]'")
        self.launch([sys.executable, str(Path(__file__).with_name("s3_moto.py")), str(self._port)])
        try:
            eventually(self._answers, START_SECS, every=0.1)
            for bucket in BUCKETS:
                self.ask("PUT", f"/{bucket}")
        except BaseException:
            self.stop()
            raise
        return self

    def fails(self, *faults: tuple[str, str, str]) -> None:
        """Let requests fail, each fault once: method, a part of path and query, and how: see `s3_moto.Server`."""
        named = [dict(zip(("method", "part", "how"), fault)) for fault in faults]
        self.ask("POST", "/faults", json.dumps(named).encode())

    def requests(self) -> Sequence[str]:
        """The requests since the last call: method, path and query."""
        found: list[str] = json.loads(self.ask("GET", "/requests"))
        return found

    def ask(self, method: str, path: str, data: bytes | None = None) -> bytes:
        """The answer to a request without a signature."""
        request = urllib.request.Request(self.url + path, data, method=method)
        with urllib.request.urlopen(request, timeout=30) as answer:
            body: bytes = answer.read()
        return body

    def _answers(self) -> bool:
        assert self.running, f"moto has ended:\n{self.log()[-2000:]}"
        with socket.socket() as one:
            return one.connect_ex(("127.0.0.1", self._port)) == 0

    def __enter__(self) -> S3Server:
        return self.start()

    def __exit__(self, *raised: Any) -> None:
        self.stop()


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """The server of this process's tests."""
    with S3Server(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture
def s3_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """The keys of the server, as the environment gives them, and nothing else that boto3 could find on this machine."""
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {
        **KEYS,
        "AWS_CONFIG_FILE": "/dev/null",
        "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
    }.items():
        monkeypatch.setenv(name, value)
