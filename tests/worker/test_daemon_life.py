"""A worker process follows its orders, and its heartbeats show its progress."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
from msgspec.structs import replace

from squall.values import Keys
from squall.worker_files import (
    COUNTERS,
    EXIT_BAD_ORDERS,
    EXIT_DRAINED,
    EXIT_STOPPED,
    EXIT_SUPERSEDED,
    EXIT_UNOPENED,
    ORDERS,
    write,
    write_bytes,
)
from tests.worker.conftest import Launch
from tests.worker.daemon_components import (
    Hangs,
    Notes,
    Numbers,
    Raises,
    RaisesPreparing,
    UsesScratch,
    lines,
    lone_spout,
    one_bolt,
)
from tests.worker.fake_supervisor import FakeSupervisor, orders_for, ship


def counters_of(worker: FakeSupervisor) -> str:
    """The text of the counters' file."""
    path = worker.directory / COUNTERS
    return path.read_text() if path.exists() else ""


def test_a_worker_runs_a_topology_to_its_end_and_stops_when_ordered(launch: Launch, tmp_path: Path) -> None:
    worker = launch(one_bolt(Notes(tmp_path), tmp_path, 100))
    heartbeat = worker.wait_heartbeat(lambda heartbeat: heartbeat.ended and heartbeat.finished)
    assert (heartbeat.pid, heartbeat.incarnation, heartbeat.version, heartbeat.asked) == (
        worker.pid,
        (1, 0),
        1,
        "run",
    )
    assert heartbeat.finished == (1,)
    worker.order("stop")
    assert worker.wait_end() == EXIT_STOPPED
    end, last = worker.end(), worker.heartbeat()
    assert end is not None and last is not None
    assert (end.pid, end.status, end.reason) == (worker.pid, 0, "stopped as ordered")
    assert last.stopped and last.number > heartbeat.number
    assert lines(tmp_path / "acked") == [str(number) for number in range(1, 101)]
    assert lines(tmp_path / "cleaned") == [str(worker.pid)]


def test_the_last_counters_include_everything(launch: Launch, tmp_path: Path) -> None:
    worker = launch(one_bolt(Notes(tmp_path), tmp_path, 50))
    worker.wait_heartbeat(lambda heartbeat: heartbeat.ended)
    worker.order("stop")
    worker.wait_end()
    components = json.loads((worker.directory / COUNTERS).read_text())["components"]
    assert (components["numbers"]["emitted"], components["numbers"]["acked"]) == (50, 50)
    assert components["bolt"]["executed"] == 50


def test_the_heartbeat_names_the_process_by_pid_and_start_time(launch: Launch, tmp_path: Path) -> None:
    worker = launch(one_bolt(Notes(tmp_path), tmp_path, None))
    heartbeat = worker.wait_opened()
    stat = Path(f"/proc/{worker.pid}/stat").read_text().rpartition(")")[2].split()
    assert heartbeat.started == int(stat[19])


@pytest.mark.slow
def test_heartbeats_continue_while_the_loop_is_inside_a_call_and_name_it(
    launch: Launch, tmp_path: Path
) -> None:
    worker = launch(one_bolt(Hangs(tmp_path), tmp_path, 10))
    first = worker.wait_heartbeat(lambda heartbeat: heartbeat.executing and heartbeat.executing[2] > 1)
    later = worker.wait_heartbeat(lambda heartbeat: heartbeat.number > first.number + 1)
    assert later.executing is not None and first.executing is not None
    assert later.executing[:2] == ("bolt", 2)
    assert later.executing[2] > first.executing[2]


def test_an_inactive_topology_is_not_opened_before_it_is_activated(launch: Launch, tmp_path: Path) -> None:
    worker = launch(one_bolt(Notes(tmp_path), tmp_path, None), asked="pause")
    heartbeat = worker.wait_heartbeat(lambda heartbeat: heartbeat.asked == "pause")
    assert not heartbeat.opened and not lines(tmp_path / "opened")
    worker.order("run")
    worker.wait_opened()
    worker.wait(lambda: lines(tmp_path / "acked"), "an ack")


