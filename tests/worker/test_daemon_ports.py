"""A worker process listens at ports that it is allowed, and ends with a sentence when others have them all."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from squall.worker_files import EXIT_BAD_ORDERS, PORTS
from tests.worker.conftest import Launch
from tests.worker.daemon_components import Notes, one_bolt
from tests.worker.fake_supervisor import CAP


def two_free_ports() -> tuple[int, int]:
    """Two that follow each other."""
    for first in range(30_000, 32_000, 2):
        try:
            with socket.create_server(("127.0.0.1", first)), socket.create_server(("127.0.0.1", first + 1)):
                return first, first + 1
        except OSError:
            continue
    raise AssertionError("no free ports")


def test_a_worker_listens_at_the_ports_that_its_supervisor_allows(
    launch: Launch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = two_free_ports()
    monkeypatch.setenv(PORTS, f"{first}-{second}")
    worker = launch(one_bolt(Notes(tmp_path, 0.002), tmp_path, None))
    assert worker.wait_pulse(lambda pulse: pulse.opened).address == (
        f"tcp://127.0.0.1:{first}",
        f"tcp://127.0.0.1:{second}",
    )


def test_a_worker_that_finds_no_port_says_which_option_is_why(
    launch: Launch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = two_free_ports()
    monkeypatch.setenv(PORTS, f"{first}-{second}")
    with socket.create_server(("127.0.0.1", second)):
        worker = launch(one_bolt(Notes(tmp_path, 0.002), tmp_path, None))
        assert worker.process.wait(CAP) == EXIT_BAD_ORDERS
    end = worker.end()
    assert end is not None and f"supervisor.worker.ports ({first}-{second}) are taken" in end.reason
