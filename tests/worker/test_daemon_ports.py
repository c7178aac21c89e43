"""A worker process listens only on allowed ports, and ends with one sentence when all of them are in use."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from squall.worker_files import EXIT_BAD_ORDERS, PORTS
from tests.port_ranges import free_range
from tests.worker.conftest import Launch
from tests.worker.daemon_components import Notes, one_bolt
from tests.worker.fake_supervisor import CAP


def test_a_worker_listens_on_ports_that_its_supervisor_allows(
    launch: Launch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = free_range(2)
    monkeypatch.setenv(PORTS, f"{first}-{second}")
    worker = launch(one_bolt(Notes(tmp_path, 0.002), tmp_path, None))
    assert worker.wait_heartbeat(lambda heartbeat: heartbeat.opened).address == (
        f"tcp://127.0.0.1:{first}",
        f"tcp://127.0.0.1:{second}",
    )


def test_a_worker_without_a_port_names_the_option(
    launch: Launch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = free_range(2)
    monkeypatch.setenv(PORTS, f"{first}-{second}")
    with socket.create_server(("127.0.0.1", second)):
        worker = launch(one_bolt(Notes(tmp_path, 0.002), tmp_path, None))
        assert worker.process.wait(CAP) == EXIT_BAD_ORDERS
    end = worker.end()
    assert end is not None and f"supervisor.worker.ports ({first}-{second}) are taken" in end.reason