def test_a_running_topology_that_is_deactivated_emits_nothing_until_it_is_activated(
    launch: Launch, tmp_path: Path
) -> None:
    worker = launch(one_bolt(Notes(tmp_path), tmp_path, None))
    worker.wait(lambda: lines(tmp_path / "acked"), "an ack")
    worker.order("pause")
    worker.wait_heartbeat(lambda heartbeat: heartbeat.asked == "pause")
    emitted = len(lines(tmp_path / "emitted"))
    worker.order("drain")
    worker.wait_heartbeat(lambda heartbeat: heartbeat.drained)
    assert len(lines(tmp_path / "emitted")) == len(lines(tmp_path / "acked")) == emitted
    worker.order("run")
    worker.wait(lambda: len(lines(tmp_path / "acked")) > emitted, "another ack")
    heartbeat = worker.wait_heartbeat(lambda heartbeat: heartbeat.asked == "run")
    assert not heartbeat.drained


def test_a_worker_that_was_never_opened_is_drained_at_once(launch: Launch, tmp_path: Path) -> None:
    worker = launch(one_bolt(Notes(tmp_path), tmp_path, None), asked="drain")
    assert not worker.wait_heartbeat(lambda heartbeat: heartbeat.drained).opened


def test_orders_are_found_though_their_signal_is_lost(launch: Launch, tmp_path: Path) -> None:
    worker = launch(one_bolt(Notes(tmp_path), tmp_path, None))
    worker.wait_opened()
    worker.write_orders(replace(worker.orders, number=2, asked="stop"))
    assert worker.wait_end() == EXIT_STOPPED


def test_a_spout_that_had_finished_is_not_opened_again(launch: Launch, tmp_path: Path) -> None:
    worker = launch(one_bolt(Notes(tmp_path), tmp_path, 5), finished=(1,))
    assert worker.wait_heartbeat(lambda heartbeat: heartbeat.ended).finished == (1,)
    assert not lines(tmp_path / "opened")


def test_a_worker_whose_bolt_fails_in_prepare_ends_and_names_it(launch: Launch, tmp_path: Path) -> None:
    worker = launch(one_bolt(RaisesPreparing(), tmp_path, 5))
    assert worker.wait_end() == EXIT_UNOPENED
    end, heartbeat = worker.end(), worker.heartbeat()
    assert end is not None and heartbeat is not None
    assert "bolt[2] cannot start: prepare() raised RuntimeError: no database there" in end.reason
    assert heartbeat.crash is None and heartbeat.stopped
    assert "no database there" in (worker.directory / COUNTERS).read_text()


def test_an_error_that_ends_the_topology_is_reported_until_the_worker_stops(
    launch: Launch, tmp_path: Path
) -> None:
    worker = launch(one_bolt(Raises(), tmp_path, 5), {"topology.on.error": "crash"})
    heartbeat = worker.wait_heartbeat(lambda heartbeat: heartbeat.crash)
    assert heartbeat.crash is not None
    assert "bolt[2] of topology 't': execute() raised ValueError: bad number 1" in heartbeat.crash
    worker.wait_heartbeat(lambda later: later.number > heartbeat.number)
    worker.order("stop")
    assert worker.wait_end() == EXIT_STOPPED
    end = worker.end()
    assert end is not None and end.reason == "stopped as ordered, after a crash"


def test_errors_of_user_code_are_in_the_counters_soon_and_in_the_log_once(
    launch: Launch, tmp_path: Path
) -> None:
    worker = launch(one_bolt(Raises(), tmp_path, 10))
    worker.wait(lambda: '"errors":10' in counters_of(worker), "the count of errors")
    worker.wait_heartbeat(lambda heartbeat: heartbeat.ended)
    worker.order("stop")
    worker.wait_end()
    found = [line.rpartition(" ")[2] for line in worker.log().splitlines() if "execute() raised" in line]
    assert found == [str(number) for number in range(1, 11)]


