"""The options of `squall supervisor`: its address for others, the ports of its workers, and a late ZooKeeper."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from click.testing import CliRunner

from squall.cluster.store import Unavailable
from squall.cluster.zookeeper import NoAccess, ZooKeeperStore
from squall_cli.commands import daemon_options
from squall_cli.commands.daemon_options import connect
from squall_cli.commands.daemons import listen_by, unreached
from squall_cli.main import squall
from topology_api import SquallError
from topology_api.options import problems_of

CAP = 30.0
ZOOKEEPER = ("--zookeeper", "127.0.0.1:1", "--insecure-zookeeper")
FAR, NEAR = "zoo-1:2181,zoo-2:2181", "127.0.0.1:2181,localhost:2182,[::1]:2183"


# Its address for others


@pytest.mark.parametrize(
    ("said", "host", "bind", "listen", "servers", "options"),
    [
        ("w1", "w1", "127.0.0.1", "127.0.0.1", FAR, ["--bind", "--listen"]),
        ("w1", "w1", "127.0.0.1", "127.0.0.1", NEAR, ["--bind", "--listen"]),
        ("w1", "w1", "0.0.0.0", "127.0.0.1", FAR, ["--listen"]),
        ("w1", "w1", "10.0.0.7", "localhost", FAR, ["--listen"]),
        ("w1", "w1", "127.0.0.1", "0.0.0.0", FAR, ["--bind"]),
        (None, "own-name", "127.0.0.1", "127.0.0.1", FAR, ["--bind", "--listen"]),
        (None, "own-name", "127.0.0.1", "127.0.0.1", NEAR, []),
        ("w1", "w1", "0.0.0.0", "0.0.0.0", FAR, []),
        ("w1", "w1", "10.0.0.7", "10.0.0.7", FAR, []),
        ("127.0.0.1", "127.0.0.1", "127.0.0.1", "127.0.0.1", FAR, []),
        ("localhost", "localhost", "0.0.0.0", "127.0.0.1", FAR, ["workers of this host at 'localhost'"]),
        ("127.0.0.1", "127.0.0.1", "0.0.0.0", "", NEAR, ["workers of this host at", "logs of this host at"]),
    ],
)
def test_a_supervisor_that_others_cannot_reach_names_the_option(
    said: str | None, host: str, bind: str, listen: str, servers: str, options: list[str]
) -> None:
    warnings = unreached(said, host, bind, listen, servers)
    assert len(warnings) == len(options)
    for warning, option in zip(warnings, options, strict=True):
        assert option in warning and "Otherwise" in warning


def test_logs_are_served_where_workers_listen_by_default() -> None:
    assert listen_by("0.0.0.0") == ("0.0.0.0", 0)
    assert listen_by("*") == ("0.0.0.0", 0)
    assert listen_by("10.0.0.7") == ("10.0.0.7", 0)
    assert listen_by("127.0.0.1") == ("127.0.0.1", 0)
    assert listen_by("lo") == ("127.0.0.1", 0), "the name of an interface, where only workers can listen"


def test_squall_dev_keeps_to_the_ports_too(tmp_path: Path) -> None:
    (tmp_path / "squall.yaml").write_text("supervisor.worker.ports: 6700-6701\n")
    config = ("--config", str(tmp_path / "squall.yaml"), "--state", str(tmp_path / "state"))
    result = CliRunner().invoke(squall, ["dev", "--listen", "127.0.0.1:0", "--slots", "2", *config])
    assert result.exit_code == 1
    assert "which has 2 ports, but 2 slots need 4" in f"{result.output} {result.exception}"


def run(folder: Path, *arguments: str) -> tuple[int, str]:
    (folder / "squall.yaml").write_text("supervisor.worker.ports: 6700-6705\n")
    config = ("--config", str(folder / "squall.yaml"), "--state", str(folder / "state"))
    result = CliRunner().invoke(squall, ["supervisor", *ZOOKEEPER, *config, *arguments])
    return result.exit_code, f"{result.output} {result.exception}"


def test_a_bind_to_all_addresses_without_a_certificate_asks_for_one_since_logs_are_served_there_too(
    tmp_path: Path,
) -> None:
    code, said = run(tmp_path, "--bind", "0.0.0.0", "--slots", "3")
    assert code == 1 and "squall.tls.certificate" in said and "reads the workers' logs" in said


# Ports of workers


def test_fewer_ports_than_the_slots_need_are_refused_with_a_possible_number(tmp_path: Path) -> None:
    code, said = run(tmp_path, "--slots", "4")
    assert code == 1
    assert "'supervisor.worker.ports' is 6700-6705, which has 6 ports, but 4 slots need 8" in said
    assert "--slots 3" in said


@pytest.mark.parametrize(
    "value", [6700, "6700", "6799-6700", "0-10", "6700-65536", "6700-6700", "a-b", " 1-2", "6700-6799\n", ""]
)
def test_an_invalid_range_of_ports_is_refused(value: object) -> None:
    [problem] = problems_of({"supervisor.worker.ports": value}, "daemon")
    assert "such as 6700-6799" in problem


@pytest.mark.parametrize("value", ["6700-6799", "1-65535", None])
def test_a_range_of_ports_is_accepted(value: object) -> None:
    assert problems_of({"supervisor.worker.ports": value}, "daemon") == []


# A late ZooKeeper


class Comes:
    """A store whose ZooKeeper behaves as given, one attempt to connect after another."""

    def __init__(self, *answers: SquallError | None) -> None:
        self.answers = list(answers)
        self.waits: list[float] = []
        self.over = threading.Event()

    def start(self, wait_secs: float) -> None:
        self.waits.append(wait_secs)
        answer = self.answers.pop(0)
        if not self.answers:
            self.over.set()
        if answer is not None:
            raise answer


def connected(store: Comes, refused: Callable[[SquallError], Any]) -> None:
    connect(cast(ZooKeeperStore, store), refused)


def test_zookeeper_may_start_after_its_daemons_which_report_that_they_wait(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = Comes(Unavailable("no ZooKeeper answered."), Unavailable("no ZooKeeper answered."), None)
    refusals: list[SquallError] = []
    connected(store, refusals.append)
    assert store.over.wait(CAP)
    assert store.waits == [daemon_options.FIRST_SECS, daemon_options.AGAIN_SECS, daemon_options.AGAIN_SECS]
    assert refusals == []
    waiting = [each for each in caplog.records if each.levelno == logging.WARNING]
    assert [each.getMessage() for each in waiting] == ["no ZooKeeper answered. Waiting for it"] * 2


def test_a_supervisor_refused_by_zookeeper_ends_at_once_or_when_it_notices() -> None:
    with pytest.raises(NoAccess, match="not you"):
        connected(Comes(NoAccess("not you")), lambda error: None)
    refusals: list[SquallError] = []
    told = threading.Event()

    def refused(error: SquallError) -> None:
        refusals.append(error)
        told.set()

    connected(Comes(Unavailable("away."), NoAccess("not you")), refused)
    assert told.wait(CAP)
    assert [str(error) for error in refusals] == ["not you"]
