"""A worker process listens at ports that it is allowed, and ends with a sentence when others have them all."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from squall.worker_files import EXIT_BAD_ORDERS, PORTS
from tests.port_ranges import free_range
from tests.worker.conftest import Launch
from tests.worker.daemon_components import Notes, one_bolt
from tests.worker.fake_supervisor import CAP


def test_a_worker_listens_at_the_ports_that_its_supervisor_allows(
    launch: Launch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = free_range(2)
    monkeypatch.setenv(PORTS, f"{first}-{second}")
    worker = launch(one_bolt(Notes(tmp_path, 0.002), tmp_path, None))
    assert worker.wait_heartbeat(lambda heartbeat: heartbeat.opened).address == (
        f"tcp://127.0.0.1:{first}",
        f"tcp://127.0.0.1:{second}",
    )


def test_a_worker_that_finds_no_port_says_which_option_is_why(
    launch: Launch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = free_range(2)
    monkeypatch.setenv(PORTS, f"{first}-{second}")
    with socket.create_server(("127.0.0.1", second)):
        worker = launch(one_bolt(Notes(tmp_path, 0.002), tmp_path, None))
        assert worker.process.wait(CAP) == EXIT_BAD_ORDERS
    end = worker.end()
    assert end is not None and f"supervisor.worker.ports ({first}-{second}) are taken" in end.reason
