"""Every example does what its header says: run here on simulated time, with its promised outcome asserted."""

from __future__ import annotations

import ast
import importlib
import json
import sqlite3
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from local_cluster import LocalCluster, TopologyStatus
from topology_api import Context, Hook, Topology

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
TEXT = "The cat sat.\n\nthe Cat, and the dog\nsat\n"

Rows = list[tuple[object, ...]]


class Recorder(Hook):
    """The emissions of each component, on any stream."""

    def __init__(self) -> None:
        self.components: dict[int, str] = {}
        self.rows: dict[str, Rows] = {}

    def opened(self, context: Context) -> None:
        self.components[context.task] = context.component

    def emitted(self, task: int, stream: str, values: tuple[object, ...], targets: Sequence[int]) -> None:
        self.rows.setdefault(self.components[task], []).append(values)


@pytest.fixture(autouse=True)
def examples_are_importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))  # as for `python examples/demo.py` and `squall run`


def example(name: str) -> Any:
    module = importlib.import_module(name)
    assert isinstance(module, ModuleType) and module.__file__ == str(EXAMPLES / f"{name}.py")
    return module


def run(
    topology: Topology, seconds: float = 60, *, completes: bool = True
) -> tuple[dict[str, Rows], TopologyStatus]:
    """The emissions of each component and the final status after this many seconds of simulated time."""
    recorder = Recorder()
    with LocalCluster(simulated_time=True, observers=(recorder,)) as cluster:
        cluster.submit(topology)
        cluster.advance(seconds)
        if completes:
            cluster.wait(topology.name)
        return recorder.rows, cluster.status(topology.name)


@pytest.fixture
def text(tmp_path: Path) -> str:
    path = tmp_path / "text.txt"
    path.write_text(TEXT, encoding="utf-8")
    return str(path)


def test_word_count_counts_every_word_of_the_file(text: str) -> None:
    rows, status = run(example("word_count").topology(text))

    latest: dict[object, Any] = {}
    for word, count in rows["count"]:
        latest[word] = max(latest.get(word, 0), count)
    assert latest == Counter(TEXT.split())
    assert (status.components["lines"].acked, status.components["lines"].failed) == (4, 0)


