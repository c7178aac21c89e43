"""Records of a manifest: they are read as written, and any other content is named and never misread."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from squall.stores.paths import leaves_table
from squall_io.spark.manifest.entries import BatchEntry, DataFile, decode_entry, encode_entry
from squall_io.spark.manifest.envelopes import FORMAT, UnreadableRecord, seal, unseal
from squall_io.spark.manifest.layout import BatchName, WriterId

WRITER_ID = WriterId.of("counts-1-1700000000", "sink", 0)
TEXTS = st.text(st.characters(codec="utf-8"), max_size=30)
#: Paths below a table.
PATHS = st.lists(TEXTS, min_size=1, max_size=3).map("/".join).filter(lambda path: not leaves_table(path))
FILES = st.builds(DataFile, PATHS, st.integers(0, 2**60), TEXTS)
ENTRIES = st.builds(
    BatchEntry,
    batch=st.builds(BatchName, st.just(WRITER_ID), st.integers(1, 10**6), st.integers(1, 10**6)),
    topology=TEXTS,
    topology_id=TEXTS,
    component=TEXTS,
    incarnation=st.tuples(st.integers(0, 10**6), st.integers(0, 10**6)),
    schema=st.integers(1, 100),
    rows=st.integers(0, 2**60),
    files=st.lists(FILES, max_size=3).map(tuple),
    committed=st.floats(0, 1e11),
    replaces=st.lists(TEXTS, max_size=2).map(tuple),
)
ENTRY = BatchEntry(
    batch=BatchName(WRITER_ID, 2, 7),
    topology="counts",
    topology_id="counts-1-1700000000",
    component="sink",
    incarnation=(3, 1),
    schema=1,
    rows=2,
    files=(DataFile("day=1/squall-x.parquet", 812, "sha256:00"),),
    committed=1_700_000_000.25,
)


@given(ENTRIES)
def test_an_entry_is_read_as_it_was_written(entry: BatchEntry) -> None:
    assert decode_entry(encode_entry(entry), entry.batch.commit) == entry


@given(ENTRIES, st.floats(0, 1e11))
def test_the_content_of_an_entry_is_everything_but_its_time(entry: BatchEntry, when: float) -> None:
    later = BatchEntry(**{**entry.__dict__, "committed": when})
    other = BatchEntry(**{**entry.__dict__, "rows": entry.rows + 1})
    assert later.content == entry.content != other.content


def test_an_entry_truncated_anywhere_is_named() -> None:
    data = encode_entry(ENTRY)
    for length in range(len(data) - 2):  # the last two bytes are the end of line and the bracket
        with pytest.raises(UnreadableRecord, match=r"commits/.*is truncated or damaged"):
            decode_entry(data[:length], ENTRY.batch.commit)


def test_an_entry_with_a_byte_changed_anywhere_is_named_or_means_the_same() -> None:
    data = encode_entry(ENTRY)
    named = 0
    for position in range(len(data)):
        for flip in (1, 32, 128):
            damaged = data[:position] + bytes([data[position] ^ flip]) + data[position + 1 :]
            try:
                assert decode_entry(damaged, ENTRY.batch.commit) == ENTRY
            except UnreadableRecord as problem:
                assert problem.path == ENTRY.batch.commit
                named += 1
    assert named > 2 * len(data)


@given(st.binary(max_size=60))
@example(b"[" * 100_000)
@example(b"{}")
@example(b"null")
@example(b'{"format": true}')
def test_a_file_that_is_no_record_is_named(data: bytes) -> None:
    with pytest.raises(UnreadableRecord):
        unseal("commit", data, "commits/x.json")


def test_a_record_of_a_newer_squall_is_named_as_such() -> None:
    fields = {**json.loads(seal("commit", {"a": 1})), "format": FORMAT + 1}
    with pytest.raises(UnreadableRecord, match=rf"c.json has format {FORMAT + 1}.*newer Squall") as caught:
        unseal("commit", json.dumps(fields).encode(), "c.json")
    assert caught.value.newer


def test_a_record_of_another_kind_is_named() -> None:
    with pytest.raises(UnreadableRecord, match=r"c.json is not a valid Squall record of a commit"):
        unseal("commit", seal("fence", {"counts": []}), "c.json")


def test_an_entry_under_the_name_of_another_batch_is_named() -> None:
    path = BatchName(WRITER_ID, 2, 8).commit
    with pytest.raises(
        UnreadableRecord, match=f"{path} is damaged: it holds the entry of batch {ENTRY.batch}"
    ):
        decode_entry(encode_entry(ENTRY), path)


@pytest.mark.parametrize("field", ["batch", "incarnation", "files", "rows", "committed", "replaces"])
def test_an_incomplete_entry_is_named(field: str) -> None:
    fields = json.loads(encode_entry(ENTRY))
    for key in ("digest", "kind", "format", field):
        del fields[key]
    with pytest.raises(UnreadableRecord, match="is not a valid Squall record of a manifest entry"):
        decode_entry(seal("commit", fields), ENTRY.batch.commit)
