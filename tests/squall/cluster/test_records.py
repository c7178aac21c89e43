"""Records are decoded unchanged from their bytes; other bytes give one kind of error."""

from __future__ import annotations

import json
from typing import Any, cast, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import asdict, replace

from nimbus.lifecycle import states
from squall.cluster.component_settings import merged
from squall.cluster.records import (
    FORMAT,
    REPEATING,
    Assignment,
    BadRecord,
    HowReplaced,
    NimbusRecord,
    Note,
    Placement,
    Record,
    SetOptions,
    SupervisorRecord,
    TopologyRecord,
    VersionRecord,
    WorkerReport,
    decode,
    encode,
)
from squall.cluster.store import MOST_BYTES
from squall.reports.event_text import sentence
from squall.reports.events import Cause, CauseKind, Event, Kind
from squall.values import Incarnation, TaskRow, TopologyState
from tests.squall.cluster.small_records import REPORT

TEXT = st.text(max_size=8)
NUMBERS = st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**53), 2**53)
PAIRS = st.tuples(st.integers(0), st.integers(0))
JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=5,
)
#: The options in every topology's configuration.
SOUND = {"topology.workers": 2, "topology.message.timeout.secs": 30, "topology.worker.timeout.secs": 3.5}
CONFS = st.dictionaries(TEXT, JSON, max_size=3)
TEXTS = st.dictionaries(TEXT, TEXT, max_size=2)
TASK_IDS = st.lists(st.integers(1)).map(tuple)
PLACEMENTS = st.builds(Placement, TEXT, TEXT, st.integers(0), PAIRS, TASK_IDS)
SECONDS = st.floats(0, 1e12)
CAUSES = st.builds(
    Cause,
    st.sampled_from(get_args(CauseKind)),
    TEXT,
    st.none() | st.integers(0, 255),
    st.none() | st.integers(1, 64),
)
EVENTS = st.builds(
    Event, st.sampled_from(get_args(Kind)), SECONDS, TEXT, TEXT, st.none() | st.integers(1), st.none() | CAUSES,
    retry_in_secs=st.none() | SECONDS, over=st.booleans(), workers=st.lists(TEXT, max_size=2).map(tuple),
)  # fmt: skip
SET_OPTIONS = st.none() | st.builds(
    SetOptions,
    CONFS,
    st.dictionaries(TEXT, CONFS, max_size=2),
    st.dictionaries(TEXT, st.integers(1), max_size=2),
)
NOTES = st.builds(Note, TEXT, NUMBERS, TEXT, st.booleans(), st.none() | EVENTS)
#: Every field of every kind: a field missing here is not tested.
FIELDS: dict[type[Record], dict[str, st.SearchStrategy[Any]]] = {
    TopologyRecord: {
        "id": TEXT,
        "name": TEXT,
        "state": st.sampled_from(sorted(TopologyState)),
        "previous": st.none() | TEXT,
        "conf": CONFS.map(lambda conf: {**conf, **SOUND}),
        "component_confs": st.dictionaries(TEXT, CONFS, max_size=2),
        "tasks": st.lists(st.tuples(st.integers(1), TEXT, st.integers(0)), max_size=3).map(tuple),
        "version": st.integers(0),
        "deadline": st.none() | NUMBERS,
        "error": st.none() | TEXT,
        "submitted": NUMBERS,
        "highest_task": st.integers(0),
        "parallelism": st.dictionaries(TEXT, st.integers(1), max_size=2),
        "finished": TASK_IDS,
        "renumbered": st.dictionaries(TEXT, st.integers(0), max_size=2),
        "notes": st.lists(NOTES, max_size=3).map(tuple),
        "wait": st.none() | NUMBERS,
        "submission": TEXT,
        "files": TEXTS,
        "python": TEXT,
        "replaces": st.none() | TEXT,
        "since": NUMBERS,
        "until": st.none() | NUMBERS,
        "set_options": SET_OPTIONS,
        "by": TEXT,
        "repeats": TEXT,
        "ended_by": TEXT,
        "returns": st.integers(0),
        "state_start": TEXT,
        "committed": st.integers(0),
    },
    VersionRecord: {
        "id": TEXT,
        "name": TEXT,
        "how": st.sampled_from(get_args(HowReplaced)),
        "error": st.none() | TEXT,
        "submitted": NUMBERS,
        "ended": NUMBERS,
        "conf": CONFS.map(lambda conf: {**conf, **SOUND}),
        "component_confs": st.dictionaries(TEXT, CONFS, max_size=2),
        "files": TEXTS,
        "python": TEXT,
        "set_options": SET_OPTIONS,
        "by": TEXT,
        "repeats": TEXT,
    },
    Assignment: {
        "topology_id": TEXT,
        "version": st.integers(0),
        "placements": st.lists(PLACEMENTS, max_size=3).map(tuple),
    },
    SupervisorRecord: {
        "id": TEXT,
        "host": TEXT,
        "slots": st.integers(0),
        "beats": st.booleans(),
        "url": TEXT,
        "public_key": TEXT,
        "versions": TEXTS,
        "resources": st.dictionaries(TEXT, NUMBERS, max_size=2),
        "cannot_start": TEXT,
        "connections_closed": st.dictionaries(TEXT, st.integers(0), max_size=2),
        "state_folder": TEXT,
        "reads": st.integers(0),
    },
    NimbusRecord: {
        "id": TEXT,
        "url": TEXT,
        "host": TEXT,
        "public_key": TEXT,
        "versions": TEXTS,
        "started": NUMBERS,
        "reads": st.integers(0),
    },
    WorkerReport: {
        "worker": TEXT,
        "incarnation": PAIRS,
        **dict.fromkeys(("opened", "ended", "drained", "stopped"), st.booleans()),
        "crash": st.none() | TEXT,
        "address": st.none() | st.tuples(TEXT, TEXT),
        "finished": TASK_IDS,
        "version": st.integers(0),
        "note": st.none() | TEXT,
        "waits": st.booleans(),
        "event": st.none() | EVENTS,
    },
}
KINDS: tuple[type[Any], ...] = tuple(FIELDS)