def test_top_words_prints_the_most_frequent_words_at_the_end(
    text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    rows, status = run(example("top_words").topology(text, "3"))

    assert rows["top"] == [(1, "the", 3), (2, "cat", 2), (3, "sat", 2)]
    assert capsys.readouterr().out.split() == ["1", "3", "the", "2", "2", "cat", "3", "2", "sat"]
    assert status.components["lines"].acked == 4


def test_the_join_ships_paid_orders_and_gives_the_rest_to_dead_letters() -> None:
    rows, status = run(example("join_streams").topology())

    assert sorted(rows["join"]) == [(1, "tea", 420), (2, "coffee", 350), (4, "sugar", 80)]
    assert sorted(rows["unmatched"]) == [("orders", 3), ("payments", 9)]
    for source in ("orders", "payments"):
        spout = status.components[source]
        assert (spout.acked, spout.failed, spout.replayed, spout.pending) == (3, 1, 1, 0)


def test_a_joined_tuple_that_fails_makes_both_its_sources_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    join_streams = example("join_streams")
    seen: Counter[int] = Counter()

    def ship(self: Any, tup: Any) -> None:
        seen[tup["order"]] += 1
        if seen[tup["order"]] == 1:
            raise RuntimeError("the printer is jammed")

    monkeypatch.setattr(join_streams.Ship, "execute", ship)
    _, status = run(join_streams.topology())

    assert seen == {1: 2, 2: 2, 4: 2}
    assert [status.components[source].acked for source in ("orders", "payments")] == [3, 3]


def test_a_spouts_own_replays_complete_every_line() -> None:
    rows, status = run(example("own_replay").topology())

    assert sorted(rows["store"]) == [(f"line {n}", 2 if n % 3 == 0 else 1) for n in range(10)]
    log = status.components["log"]
    assert (log.acked, log.failed, log.replayed) == (10, 4, 0), "each failure was the spout's to answer"
    assert log.metrics["given up"] == 0


def test_a_spouts_own_replays_end_after_the_allowed_attempts() -> None:
    rows, status = run(example("own_replay").topology("1"))

    assert len(rows["store"]) == 6
    assert status.components["log"].metrics["given up"] == 4


def test_the_poison_tuple_is_reported_and_dead_lettered_and_harms_no_other(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rows, status = run(example("poison_tuple").topology())

    assert sorted(rows["parse"]) == [("humidity", 40.0), ("temperature", 19.0), ("temperature", 21.5)]
    [(record, why)] = rows["morgue"]
    assert record == "temperature=warm"
    assert "could not convert string to float: 'warm'" in str(why) and "poison_tuple.py:" in str(why)
    assert status.components["parse"].errors == 3
    last = status.errors[-1].render().splitlines()
    assert last[0].startswith("parse[") and "'poison-tuple'" in last[0]
    assert any('poison_tuple.py", line ' in line and line.endswith("in execute") for line in last), last
    assert "given up after 3 attempts: 'temperature=warm'" in capsys.readouterr().out


def test_rolling_counts_include_only_the_window() -> None:
    rows, _ = run(example("rolling_counts").topology("5"), seconds=20.1, completes=False)

    north: list[Any] = [count for sensor, count in rows["counts"] if sensor == "north"]
    assert north[0] < north[1] < north[2] < north[3] < north[4], "the window fills"
    assert north[4:] == [20] * 16, "then it holds five seconds of four readings each"
    assert ("south", 5) in rows["counts"][-2:]


def test_the_large_customer_has_a_task_to_itself() -> None:
    rows, _ = run(example("custom_grouping").topology())

    customers: dict[Any, set[Any]] = {}
    for index, customer in rows["serve"]:
        customers.setdefault(index, set()).add(customer)
    assert customers[0] == {"acme"}
    assert set().union(*(names for index, names in customers.items() if index)) == {
        "ann", "bob", "cem", "dora", "eve",
    }  # fmt: skip
    assert not customers[1] & customers[2], "a small customer has one task too"


def test_batches_write_every_reading_into_the_database_once(tmp_path: Path) -> None:
    path = tmp_path / "readings.sqlite"
    for _ in range(2):  # the second run writes every row again
        _, status = run(example("batches_to_sqlite").topology(str(path), "2500"))
        assert status.components["readings"].acked == 2500
        assert 3 <= status.components["sqlite"].metrics["batches"] <= 10
    database = sqlite3.connect(path)
    assert database.execute("select count(*), count(distinct number) from reading").fetchone() == (2500, 2500)
    database.close()


def test_lookups_run_a_hundred_at_a_time() -> None:
    rows, status = run(example("async_lookups").topology("400"), seconds=1.5)  # one by one: 80 s

    assert rows["tally"] == [("Angola", 100), ("Bhutan", 100), ("Chile", 100), ("Denmark", 100)]
    assert status.components["users"].acked == 400


def test_the_demo_says_that_its_counts_are_right(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    demo = example("demo")
    monkeypatch.setattr(demo, "lines", lambda: iter(TEXT.splitlines() * 50))

    assert demo.main() == 0
    out = capsys.readouterr().out
    assert "200 lines, 450 words, 8 different words" in out
    assert "tuple trees: 200 acked, 0 failed" in out
    assert "The counts of all 8 words equal the plain count." in out
    assert max(map(len, out.splitlines())) <= 80


def test_the_demo_ends_with_status_1_when_its_counts_are_wrong(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    demo = example("demo")
    monkeypatch.setattr(demo, "lines", lambda: iter(TEXT.splitlines()))
    monkeypatch.setattr(demo, "plain_count", lambda: (4, dict.fromkeys(TEXT.split(), 1)))

    assert demo.main() == 1
    assert "WRONG: 1 words are not counted as by the plain loop." in capsys.readouterr().out


def test_the_demo_reads_the_reference_text_and_the_library_of_this_python() -> None:
    text = example("demo").lines()
    start = [next(text) for _ in range(1000)]

    assert any("assert" in line for line in start)
    assert any(line.startswith("import ") for line in text)


def test_every_example_says_how_to_run_it() -> None:
    for path in sorted(EXAMPLES.glob("*.py")):
        header = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        assert f"examples/{path.name}" in header and "squall run" in header, path.name
        assert "teaches" in header, path.name


def test_examples_can_be_described_and_shipped() -> None:
    for path in sorted(EXAMPLES.glob("*.py")):
        if path.stem.startswith("reprocess_"):  # a Spark job
            continue
        topology = example(path.stem).topology()
        described = json.loads(json.dumps(topology.describe()))
        assert Topology.from_description(described, topology.pickles) == topology, path.name