def test_scratch_space_ends_with_the_worker_and_is_not_inherited_from_a_killed_one(
    launch: Launch, tmp_path: Path
) -> None:
    topology = one_bolt(UsesScratch(tmp_path), tmp_path, None)
    first = launch(topology)
    first.wait_opened()
    scratch = Path(lines(tmp_path / "scratch")[0])
    assert scratch.is_relative_to(first.directory) and (scratch / "file").exists()
    (scratch / "left").write_text("x")
    first.process.kill()
    first.wait_end()
    second = launch(topology)
    second.wait_opened()
    assert [path.name for path in scratch.iterdir()] == ["file"]
    second.order("stop")
    second.wait_end()
    assert not scratch.exists()


# SIGTERM and SIGINT.


def test_sigterm_drains_and_ends_without_a_failure(launch: Launch, tmp_path: Path) -> None:
    worker = launch(one_bolt(Notes(tmp_path, 0.001), tmp_path, None))
    worker.wait(lambda: lines(tmp_path / "acked"), "an ack")
    worker.process.send_signal(signal.SIGTERM)
    assert worker.wait_end() == EXIT_DRAINED
    assert lines(tmp_path / "emitted") == lines(tmp_path / "acked")
    assert not lines(tmp_path / "failed")
    end, heartbeat = worker.end(), worker.heartbeat()
    assert end is not None and end.reason == "drained, and ended by SIGTERM"
    assert heartbeat is not None and heartbeat.stopped
    assert lines(tmp_path / "cleaned") == [str(worker.pid)]


@pytest.mark.slow
def test_a_second_sigterm_ends_a_worker_at_once_though_a_call_never_returns(
    launch: Launch, tmp_path: Path
) -> None:
    worker = launch(one_bolt(Hangs(tmp_path), tmp_path, 10))
    worker.wait(lambda: lines(tmp_path / "hangs"), "the call")
    worker.process.send_signal(signal.SIGTERM)
    worker.wait_heartbeat(lambda heartbeat: heartbeat.executing and heartbeat.executing[2] > 1)
    worker.process.send_signal(signal.SIGTERM)
    assert worker.wait_end() == EXIT_STOPPED
    end = worker.end()
    assert end is not None and "a second SIGTERM" in end.reason
    assert "in wait_for_ever" in worker.log()


def test_an_interrupt_of_the_terminal_is_not_for_the_worker(launch: Launch, tmp_path: Path) -> None:
    worker = launch(one_bolt(Notes(tmp_path), tmp_path, None))
    worker.wait_opened()
    worker.process.send_signal(signal.SIGINT)
    acked = len(lines(tmp_path / "acked"))
    worker.wait(lambda: len(lines(tmp_path / "acked")) > acked + 10, "more acks")


# Invalid orders.


def test_without_orders_there_is_nothing_to_do(tmp_path: Path) -> None:
    topology = lone_spout(Numbers(tmp_path, 1))
    orders = orders_for(topology, ship(topology, tmp_path / "bundle"))
    with FakeSupervisor(tmp_path / "w1", orders, with_orders=False) as worker:
        assert worker.wait_end() == EXIT_BAD_ORDERS
        end = worker.end()
        assert end is not None and "there are no orders" in end.reason


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"{", "cannot be read"),
        (b"[]", "is not a file of format"),
        (b'{"format": 77}', "is not a file of format"),
        (b'{"format": 1, "number": 1}', "without its field"),
    ],
)
def test_a_file_without_orders_is_named(tmp_path: Path, content: bytes, reason: str) -> None:
    topology = lone_spout(Numbers(tmp_path, 1))
    orders = orders_for(topology, ship(topology, tmp_path / "bundle"))
    (tmp_path / "w1").mkdir()
    write_bytes(tmp_path / "w1", ORDERS, content)
    with FakeSupervisor(tmp_path / "w1", orders, with_orders=False) as worker:
        assert worker.wait_end() == EXIT_BAD_ORDERS
        end = worker.end()
        assert end is not None and reason in end.reason and ORDERS in end.reason


