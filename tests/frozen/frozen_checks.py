"""Comparisons of the current code's results for a fixture with those of the old code.

Must not know: which fixtures there are.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from tests.frozen.mutations import Reader, digest, expected, mutations, outcome
from tests.frozen.on_purpose import DIFFERENCES, Difference, reasons
from tests.frozen.plain_values import lacking, plain, text_of

#: Differences that a failed test shows.
SHOWN: Final = 20


def check_read(read: Reader, data: bytes, value: Any) -> None:
    """Check that bytes give the same value as before."""
    assert lacking(plain(read(data)), value) == []


def check_written(write: Callable[[Any], bytes], value: Any, data: bytes) -> None:
    """Check that a value is written as before, except for JSON's freedoms: escapes and the order of fields."""
    now, then = json.loads(write(value)), json.loads(data)
    assert text_of(now) == text_of(then)


def check_mutations(of: str, read: Reader, table: Mapping[str, Any]) -> None:
    """Check that each mutation is read or refused as before, but for deliberate differences, and that each of these occurs."""
    data, numbers = table["data"].encode("ascii"), table["numbers"]
    assert digest(mutations(data, numbers)) == table["digest"], "mutations are no longer made in the same way"
    usual, wanted = plain(read(data)), expected(table)
    others: list[str] = []
    explained: set[Difference] = set()
    for name, mutated in mutations(data, numbers):
        was, now = wanted.pop(name), outcome(read, mutated, usual)
        if not same_outcome(was, now):
            found = reasons(of, mutated, was, now)
            explained.update(found)
            if not found:
                others.append(f"{name}: was {text_of(was):.150}, is {text_of(now):.150}")
    assert not wanted
    assert not others, "\n".join([f"{len(others)} outcomes of {of} are others:", *others[:SHOWN]])
    useless = [each for each in DIFFERENCES if each.of == of and each not in explained]
    assert not useless, "these deliberate differences change no outcome: remove them"


def same_outcome(was: Any, now: Any) -> bool:
    """Whether an outcome is the same as before; a record in it may have more fields by now."""
    if isinstance(was, str) or isinstance(now, str):
        return bool(was == now)
    return was.keys() == now.keys() and not any(lacking(now[name], was[name]) for name in was)
