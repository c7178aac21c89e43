"""Every record that is written can be read back, equal; any other record is refused with an error that names the field."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from squall.cluster.memory import InMemoryStore
from squall.cluster.record_sets import RecordSet
from squall.cluster.records import (
    Assignment,
    BadRecord,
    EndedVersion,
    NimbusRecord,
    Note,
    Placement,
    Record,
    SupervisorRecord,
    TopologyRecord,
    VersionRecord,
    WorkerReport,
    decode,
)
from squall.cluster.registry import Registry
from squall.reports.events import Event
from squall.values import Incarnation, TaskRow
from tests.squall.cluster.small_records import PLACED, REPORT, WORDS

RECORDS: dict[type[Record], Record] = {
    TopologyRecord: WORDS,
    Assignment: PLACED,
    SupervisorRecord: SupervisorRecord("s1", "host-1", 4),
    NimbusRecord: NimbusRecord("n1", "http://host-1:6627", "host-1"),
    VersionRecord: VersionRecord(
        "words-1-0", "words", "replaced", None, 1.0, 2.0, WORDS.conf, {}, {}, "3.11"
    ),
    EndedVersion: EndedVersion("words-1-0", "words", "killed", None, 1.0, 2.0, PLACED.placements, "{}"),
    WorkerReport: REPORT,
}
#: A field of each kind, with its name in an error.
FIELDS = [(kind, field) for kind in RECORDS for field in kind.__struct_fields__]

KEYS = st.text(max_size=3) | st.integers() | st.booleans() | st.none()
LEAVES: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=5),
    st.binary(max_size=3),
    st.sampled_from(
        ["", ".", "a/b", "half a pair: \ud800", "\0", 10**400, Decimal("1.5"), object(), range(3)]
    ),
)
ODD = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(KEYS, inner, max_size=3),
        st.builds(Incarnation, inner, inner),
        st.builds(TaskRow, inner, inner, inner),
        st.builds(Placement, inner, inner, inner, inner, inner),
        st.builds(Note, inner, inner, inner, inner, inner),
        st.builds(Event, st.just("died") | inner, inner, worker=inner, retry_in_secs=inner, workers=inner),
    ),
    max_leaves=6,
)
#: Values of the right form, with an odd value inside.
NEARLY = st.one_of(
    ODD.map(lambda odd: {**WORDS.conf, "mine": odd}),
    ODD.map(lambda odd: {"lines": {"mine": odd}}),
    ODD.map(lambda odd: {**WORDS.conf, "topology.workers": odd}),
    st.builds(Note, ODD, ODD, ODD, ODD).map(lambda note: (note,)),
    ODD.map(lambda odd: (Placement("w1", odd, 0, Incarnation(1, 0), (1,)),)),
    ODD.map(lambda odd: (TaskRow(1, "lines", odd),)),
)


def records_of(store: InMemoryStore, kind: type[Record]) -> RecordSet[Any]:
    registry = Registry(store)
    sets: dict[type[Record], RecordSet[Any]] = {
        TopologyRecord: registry.topologies,
        Assignment: registry.assignments,
        SupervisorRecord: registry.supervisors,
        NimbusRecord: registry.nimbuses,
        VersionRecord: registry.versions,
        EndedVersion: registry.ended,
        WorkerReport: registry._reports("words-1-0"),
    }
    return sets[kind]


@given(st.sampled_from(FIELDS), ODD | NEARLY, st.sampled_from(("create", "write", "put")))
def test_a_record_with_an_odd_value_is_refused_by_field_or_reads_back_equal(
    which: tuple[type[Record], str], value: object, way: str
) -> None:
    kind, field = which
    odd = replace(RECORDS[kind], **{field: value})
    store = InMemoryStore()
    records = records_of(store, kind)
    try:
        getattr(records, way)(odd)
    except BadRecord as error:
        assert f"{kind.__name__}.{field}" in str(error)
        assert store.children("/") == []
    else:
        gone = way == "write" and records.is_empty(odd)
        assert records_of(store, kind).get(getattr(odd, records.key)) == (None if gone else odd)


@given(st.sampled_from(FIELDS), ODD)
def test_a_refused_change_leaves_the_record_as_it_was(which: tuple[type[Record], str], value: object) -> None:
    kind, field = which
    store = InMemoryStore()
    records = records_of(store, kind)
    records.create(RECORDS[kind])
    was: Any = records.get(getattr(RECORDS[kind], records.key))
    try:
        records.update(was, replace(was, **{field: value}))
    except BadRecord:
        assert records_of(store, kind).get(getattr(was, records.key)) == was
        records.update(was, was)  # still the record that was read last


@pytest.mark.parametrize(
    "records",
    [records_of(InMemoryStore(), kind) for kind in RECORDS],
    ids=[kind.__name__ for kind in RECORDS],
)
def test_every_set_of_records_is_known_by_a_text_field(records: RecordSet[Any]) -> None:
    assert isinstance(getattr(RECORDS[records.kind], records.key), str)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"wait": True}, r"TopologyRecord\.wait cannot be True: .* got `bool`"),
        ({"deadline": float("inf")}, r"TopologyRecord\.deadline cannot be inf: Out of range float values"),
        (
            {"conf": {**WORDS.conf, "mine": (1, 2)}},
            r"TopologyRecord\.conf cannot be .* would be read back as",
        ),
        (
            {"component_confs": {7: {}}},
            r"TopologyRecord\.component_confs cannot be \{7: \{\}\}: it would be read back as \{'7'",
        ),
        ({"tasks": [TaskRow(1, "lines", 0)]}, r"TopologyRecord\.tasks cannot be .* would be read back as"),
        (
            {"files": {"code": object()}},
            r"TopologyRecord\.files cannot be .*: a object .*only JSON values",
        ),
        (
            {"files": {"code": 10**5000}},
            r"TopologyRecord\.files cannot be <dict whose repr raises ValueError>: Exceeds the limit",
        ),
        ({"name": ""}, r"TopologyRecord\.name cannot be '', it is the name of the record"),
    ],
)
def test_the_error_says_what_is_wrong_with_the_field(change: dict[str, Any], text: str) -> None:
    registry = Registry(InMemoryStore())
    with pytest.raises(BadRecord, match=text):
        registry.topologies.create(replace(WORDS, **change))


def test_a_written_record_is_the_one_that_any_daemon_decodes() -> None:
    store = InMemoryStore()
    Registry(store).topologies.create(WORDS)
    [name] = store.children("/topologies")
    found = store.get(f"/topologies/{name}")
    assert found is not None and decode(TopologyRecord, found[0]) == WORDS
