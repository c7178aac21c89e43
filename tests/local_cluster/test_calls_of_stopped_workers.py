"""`Context.stopped`: a waiting call learns that its worker ends, so that its thread is not left behind."""

from __future__ import annotations

import logging
import threading

import pytest

from local_cluster import LocalCluster
from tests.local_cluster.recording import Numbers, chain
from topology_api import Bolt, Context, Tuple

#: A limit in seconds that is never reached.
PATIENCE = 60.0

STARTED = threading.Event()
CLEANED = threading.Event()


class WaitsUntilStopped(Bolt):
    """Its call returns when the worker ends, and not before."""

    threaded = True

    def prepare(self, context: Context) -> None:
        self.context = context
        assert not context.stopped

    def execute(self, tup: Tuple) -> None:
        STARTED.set()
        pause = threading.Event()
        while not self.context.stopped:
            pause.wait(0.01)

    def cleanup(self) -> None:
        CLEANED.set()


def test_a_waiting_call_learns_that_its_worker_ends_and_its_thread_ends_too(
    caplog: pytest.LogCaptureFixture,
) -> None:
    STARTED.clear()
    CLEANED.clear()
    with caplog.at_level(logging.WARNING), LocalCluster() as cluster:
        cluster.submit(chain("waits", Numbers(1), WaitsUntilStopped()))
        assert STARTED.wait(PATIENCE)
    assert CLEANED.wait(PATIENCE)
    assert "left behind" not in caplog.text
