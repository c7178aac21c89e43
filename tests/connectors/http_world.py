"""HttpSink in the matrix of faults, with a receiver that is a process."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from squall_io.http import HttpSink
from tests.connector_contract import SinkWorld
from tests.http_receiver import HttpReceiver
from topology_api import Bolt


class HttpTarget(SinkWorld):
    """A receiver of rows."""

    name = "http_sink"
    connector = "squall_io.http.HttpSink"
    once = False
    away_words = "has not taken the request"
    refused_words = "it answers 422"
    slow = frozenset({"killed", "nothing lost, with epochs"})
    not_applicable = {
        "missing": "a row whose URL does not exist fails, as any row that the receiver does not take",
        "too large": "what is too large, only the receiver knows: it answers 413",
    }

    def __init__(self, receiver: HttpReceiver) -> None:
        super().__init__()
        self.server = self.receiver = receiver

    def sink(self, **options: Any) -> Bolt:
        given: dict[str, Any] = {
            "key": "number",
            "headers": {"Authorization": "Bearer env:HTTP_TOKEN"},
            "timeout": 0.5,
            "patience": 1.0,
        }
        return HttpSink(f"http://127.0.0.1:{self.receiver.port}/", **{**given, **options})

    def written(self) -> list[int]:
        return self.receiver.written()

    def refused(self, number: int) -> tuple[Any, ...]:
        return number, "refused"

    def wrong_login(self) -> tuple[Bolt, str]:
        return self.sink(headers={"Authorization": "Bearer env:WRONG_PASSWORD"}), "give other credentials"

    @contextlib.contextmanager
    def answer_lost(self) -> Iterator[Callable[[], bool]]:
        lose = self.receiver.folder / "lose"
        lose.touch()
        yield lambda: not lose.exists()


@pytest.fixture
def http_sink(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HttpTarget]:
    monkeypatch.setenv("HTTP_TOKEN", "right")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    receiver = HttpReceiver(tmp_path)
    try:
        receiver.start()
        yield HttpTarget(receiver)
    finally:
        receiver.stop()
