"""An option of Storm's is refused with what the page for people who come from Storm names instead of it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from squall.settings import environment_conf
from topology_api.errors import InvalidConfig
from topology_api.options import OPTIONS, problems_of
from topology_api.storm_options import NOTHING, SAME, STORM_OPTIONS, instead_of, names, table

PAGE = Path(__file__).resolve().parents[2] / "docs" / "coming-from-storm.md"
#: Storm's options that Squall does not have under the same name.
OTHERS = [name for name in names() if name not in OPTIONS]


def test_the_page_has_the_table() -> None:
    assert table() in PAGE.read_text(encoding="utf-8")


def test_every_row_names_options() -> None:
    assert all(row.names for row in STORM_OPTIONS)
    assert len(OTHERS) >= 20 and len(set(names())) == len(names())


@pytest.mark.parametrize("row", STORM_OPTIONS, ids=lambda row: row.names[0])
def test_options_that_are_the_same_are_squalls_and_those_named_instead_exist(row: object) -> None:
    assert isinstance(row, type(STORM_OPTIONS[0]))
    if row.squall.startswith(SAME):
        assert set(row.names) <= OPTIONS.keys()
        return
    assert not OPTIONS.keys() & set(row.names)
    named = [
        name.partition(":")[0]
        for name in re.findall(r"`([^`]+)`", row.squall)
        if name.startswith(("topology.", "squall.", "nimbus.", "supervisor."))
    ]
    assert set(named) <= OPTIONS.keys()
    assert named or row.note or "--" in row.squall
    assert row.note or row.squall != NOTHING


@pytest.mark.parametrize("scope", ["topology", "component", "daemon"])
@pytest.mark.parametrize("name", OTHERS)
def test_an_option_of_storms_is_refused_with_what_to_use(name: str, scope: str) -> None:
    [problem] = problems_of({name: 1}, scope)  # type: ignore[arg-type]
    assert problem == f"unknown configuration key {name!r}: it is Storm's; {instead_of(name)}"
    assert "did you mean" not in problem and "`" not in problem and "](" not in problem


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("topology.acker.executors", "it is Storm's; use topology.acking: false"),
        ("topology.executor.receive.buffer.size", "it is Storm's; use topology.queue.size"),
        ("storm.zookeeper.session.timeout", "use squall.zookeeper.session.timeout.secs"),
        (
            "topology.kryo.register",
            "use topology.transport.codec (pickle, or msgpack for a closed set of types)",
        ),
        ("topology.backpressure.enable", "always on: a sender has credit"),
        ("topology.tasks", "it is Storm's; the number of tasks is the parallelism"),
        ("worker.childopts", "use topology.worker.memory.mb"),
        ("topology.wrokers", "did you mean 'topology.workers'?"),
    ],
)
def test_the_suggestion_is_the_one_of_the_page_and_not_the_nearest_spelling(key: str, text: str) -> None:
    [problem] = problems_of({key: 1})
    assert text in problem


def test_a_variable_of_the_environment_gets_the_same_suggestion() -> None:
    with pytest.raises(
        InvalidConfig, match=r"SQUALL_TOPOLOGY_ACKER_EXECUTORS: .* Storm's; use topology\.acking: false"
    ):
        environment_conf({"SQUALL_TOPOLOGY_ACKER_EXECUTORS": "0"})


def test_keys_of_the_users_own_and_squalls_are_not_storms() -> None:
    for name in (*OPTIONS, "mine", "topology", "kryo"):
        if name not in names():
            assert instead_of(name) is None
