"""The ledger's topology adds up without faults, and when bolts fail with all workers in one process."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from local_cluster import LocalCluster
from tests.faults.ledger import SINK, SPOUT, account, lives_of, read
from tests.faults.ledger_topology import STOP, LedgerSink, Relay, ledger_topology, values_of
from topology_api import FailTuple, Replay, Topology, Tuple

CAP = 60.0


class Refusing(Relay):
    """Fails every seventh tuple."""

    seen = 0

    def execute(self, tup: Tuple) -> None:
        self.seen += 1
        if self.seen % 7 == 0:
            raise FailTuple("the seventh")
        self.emit(tup.values)


def run(topology: Topology, books: Path, least: int) -> None:
    """Run until this many numbers were seen, then to the end."""
    with LocalCluster(encode=True) as cluster:
        cluster.submit(topology)
        deadline = time.monotonic() + CAP
        while account(read(books)).seen < least:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        Path(books, STOP).touch()
        cluster.wait(topology.name, timeout=CAP)


def test_a_run_without_faults_adds_up(tmp_path: Path) -> None:
    run(ledger_topology(tmp_path, rate=None), tmp_path, 500)
    lives = read(tmp_path)
    whole = account(lives)
    assert whole.problems == []
    assert whole.acked == whole.emitted == whole.seen >= 500
    assert (whole.spout_lives, whole.sink_lives, whole.duplicates) == (2, 2, 0)
    assert all(any(life.of("S")) for life in lives_of(lives, SINK)), "both sinks have their share of the keys"


@pytest.mark.parametrize("replay", [None, Replay(max_attempts=50, first_delay=0.0)])
def test_failed_tuples_are_emitted_until_they_are_acked(tmp_path: Path, replay: Replay | None) -> None:
    run(ledger_topology(tmp_path, rate=None, relay=Refusing(), replay=replay), tmp_path, 300)
    lives = read(tmp_path)
    whole = account(lives)
    assert whole.problems == []
    numbers = {entry.number for life in lives_of(lives, SPOUT) for entry in life.of("E")}
    assert whole.acked == len(numbers)
    assert bool(whole.failed["failed"]) is (replay is None), "replays by the runtime are not final"


def test_a_second_run_resumes_where_the_first_was_cut_off(tmp_path: Path) -> None:
    with LocalCluster() as cluster:
        cluster.submit(ledger_topology(tmp_path, rate=None))
        deadline = time.monotonic() + CAP
        while account(read(tmp_path)).seen < 100:
            assert time.monotonic() < deadline
            time.sleep(0.02)
    run(ledger_topology(tmp_path, rate=None), tmp_path, 300)
    whole = account(read(tmp_path))
    assert whole.problems == []
    assert whole.spout_lives == 4


def test_the_rate_limits_the_spouts_emissions(tmp_path: Path) -> None:
    began = time.monotonic()
    run(ledger_topology(tmp_path, rate=100.0), tmp_path, 40)
    passed = time.monotonic() - began
    assert account(read(tmp_path)).emitted <= 2 * (100.0 * passed + 1)


@pytest.mark.parametrize(
    ("values", "kind"),
    [(values_of(5, 64, 10), "S"), ((*values_of(5, 64, 10)[:3], b"other"), "W"), (("x", 0, "", b""), "W")],
)
def test_the_sink_notices_values_that_do_not_belong_to_the_number(
    tmp_path: Path, values: tuple[object, ...], kind: str
) -> None:
    from local_cluster.testing import run_bolt

    run_bolt(LedgerSink(str(tmp_path), 64, 10), [values], source_fields=("number", "key", "text", "data"))
    assert [entry.kind for life in read(tmp_path) for entry in life.entries] == [kind]
