"""The current code reads records of existing stores as before, and refuses the same ones."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from squall.cluster.records import TopologyRecord, VersionRecord, decode, encode
from tests.frozen.current_code import READ_RECORD, written_again
from tests.frozen.frozen_checks import check_mutations, check_read, check_written
from tests.frozen.frozen_data import DIFFERENCES, load
from tests.frozen.on_purpose import completed

RECORDS: dict[str, dict[str, Any]] = load("records")
FORMAT_6: dict[str, dict[str, Any]] = load("records", DIFFERENCES)
WITH_COMPONENTS: dict[str, type[Any]] = {"TopologyRecord": TopologyRecord, "VersionRecord": VersionRecord}
MUTATED: dict[str, dict[str, Any]] = load("mutated_records")


@pytest.mark.parametrize("name", RECORDS)
def test_a_frozen_record_of_a_store_is_read_unchanged(name: str) -> None:
    frozen = RECORDS[name]
    data = frozen["data"].encode("ascii")
    read = READ_RECORD[frozen["kind"]]
    check_read(read, data, frozen["value"])
    check_written(partial(written_again, frozen["kind"]), data, completed(data))


@pytest.mark.parametrize("name", FORMAT_6)
def test_a_frozen_record_of_format_6_is_read_and_written_unchanged(name: str) -> None:
    frozen = FORMAT_6[name]
    data, kind = frozen["data"].encode("ascii"), WITH_COMPONENTS[frozen["kind"]]
    check_read(partial(decode, kind), data, frozen["value"])
    check_written(encode, decode(kind, data), data)


@pytest.mark.parametrize("kind", MUTATED)
def test_an_invalid_record_is_read_or_refused_as_before(kind: str) -> None:
    check_mutations(kind, READ_RECORD[kind], MUTATED[kind])


@pytest.mark.parametrize("kind", READ_RECORD)
def test_a_record_is_never_taken_for_one_of_another_kind(kind: str) -> None:
    for frozen in RECORDS.values():
        if frozen["kind"] != kind:
            with pytest.raises(Exception) as refused:
                READ_RECORD[kind](frozen["data"].encode("ascii"))
            assert type(refused.value).__name__ == "BadRecord"
