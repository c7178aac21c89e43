"""A topology moves to another path: it is killed, and begins there with a copy of its state (`--state PATH`)."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from local_cluster import LocalCluster
from squall_cli.options.state_start import what_comes_again
from tests.local_cluster.staged_words import StagedRows, shown_rows
from tests.local_cluster.words_with_state import (
    Count,
    Pass,
    Rows,
    Words,
    commits_at,
    expected_rows,
    rows_at,
    words,
    words_to_rows,
)
from topology_api import FailTuple, Topology, Tuple

TOTAL = 200


class RefusesSome(Rows):
    def row(self, tup: Tuple) -> object:
        if tup["word"] == "w3":
            raise FailTuple("w3 is no word")
        return super().row(tup)


def conf_at(path: Path) -> dict[str, object]:
    return {"topology.state.path": f"file://{path}", "topology.epoch.secs": 0.5}


def topology(sink: Rows | StagedRows) -> Topology:
    return words_to_rows(Words(TOTAL, 20), Count(), sink)


def ended(path: Path, sink: Rows | StagedRows) -> tuple[str, list[str]]:
    """Run a topology for a while, and kill it; return the folder of its state, and the ids of its dead letters."""
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(topology(sink), conf_at(path))
        cluster.advance(4.2)
        cluster.kill("words")
        cluster.advance(60)
        assert not cluster.topologies()
        return f"{path}/words", [letter.id for letter in cluster.dead_letters("words")]


def moved(path: Path, sink: Rows | StagedRows, start: str) -> list[str]:
    """Begin with a copy, and run to the end; return the ids of the dead letters."""
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(topology(sink), conf_at(path), state=start)
        cluster.advance(40)
        assert cluster.state("words", "count", "w0")["times"] == (TOTAL + 6) // 7
        return [letter.id for letter in cluster.dead_letters("words")]


def test_rows_of_a_token_sink_are_written_once_over_a_move(tmp_path: Path) -> None:
    sink = Rows(str(tmp_path / "rows.db"))
    old, _ = ended(tmp_path / "old", sink)
    assert 50 < len(rows_at(tmp_path / "rows.db")) < TOTAL
    moved(tmp_path / "new", sink, old)
    assert rows_at(tmp_path / "rows.db") == expected_rows(list(range(TOTAL)))


def test_rows_of_a_staged_sink_are_shown_once_over_a_move(tmp_path: Path) -> None:
    sink = StagedRows(str(tmp_path / "rows"))
    old, _ = ended(tmp_path / "old", sink)
    moved(tmp_path / "new", sink, old)
    assert shown_rows(tmp_path / "rows") == expected_rows(list(range(TOTAL)))


def test_a_dead_letter_is_one_over_a_move(tmp_path: Path) -> None:
    sink = RefusesSome(str(tmp_path / "rows.db"))
    old, before = ended(tmp_path / "old", sink)
    after = moved(tmp_path / "new", sink, old)
    assert len({*before, *after}) == len(expected_rows(list(range(TOTAL)))) - len(
        rows_at(tmp_path / "rows.db")
    )


@pytest.mark.parametrize("way", ["away", "running", "renamed"])
def test_rows_are_written_once_whichever_of_the_two_topologies_writes_them(tmp_path: Path, way: str) -> None:
    """The database was away until the kill; or the old topology still runs; or the folder has got another name."""
    sink = Rows(str(tmp_path / "rows.db"))
    start = tmp_path / "old" / "words"
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(topology(sink), conf_at(tmp_path / "old"))
        cluster.advance(2.2)
        if way == "running":
            (tmp_path / "away").touch()
            cluster.advance(2)
            shutil.copytree(start, tmp_path / "copy" / "words")
            (tmp_path / "away").unlink()
            start = tmp_path / "copy" / "words"
            cluster.advance(2)  # it writes the rows that are in the copy, too, and later ones
        elif way == "away":
            (tmp_path / "away").touch()
            cluster.advance(2)
            cluster.kill("words", 5)
        cluster.advance(0.2)
    (tmp_path / "away").unlink(missing_ok=True)
    if way == "renamed":
        start = start.rename(tmp_path / "backup")
    before = rows_at(tmp_path / "rows.db")
    moved(tmp_path / "new", sink, str(start))
    found = rows_at(tmp_path / "rows.db")
    assert sorted(set(found)) == expected_rows(list(range(TOTAL)))
    twice = sorted((Counter(found) - Counter(set(found))).elements())
    if way != "running":
        assert twice == []
    else:  # what the old one wrote of later epochs
        copied = commits_at(tmp_path / "copy" / "words")[-1]
        position = next(msgspec.msgpack.decode(each.position) for each in copied if each.task == "words/0")
        assert twice == sorted(set(before) - set(expected_rows(list(range(position))))) != []


def test_the_answer_names_the_sinks_that_show_rows_again(tmp_path: Path) -> None:
    sink = Rows(str(tmp_path / "rows.db"))
    own = "as a state of its own from then on"
    assert what_comes_again("/old/words", topology(sink)) == (
        f"begins with the last epoch of /old/words, {own}: what was shown up to this epoch is not shown again; if that "
        "topology still runs, 'rows' show again what it shows after it"
    )
    assert what_comes_again("/old/words@7", topology(sink)) == (
        f"begins with epoch 7 of /old/words, {own}: what came after it in the input is processed again, and 'rows' show "
        "again what was shown of later epochs"
    )
    assert what_comes_again("/old/words@7", None) == (
        f"begins with epoch 7 of /old/words, {own}: what came after it in the input is processed again, and sinks that have "
        "shown later epochs of it show that again"
    )
    without = words(Words(TOTAL, 20), Pass(), Count())
    assert what_comes_again("/old/words", without) == f"begins with the last epoch of /old/words, {own}"


@pytest.mark.parametrize("known", [True, False])
def test_of_its_own_state_the_answer_names_the_sinks_too(tmp_path: Path, known: bool) -> None:
    said = what_comes_again("@3", topology(Rows(str(tmp_path / "rows.db"))) if known else None)
    again = (
        "'rows' show again what they have shown"
        if known
        else "sinks that have shown later epochs show that again"
    )
    assert (
        said.startswith("begins with epoch 3: what came after it in the input is processed again")
        and again in said
    )
