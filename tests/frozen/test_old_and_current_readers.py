"""The commit's readers and the current ones, side by side: both give the same result for any bytes. It goes with the old
copies.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.frozen import old_counters, old_records, old_worker_files
from tests.frozen.current_code import READ_FILE, READ_RECORD, file_reader
from tests.frozen.frozen_checks import same_outcome
from tests.frozen.frozen_data import load
from tests.frozen.mutations import Reader
from tests.frozen.old_errors import SquallError as OldError
from tests.frozen.on_purpose import DIFFERENCES, FURTHER_DIFFERENCES, Difference, reasons
from tests.frozen.plain_values import plain
from topology_api import SquallError

NUMBERS = st.integers() | st.floats() | st.sampled_from([0, 1, -1, 5, 1.0, 2**53 + 1, 2**64])
TEXTS = st.text(max_size=6) | st.sampled_from(["ACTIVE", "topology.workers", "\ud800"])
JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)


def cases() -> Mapping[str, tuple[Reader, Reader, list[str]]]:
    """Of each kind: the old reader, the current one, and texts that both read."""
    records = load("records").values()
    found: dict[str, tuple[Reader, Reader, list[str]]] = {}
    for kind, current in READ_RECORD.items():
        texts = [each["data"] for each in records if each["kind"] == kind]
        found[kind] = partial(old_records.decode, getattr(old_records, kind)), current, texts
    files = load("files").values()
    for kind, old in OLD_FILES.items():
        found[kind] = old, READ_FILE[kind], [each["data"] for each in files if each["kind"] == kind]
    return found


OLD_FILES: Mapping[str, Reader] = {
    "orders": file_reader(old_worker_files.ORDERS, old_worker_files.read_orders),
    "pulse": file_reader(old_worker_files.PULSE, old_worker_files.read_pulse),
    "end": file_reader(old_worker_files.END, old_worker_files.read_end),
    "keys": file_reader(old_worker_files.KEYS, old_worker_files.read_keys),
    "counters": old_counters.WorkerCounters.from_bytes,
}
CASES = cases()


def outcome(read: Reader, data: bytes) -> Any:
    """A reader's result for bytes: the value, or the name of the error."""
    try:
        return {"is": plain(read(data))}
    except (SquallError, OldError) as error:
        return type(error).__name__
    except Exception as error:
        return f"crash {type(error).__name__}"


def somewhere(value: Any, draw: Callable[[int], int], change: Any) -> Any:
    """The value with a change at one place: a value replaced, added or removed, at any depth."""
    keys: list[Any] = list(value) if isinstance(value, dict) else list(range(len(value)))
    if not keys:
        return change
    key = keys[draw(len(keys))]
    what = draw(6)
    if what == 0:
        del value[key]
    elif what == 1 and isinstance(value, dict):
        value[f"{key}?"] = change
    elif what > 3 and isinstance(value[key], (dict, list)):
        value[key] = somewhere(value[key], draw, change)
    else:
        value[key] = change
    return value


@pytest.mark.parametrize("kind", CASES)
@settings(max_examples=60)
@given(data=st.data())
def test_old_and_current_code_give_the_same_result_for_any_bytes(kind: str, data: st.DataObject) -> None:
    before, current, texts = CASES[kind]
    body = json.loads(data.draw(st.sampled_from(texts)))
    for _ in range(data.draw(st.integers(0, 3))):
        if not isinstance(body, (dict, list)):
            break
        body = somewhere(body, lambda most: data.draw(st.integers(0, most - 1)), data.draw(JSON))
    mutated = json.dumps(body).encode()
    was, now = outcome(before, mutated), outcome(current, mutated)
    assert same_outcome(was, now) or reasons(kind, mutated, was, now), (mutated, was, now)


def test_each_deliberate_difference_is_of_a_table() -> None:
    assert {each.of for each in DIFFERENCES} <= {*load("mutated_files"), *load("mutated_tables")}


def key_of(parent: Any, step: str) -> Any:
    """The key or the index of a step of a path."""
    if isinstance(parent, list):
        return int(step.replace("*", "0"))
    return next(iter(parent)) if step == "*" else step


@pytest.mark.parametrize("difference", FURTHER_DIFFERENCES, ids=lambda each: f"{each.of}: {each.field}")
def test_each_deliberate_difference_outside_the_tables_occurs(difference: Difference) -> None:
    before, current, _ = CASES[difference.of]
    body = parent = json.loads(load("files")[f"{difference.of}: full"]["data"])
    *path, last = difference.field.split(".")
    for step in path:
        parent = parent[key_of(parent, step)]
    key = key_of(parent, last)
    parent[key] = "abc"[: len(parent[key])] if isinstance(parent[key], list) else "abc"
    mutated = json.dumps(body).encode()
    assert difference in reasons(difference.of, mutated, outcome(before, mutated), outcome(current, mutated))
