"""Fields and Stream: the user's input, kept unchanged."""

from __future__ import annotations

import pickle

from hypothesis import given
from hypothesis import strategies as st

from topology_api import Fields, Stream


def test_fields_are_given_one_by_one_or_as_a_sequence() -> None:
    assert (
        Fields("a", "b") == Fields(["a", "b"]) == Fields(("a", "b")) == Fields(Fields("a"), "b") == ("a", "b")
    )


def test_a_string_is_one_field_and_not_its_letters() -> None:
    assert Fields("word") == ("word",)
    assert Stream("word").fields == Fields("word")


@given(st.lists(st.text()))
def test_fields_are_an_immutable_sequence_that_survives_pickling(names: list[str]) -> None:
    fields = Fields(names)
    assert list(fields) == names
    assert fields == Fields(*names)
    assert [fields.index(name) for name in names] == [names.index(name) for name in names]
    back = pickle.loads(pickle.dumps(fields))
    assert type(back) is Fields
    assert back == fields


def test_streams_with_the_same_fields_and_directness_are_equal() -> None:
    assert Stream(Fields("a")) == Stream(["a"])
    assert Stream("a", direct=True) != Stream("a")
    assert len({Stream("a"), Stream("a"), Stream("a", direct=True)}) == 2
    assert pickle.loads(pickle.dumps(Stream("a", direct=True))) == Stream("a", direct=True)


def test_their_repr_is_valid_source() -> None:
    assert repr(Stream(["a", "b"], direct=True)) == "Stream(Fields('a', 'b'), direct=True)"
