"""A pickle of which some values cannot be read promises all others, whatever the classes of those values do."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from squall.unreadable import Unreadable, loads, loads_rows, why_unreadable


class Raises:
    """Raises in one of the steps in which pickle makes it again."""

    def __init__(self, step: str = "") -> None:
        self.step = step


class InState(Raises):
    def __setstate__(self, state: Any) -> None:
        raise ValueError("state")


class InNew(Raises):
    def __new__(cls, *args: Any) -> Any:
        if args == ("again",):
            raise ValueError("new")
        return super().__new__(cls)

    def __getnewargs__(self) -> tuple[str]:
        return ("again",)


class InNewWithNames(InNew):
    def __getnewargs_ex__(self) -> tuple[tuple[str], dict[str, str]]:
        return ("again",), {}


class InReduce(Raises):
    def __reduce__(self) -> Any:
        return made, ()


def made() -> None:
    raise KeyError("reduce")


class Exits(Raises):
    def __reduce__(self) -> Any:
        return exits, ()


def exits() -> None:
    raise SystemExit(3)


class OddList(list[int]):
    def extend(self, more: Any) -> None:
        raise TypeError("list")

    append = extend


class OddDict(dict[int, int]):
    def __setitem__(self, key: int, value: int) -> None:
        raise TypeError("dict")


def odd_list(*numbers: int) -> OddList:
    made = OddList()
    list.extend(made, numbers)
    return made


def odd_dict(*numbers: int) -> OddDict:
    made = OddDict()
    for number in numbers:
        dict.__setitem__(made, number, number)
    return made


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (InState(), "ValueError: state"),
        (InNew(), "ValueError: new"),
        (InNewWithNames(), "ValueError: new"),
        (InReduce(), "KeyError: 'reduce'"),
        (Exits(), "SystemExit: 3"),
        (odd_list(1), "TypeError: list"),
        (odd_list(1, 2), "TypeError: list"),
        (odd_dict(1), "TypeError: dict"),
        (odd_dict(1, 2), "TypeError: dict"),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, str) else None,
)
def test_only_the_value_that_raises_is_lost(value: Any, why: str) -> None:
    shared = {"a": 1}
    rows = [
        ("before", shared),
        ("itself", value),
        ("inside", [{"deep": (value, 1)}, {2, 3}]),
        ("between", shared),
        ("again", value),
        ("after", [1, 2, {"b": {4}}]),
    ]
    data = pickle.dumps(rows, 5)
    found, faults = loads_rows(data)
    assert [found[at] for at in (0, 3, 5)] == [rows[at] for at in (0, 3, 5)]
    assert faults == {1: why, 2: why, 4: why}
    assert type(found[1][1]) is Unreadable and repr(found[1][1]) == f"<cannot be read: {why}>"
    assert found[2][1][1] == {2, 3}
    again, doubtful = loads(pickle.dumps(found, 5))  # it may be kept once more
    assert doubtful and [why_unreadable(row) for row in again] == ["", why, why, "", why, ""]


def test_a_class_that_is_gone_costs_its_values_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    data = pickle.dumps([("a", 1), ("b", Raises("x")), ("c", Raises)], 5)
    monkeypatch.delattr(f"{__name__}.Raises")
    found, faults = loads_rows(data)
    assert found[0] == ("a", 1) and set(faults) == {1, 2}
    assert f"{__name__}.Raises: AttributeError" in faults[1]


def test_what_can_be_read_is_as_pickle_reads_it_and_other_bytes_are_refused() -> None:
    rows = [(1, "a", [2.5]), (2, b"c", {"squall.unreadable"})]
    assert loads_rows(pickle.dumps(rows, 5)) == (rows, {})
    with pytest.raises(Exception):  # noqa: B017 - of any kind
        loads(b"no pickle")
