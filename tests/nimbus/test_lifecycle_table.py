"""The table of a topology's life cycle is complete."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nimbus.lifecycle.states import (
    ACTIVE,
    COMPLETED,
    EVENTS,
    FAILED,
    INACTIVE,
    KILLED,
    REBALANCING,
    REPLACING,
    STATES,
    TABLE,
    IllegalTransition,
    allowed_events,
    step,
)
from scripts.reference_pages import transitions
from squall.values import GONE, PREVIOUS

EVERY_PAIR = [(state, event) for state in (*STATES, GONE) for event in EVENTS]


def test_the_table_has_known_states_and_events_only() -> None:
    assert set(TABLE) <= set(EVERY_PAIR)
    assert set(TABLE.values()) <= {*STATES, GONE, PREVIOUS}


@pytest.mark.parametrize(("state", "event"), EVERY_PAIR)
def test_every_pair_follows_the_table_or_raises_and_changes_nothing(state: str, event: str) -> None:
    before = dict(TABLE)
    if (state, event) in TABLE:
        target = TABLE[state, event]
        assert step(state, event, previous=INACTIVE) == (INACTIVE if target == PREVIOUS else target)
    else:
        with pytest.raises(IllegalTransition) as caught:
            step(state, event, previous=INACTIVE)
        assert (caught.value.state, caught.value.event) == (state, event)
        assert event not in allowed_events(caught.value.state)
    assert dict(TABLE) == before


@given(st.text(), st.text())
def test_an_unknown_state_or_event_raises_too(state: str, event: str) -> None:
    if state not in STATES or event not in EVENTS:
        with pytest.raises(IllegalTransition):
            step(state, event)


def test_the_table_itself_cannot_be_changed() -> None:
    with pytest.raises(TypeError):
        TABLE[KILLED, "activate"] = ACTIVE  # type: ignore[index]
    assert (KILLED, "activate") not in TABLE


@pytest.mark.parametrize("previous", [ACTIVE, INACTIVE])
def test_a_rebalance_leads_back_to_the_state_before(previous: str) -> None:
    assert step(previous, "rebalance") == REBALANCING
    assert step(REBALANCING, "rebalanced", previous) == previous


@pytest.mark.parametrize("previous", [None, KILLED, "elsewhere"])
def test_a_rebalance_without_a_known_previous_state_raises(previous: str | None) -> None:
    with pytest.raises(IllegalTransition):
        step(REBALANCING, "rebalanced", previous)


@pytest.mark.parametrize("previous", [ACTIVE, INACTIVE, COMPLETED, FAILED])
def test_a_version_that_comes_back_has_its_state_before_the_replacement(previous: str) -> None:
    assert step(previous, "replace") == REPLACING
    assert step(REPLACING, "restore", previous) == previous


@pytest.mark.parametrize("previous", [None, KILLED, REBALANCING])
def test_a_version_that_cannot_have_been_replaced_does_not_come_back(previous: str | None) -> None:
    with pytest.raises(IllegalTransition):
        step(REPLACING, "restore", previous)


def test_only_kill_or_another_version_follows_completion_and_failure() -> None:
    assert allowed_events(COMPLETED) == allowed_events(FAILED) == ("kill", "replace")


def test_kill_and_then_remove_lead_out_of_every_state() -> None:
    for state in STATES:
        assert step(step(state, "kill"), "remove") == GONE
    assert allowed_events(GONE) == ()


def test_the_message_names_the_topology_both_states_and_the_possible_events() -> None:
    with pytest.raises(IllegalTransition) as caught:
        step(COMPLETED, "activate", name="words")
    assert str(caught.value) == "cannot activate topology 'words': it is COMPLETED; possible now: kill"
    again = pickle.loads(pickle.dumps(caught.value))
    assert (type(again), str(again)) == (IllegalTransition, str(caught.value))


def test_the_documented_table_has_every_pair() -> None:
    head, rule, *rows = transitions().splitlines()
    events = [cell.strip() for cell in head.strip("|").split("|")][1:]
    assert events == list(EVENTS) and set(rule) <= set("|- ")
    shown = {}
    for row in rows:
        state, *targets = [cell.strip() for cell in row[1:-1].split("|")]
        shown.update({(state, event): target for event, target in zip(events, targets) if target})
    assert shown == dict(TABLE)