def test_orders_that_contradict_themselves_are_refused(launch: Launch, tmp_path: Path) -> None:
    worker = launch(
        lone_spout(Numbers(tmp_path, 1)), asked="dance", lease_secs=-1.0, tasks=((7, "spout", 0),)
    )
    assert worker.wait_end() == EXIT_BAD_ORDERS
    end = worker.end()
    assert end is not None
    for problem in ("'dance'", "differ in [1, 7]", "a lease of -1.0 s"):
        assert problem in end.reason


def test_a_bundle_that_is_missing_or_damaged_is_named(launch: Launch, tmp_path: Path) -> None:
    worker = launch(lone_spout(Numbers(tmp_path, 1)), bundle=str(tmp_path / "nowhere"))
    assert worker.wait_end() == EXIT_BAD_ORDERS
    end = worker.end()
    assert end is not None and str(tmp_path / "nowhere") in end.reason


def test_an_address_that_this_machine_does_not_have_is_named(launch: Launch, tmp_path: Path) -> None:
    worker = launch(lone_spout(Numbers(tmp_path, 1)), bind="192.0.2.1")
    assert worker.wait_end() == EXIT_BAD_ORDERS
    end = worker.end()
    assert end is not None and "192.0.2.1" in end.reason


def test_bad_orders_are_logged_and_the_old_ones_stay_in_force(launch: Launch, tmp_path: Path) -> None:
    worker = launch(one_bolt(Notes(tmp_path), tmp_path, None))
    worker.wait_opened()
    write_bytes(worker.directory, ORDERS, b"{")
    worker.process.send_signal(signal.SIGUSR1)
    worker.wait(lambda: "orders 1 stay in force" in worker.log(), "a line about them")
    acked = len(lines(tmp_path / "acked"))
    worker.wait(lambda: len(lines(tmp_path / "acked")) > acked + 10, "more acks")
    worker.order("stop")
    assert worker.wait_end() == EXIT_STOPPED


@pytest.mark.parametrize(
    "change", [{"incarnation": (1, 1)}, {"worker": "w9"}, {"topology_id": "other-2"}, {"placements": ()}]
)
def test_orders_for_another_process_end_this_one(
    launch: Launch, tmp_path: Path, change: dict[str, object]
) -> None:
    worker = launch(one_bolt(Notes(tmp_path), tmp_path, None))
    worker.wait_opened()
    if "placements" in change:
        change["tasks"] = ()
    worker.order(**change)  # type: ignore[arg-type]
    assert worker.wait_end() == EXIT_SUPERSEDED
    end = worker.end()
    assert end is not None and end.incarnation == (1, 0)


def test_a_module_on_the_path_with_one_of_our_names_is_reported(launch: Launch, tmp_path: Path) -> None:
    (tmp_path / "w1" / "nimbus").mkdir(parents=True)
    (tmp_path / "w1" / "nimbus" / "__init__.py").write_text("")
    worker = launch(lone_spout(Numbers(tmp_path, 1)))
    assert worker.wait_end() == 70
    assert f"found:    {tmp_path}/w1/nimbus/__init__.py" in worker.output()


def test_the_command_without_a_directory_shows_its_usage() -> None:
    import subprocess
    import sys

    done = subprocess.run(
        [sys.executable, "-m", "worker"], capture_output=True, text=True, env={**os.environ}, timeout=60
    )
    assert done.returncode == 1 and done.stderr.startswith("usage: python -m worker DIRECTORY")


def test_the_secret_key_is_in_no_other_file_and_no_log(launch: Launch, tmp_path: Path) -> None:
    from squall.transport.carriers.sockets import make_keys

    keys: Keys = make_keys()
    (tmp_path / "w1").mkdir()
    write(tmp_path / "w1", "keys.json", keys, 0o600)
    worker = launch(one_bolt(Notes(tmp_path), tmp_path, 5))
    worker.wait_heartbeat(lambda heartbeat: heartbeat.ended)
    worker.order("stop")
    worker.wait_end()
    for path in worker.directory.iterdir():
        if path.is_file() and path.name != "keys.json":
            assert keys.secret.encode() not in path.read_bytes(), path
