"""Names of a table's files: no two things have one name, and each name identifies its content."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from squall_io.spark.manifest.layout import (
    SCHEMAS,
    BatchName,
    WriterId,
    batch_of,
    claim_of,
    claim_path,
    fence_path,
    is_hidden,
    number_of,
    numbered,
    safe,
)

NAMES = st.one_of(
    st.text(max_size=90),
    st.sampled_from(
        ["squall-words-1-1700000000", "squall-", "a.b.0.1.1", "x-1-00000", "ü", "A", "a~7e", "~"]
    ),
)
NUMBERS = st.integers(0, 10**9)
WRITER_IDS = st.builds(WriterId.of, NAMES, NAMES, NUMBERS)
BATCHES = st.builds(BatchName, WRITER_IDS, NUMBERS, NUMBERS)


@given(NAMES, NAMES)
def test_two_names_are_never_alike(one: str, other: str) -> None:
    assert (safe(one) == safe(other)) == (one == other)


@given(NAMES)
def test_a_name_is_short_and_has_harmless_characters_only(name: str) -> None:
    assert re.fullmatch(r"[A-Za-z0-9_~-]{0,72}", safe(name))


@given(BATCHES, NUMBERS, NUMBERS, st.sampled_from([".snappy.parquet", ".json", ".json.gz", ".csv", ""]))
def test_a_batch_is_found_by_the_names_of_all_its_files(
    batch: BatchName, attempt: int, number: int, suffix: str
) -> None:
    assert batch_of(str(batch)) == batch
    assert batch_of(batch.commit.rpartition("/")[2]) == batch
    name = batch.data_file(attempt, number, suffix)
    assert batch_of(name) == batch
    assert name.startswith(batch.data_prefix)


@given(BATCHES, BATCHES, NUMBERS)
def test_data_files_of_two_batches_do_not_begin_alike(one: BatchName, other: BatchName, number: int) -> None:
    assert one.data_file(1, number, ".orc").startswith(other.data_prefix) == (one == other)


@given(WRITER_IDS, NUMBERS)
def test_claims_and_fences_are_distinguished(writer_id: WriterId, epoch: int) -> None:
    assert claim_of(claim_path(writer_id, epoch).rpartition("/")[2]) == (writer_id, epoch, "claim")
    assert claim_of(fence_path(writer_id, epoch).rpartition("/")[2]) == (writer_id, epoch, "fence")
    assert batch_of(claim_path(writer_id, epoch).rpartition("/")[2]) is None


def test_the_longest_name_fits_into_a_file_system_with_room_for_a_temporary_one() -> None:
    writer_id = WriterId.of("t" * 500, "c" * 500, 99_999)
    name = BatchName(writer_id, 99_999, 999_999_999).data_file(999, 99_999, ".snappy.parquet")
    assert len(f".{name}.crc") < 255
    assert len(f"{BatchName(writer_id, 99_999, 999_999_999)}.json.{'0' * 32}") < 255


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".json",
        "a.b.0.1",
        "a.b.0.1.1.1",
        "a.b.0.1.01",
        "a.b.00.1.1",
        "a.b.0.1.-1",
        "a.b.0.1.x",
        "a.b.0.1.²",
        "squall-a.b.0.1.1.parquet",
        "squall-a.b.0.1.1-00000.parquet",
        "part-00000.parquet",
        "a.b.0.1.١",
    ],
)
def test_an_invalid_batch_name_is_ignored(name: str) -> None:
    assert batch_of(name) is None
    assert batch_of(f"{name}.json") is None


@pytest.mark.parametrize(
    "name", ["a.b.0.1.json", "a.b.0.01.claim.json", "a.b.0.1.claim", "a.b.x.1.fence.json"]
)
def test_an_invalid_claim_name_is_ignored(name: str) -> None:
    assert claim_of(name) is None


def test_numbers_are_read_as_they_are_written() -> None:
    assert number_of(numbered(SCHEMAS, 12).rpartition("/")[2]) == 12
    assert [number_of(name) for name in ("012.json", "12", "x.json", ".json", "²-1.json")] == [None] * 5


def test_names_that_spark_ignores_are_hidden() -> None:
    hidden = ["_temporary", "_SUCCESS", ".part-00000.crc", "._day=1", "_"]
    assert [name for name in [*hidden, "_day=1", "day=_1", "part-00000", ""] if is_hidden(name)] == hidden