def complete(record: Any) -> Record:
    """A component has all settings of its topology."""
    if not hasattr(record, "component_confs"):
        return cast("Record", record)
    return cast("Record", replace(record, component_confs=merged(record.conf, record.component_confs)))


RECORDS: st.SearchStrategy[Record] = st.one_of(
    *(st.builds(kind, **strategies).map(complete) for kind, strategies in FIELDS.items())
)

SUPERVISOR = SupervisorRecord("s1", "host-1", 4)


@pytest.mark.parametrize("kind", KINDS)
def test_every_field_of_a_record_is_tested(kind: type[Any]) -> None:
    assert list(FIELDS[kind]) == list(kind.__struct_fields__)


@given(RECORDS, st.sampled_from((REPEATING, FORMAT)))
def test_a_record_is_decoded_unchanged_from_each_format(record: Record, format: int) -> None:
    assert decode(type(record), encode(record, format)) == record


def test_a_topology_s_settings_are_stored_once_and_of_a_component_those_that_differ() -> None:
    lines = {**SOUND, "topology.workers": 3, "own": 1}
    record = replace(_topology_record(), component_confs={"lines": lines, "count": SOUND})
    body = json.loads(encode(record))
    assert (body["format"], body["component_confs"]) == (
        6,
        {"lines": {"topology.workers": 3, "own": 1}, "count": {}},
    )
    body = json.loads(encode(record, REPEATING))
    assert (body["format"], body["component_confs"]) == (5, {"lines": lines, "count": SOUND})
    assert json.loads(encode(SUPERVISOR))["format"] == 5, (
        "the records of daemons are readable for earlier builds"
    )


def test_notes_of_a_release_without_events_are_read_as_texts() -> None:
    report = {"kind": "WorkerReport", "format": 5, **asdict(REPORT), "note": "w1 died", "waits": False}
    read = decode(
        WorkerReport, json.dumps({name: value for name, value in report.items() if name != "event"}).encode()
    )
    assert read.fact == Event("text", worker="w1", error="w1 died")
    assert Note("w1 died", 7.0, "w1", False).fact == Event("text", 7.0, worker="w1", error="w1 died")
    assert b"event" not in encode(REPORT), "an older daemon reads the same bytes as before"


@pytest.mark.parametrize(
    "event",
    [{}, {"kind": "other"}, {"kind": "died", "pid": "1"}, {"kind": "died", "retry_in_secs": -1}, "died"],
)
def test_an_impossible_event_is_no_record(event: object) -> None:
    body = {**json.loads(encode(REPORT)), "event": event}
    with pytest.raises(BadRecord, match=r"WorkerReport\.event cannot be"):
        decode(WorkerReport, json.dumps(body).encode())


@given(EVENTS, st.text(max_size=12))
def test_every_readable_event_has_a_sentence(event: Event, part: str) -> None:
    assert sentence(msgspec.structs.replace(event, part=part)) or event.kind == "text"


@given(RECORDS)
def test_a_record_is_never_taken_for_one_of_another_kind(record: Record) -> None:
    for kind in KINDS:
        if kind is not type(record):
            with pytest.raises(BadRecord, match=type(record).__name__):
                decode(kind, encode(record))


@given(st.binary() | JSON.map(lambda value: json.dumps(value).encode()), st.sampled_from(KINDS))
def test_invalid_bytes_give_bad_record_and_nothing_else(data: bytes, kind: type[Any]) -> None:
    with pytest.raises(BadRecord):
        decode(kind, data)


