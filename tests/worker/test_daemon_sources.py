"""How a worker's last heartbeat reports ended sources: those whose trees were cut off by a stop are opened again."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from squall.worker_files import EXIT_STOPPED
from tests.worker.conftest import Launch
from tests.worker.daemon_components import (
    HangsAwaiting,
    Notes,
    Numbers,
    Raises,
    RaisesAtFirst,
    SaysItsEnd,
    SaysItsEndInThread,
    WaitsForLeave,
    lines,
    one_bolt,
)
from tests.worker.fake_supervisor import FakeSupervisor
from topology_api import Bolt


def ordered(worker: FakeSupervisor) -> None:
    worker.order("stop")


def ordered_while_it_drains(worker: FakeSupervisor) -> None:
    worker.order("drain")
    worker.wait_heartbeat(lambda heartbeat: heartbeat.asked == "drain")
    worker.order("stop")


def terminated_twice(worker: FakeSupervisor) -> None:
    worker.process.send_signal(signal.SIGTERM)
    worker.wait(lambda: "drains, then ends" in worker.log(), "the first SIGTERM heard")
    worker.process.send_signal(signal.SIGTERM)


@pytest.mark.parametrize(
    ("kind", "bolt", "stop"),
    [
        (SaysItsEnd, RaisesAtFirst, ordered),
        (SaysItsEndInThread, RaisesAtFirst, terminated_twice),
        (SaysItsEnd, HangsAwaiting, terminated_twice),
        (SaysItsEndInThread, HangsAwaiting, ordered_while_it_drains),
    ],
)
def test_a_source_whose_trees_were_cut_off_by_a_stop_does_not_count_as_finished(
    launch: Launch,
    tmp_path: Path,
    kind: type[SaysItsEnd],
    bolt: Callable[[Path], Bolt],
    stop: Callable[[FakeSupervisor], None],
) -> None:
    worker = launch(one_bolt(bolt(tmp_path), tmp_path, 3, kind=kind))
    worker.wait(lambda: lines(tmp_path / "ended"), "the end of the source")
    stop(worker)
    assert worker.wait_end() == EXIT_STOPPED
    last = worker.heartbeat()
    assert last is not None and last.stopped
    assert last.finished == ()
    assert "1 stopped" in lines(tmp_path / "failed")


def test_a_source_all_of_whose_trees_failed_for_good_counts_as_finished(
    launch: Launch, tmp_path: Path
) -> None:
    worker = launch(one_bolt(Raises(), tmp_path, 3, kind=Numbers))
    worker.wait_heartbeat(lambda heartbeat: heartbeat.finished)
    worker.order("stop")
    assert worker.wait_end() == EXIT_STOPPED
    last = worker.heartbeat()
    assert last is not None and last.stopped
    assert last.finished == (1,)


def test_a_source_counts_as_finished_only_after_its_final_calls(launch: Launch, tmp_path: Path) -> None:
    worker = launch(one_bolt(Notes(tmp_path), tmp_path, 1, kind=WaitsForLeave))
    worker.wait(lambda: lines(tmp_path / "acked"), "the final call")
    worker.order("drain")  # reads the flags while `ack` is running
    assert worker.wait_heartbeat(lambda heartbeat: heartbeat.asked == "drain").finished == ()
    (tmp_path / "leave").touch()
    assert worker.wait_heartbeat(lambda heartbeat: heartbeat.finished).finished == (1,)
