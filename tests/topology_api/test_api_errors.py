"""The class hierarchy of errors."""

from __future__ import annotations

import pickle

import pytest

from topology_api import errors
from topology_api.errors import (
    CannotPack,
    EmitError,
    FailTuple,
    GroupingError,
    InvalidConfig,
    InvalidTopology,
    NameTaken,
    NoSuchTopology,
    NotYet,
    RowsRefused,
    SquallError,
    StateError,
    TopologyFailed,
)

SAMPLES: list[Exception] = [
    SquallError("x"),
    InvalidTopology(["one", "two"], "word-count"),
    InvalidConfig(["one"], "the environment"),
    EmitError("x"),
    GroupingError("x"),
    StateError("x"),
    FailTuple("bad line"),
    RowsRefused({3: "no such key", 5: "no price"}),
    NotYet("processes", "run in process"),
    NoSuchTopology("a"),
    NameTaken("a"),
    NameTaken("a", being_killed=True),
    TopologyFailed("a", "report"),
    CannotPack("bolt 'count'", "self.db.lock", "TypeError: cannot pickle"),
]


def test_every_error_of_the_module_is_in_the_samples() -> None:
    assert sorted({type(error).__name__ for error in SAMPLES}) == sorted(errors.__all__)


@pytest.mark.parametrize("error", SAMPLES, ids=lambda error: type(error).__name__)
def test_an_error_is_unchanged_by_pickling(error: Exception) -> None:
    back = pickle.loads(pickle.dumps(error))
    assert type(back) is type(error)
    assert str(back) == str(error)
    assert vars(back) == vars(error)


def test_all_but_those_that_users_raise_are_squall_errors() -> None:
    others = [type(error) for error in SAMPLES if not isinstance(error, SquallError)]
    assert others == [FailTuple, RowsRefused]
    assert issubclass(GroupingError, EmitError)


def test_invalid_topology_lists_every_problem_and_names_the_topology() -> None:
    error = InvalidTopology(["first", "second\nline"], "word-count")
    assert error.problems == ("first", "second\nline")
    assert str(error) == "topology 'word-count' has 2 problems:\n  - first\n  - second\n    line"


def test_objects_that_cannot_be_packed_are_reported_with_their_place_and_advice() -> None:
    text = str(CannotPack("bolt 'count'", "self.db.lock", "TypeError: cannot pickle '_thread.lock' object"))
    assert text.startswith("bolt 'count': self.db.lock cannot be shipped")
    assert "prepare" in text


def test_refused_rows_carry_their_reasons_and_show_the_first() -> None:
    assert RowsRefused({3: "no such key"}).reasons == {3: "no such key"}
    assert str(RowsRefused({3: "no such key"})) == "1 row is refused: no such key"
    assert str(RowsRefused({3: "no such key", 5: "no price"})) == "2 rows are refused: no such key"
    assert str(RowsRefused({})) == "0 rows are refused: no reason"


def test_fail_tuple_carries_its_reason() -> None:
    assert FailTuple("bad line").reason == "bad line"
    assert str(FailTuple("bad line")) == "bad line"
    assert FailTuple().reason is None