@given(RECORDS, st.data())
def test_a_record_with_a_field_that_is_missing_or_odd_gives_a_record_or_bad_record(
    record: Record, data: st.DataObject
) -> None:
    body = json.loads(encode(record))
    field = data.draw(st.sampled_from(sorted(body)))
    later = (
        "event",
        "cannot_start",
        "connections_closed",
        "set_options",
        "by",
        "repeats",
        "ended_by",
        "returns",
        "state_start",
        "committed",
        "reads",
    )
    if field not in later and data.draw(st.booleans()):
        del body[field]
        with pytest.raises(BadRecord):
            decode(type(record), json.dumps(body).encode())
        return
    body[field] = data.draw(JSON | st.lists(JSON, max_size=3))
    try:
        read = decode(type(record), json.dumps(body).encode())
    except BadRecord as error:
        assert str(error)
    else:
        assert isinstance(read, type(record))


def test_a_record_of_a_newer_format_is_refused_with_what_to_do() -> None:
    body = json.loads(encode(SUPERVISOR)) | {"format": 6}
    with pytest.raises(BadRecord, match=r"format 6.*reads format 5;.*one release"):
        decode(SupervisorRecord, json.dumps(body).encode())
    body = json.loads(encode(_topology_record())) | {"format": 7}
    with pytest.raises(BadRecord, match=r"format 7.*reads format 5 and 6;.*one release"):
        decode(TopologyRecord, json.dumps(body).encode())


def test_a_record_that_no_store_accepts_is_invalid() -> None:
    data = encode(SUPERVISOR)
    padded = data[:-1] + b" " * (MOST_BYTES - len(data)) + data[-1:]
    assert decode(SupervisorRecord, padded) == SUPERVISOR
    with pytest.raises(BadRecord, match=r"1,000,001 bytes .* a store takes 1,000,000"):
        decode(SupervisorRecord, padded + b" ")


def test_a_wrong_field_is_named_with_its_value() -> None:
    body = json.loads(encode(SUPERVISOR)) | {"slots": "four"}
    with pytest.raises(BadRecord, match=r"SupervisorRecord\.slots cannot be 'four'"):
        decode(SupervisorRecord, json.dumps(body).encode())


def test_a_boolean_is_no_number() -> None:
    body = json.loads(encode(SUPERVISOR)) | {"slots": True}
    with pytest.raises(BadRecord, match="slots"):
        decode(SupervisorRecord, json.dumps(body).encode())


def test_a_configuration_that_json_cannot_hold_is_refused() -> None:
    record = decode(TopologyRecord, encode(_topology_record()))
    with pytest.raises(BadRecord, match=r"set.*only JSON values"):
        encode(replace(record, conf={"mine": {1, 2}}))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"state": "BOGUS"}, r"state cannot be 'BOGUS'"),
        ({"conf": {}}, r"conf\['topology\.message\.timeout\.secs'\] cannot be None"),
        ({"conf": {**SOUND, "topology.workers": "many"}}, r"conf\['topology\.workers'\] cannot be 'many'"),
        ({"conf": {**SOUND, "topology.workers": 0}}, r"conf\['topology\.workers'\] cannot be 0"),
        ({"conf": {**SOUND, "topology.worker.timeout.secs": float("nan")}}, r"cannot be nan"),
        ({"conf": {**SOUND, "topology.worker.timeout.secs": float("inf")}}, r"cannot be inf"),
        ({"component_confs": {"lines": 7}}, r"component_confs cannot be \{'lines': 7\}"),
        ({"deadline": float("inf")}, r"deadline cannot be inf"),
        ({"submitted": float("nan")}, r"submitted cannot be nan"),
    ],
)
def test_a_record_that_no_daemon_can_act_on_is_invalid(change: dict[str, Any], told: str) -> None:
    body = json.loads(encode(_topology_record())) | change
    with pytest.raises(BadRecord, match=told):
        decode(TopologyRecord, json.dumps(body).encode())


@pytest.mark.parametrize(
    "change", [{"incarnation": [1, 2, 3]}, {"incarnation": [1]}, {"address": ["a", "b", "c"]}]
)
def test_a_pair_has_two_elements(change: dict[str, Any]) -> None:
    report = WorkerReport("w1", Incarnation(1, 0), True, False, False, False, None)
    body = json.loads(encode(report)) | change
    with pytest.raises(BadRecord, match=rf"WorkerReport\.{next(iter(change))} cannot be \[.*length 2"):
        decode(WorkerReport, json.dumps(body).encode())


def test_the_states_are_those_of_the_lifecycle_table_and_each_asks_something_of_workers() -> None:
    assert set(states.STATES) == set(TopologyState)


def _topology_record() -> TopologyRecord:
    return TopologyRecord(
        "words-1-0",
        "words",
        TopologyState.ACTIVE,
        None,
        SOUND,
        {},
        (TaskRow(1, "lines", 0),),
        1,
        None,
        None,
        0.0,
    )
