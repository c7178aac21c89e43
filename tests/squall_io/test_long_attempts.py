"""An attempt to write that hangs is not kept alive for ever."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

from squall_io.spark import signs_of_life


def test_an_attempt_reports_progress_for_its_patience_and_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = [0.0]
    monkeypatch.setattr(signs_of_life, "time", SimpleNamespace(monotonic=lambda: seconds[-1]))

    def progress() -> None:  # a report a minute
        seconds.append(seconds[-1] + 60.0)

    others = threading.enumerate()  # those of other tests of this process among them
    with signs_of_life.keep_alive(progress, every=0.001):
        (thread,) = [
            each
            for each in threading.enumerate()
            if each.name == "squall-spark-keepalive" and each not in others
        ]
        thread.join(30.0)
        assert not thread.is_alive()
    assert seconds[-1] == signs_of_life.PATIENCE
