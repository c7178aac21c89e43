"""Messages between workers are as before, byte for byte where the codec allows it: workers of two releases understand each
other, and refuse the same.
"""

from __future__ import annotations

import base64
import zlib
from typing import Any

import pytest

from tests.frozen.current_wire import pack_values, read_message, reader_of, unpack_values, write_message
from tests.frozen.frozen_data import load
from tests.frozen.plain_values import lacking
from tests.frozen.wire_mutations import damaged, outcomes, shown, words_of
from tests.frozen.wire_samples import NESTED, PICKLED, PLAIN, messages

FROZEN: dict[str, Any] = load("messages")
MESSAGES = messages()


def parts_of(name: str) -> list[bytes]:
    return [zlib.decompress(base64.b64decode(part)) for part in FROZEN[name]["parts"]]


def test_every_message_is_frozen() -> None:
    assert FROZEN.keys() == MESSAGES.keys()


@pytest.mark.parametrize("name", FROZEN)
def test_a_frozen_message_is_read_unchanged(name: str) -> None:
    read = reader_of(MESSAGES[name])
    assert lacking(shown(read(parts_of(name))), FROZEN[name]["told"]) == []


@pytest.mark.parametrize("name", FROZEN)
def test_a_message_is_written_as_before(name: str) -> None:
    message = MESSAGES[name]
    parts = write_message(message)
    if message.get("codec") != "pickle" or not message["rows"]:  # another Python may pickle in other bytes
        assert parts == parts_of(name)
    assert lacking(shown(reader_of(message)(parts)), FROZEN[name]["told"]) == []


@pytest.mark.parametrize("name", [name for name in FROZEN if FROZEN[name]["damaged"]])
def test_a_damaged_message_is_refused_as_before(name: str) -> None:
    message, parts = MESSAGES[name], parts_of(name)
    is_pickled = message.get("codec") == "pickle"
    names = [damage for damage, _ in damaged(parts, is_pickled)]
    now, then = outcomes(reader_of(message), parts, is_pickled), words_of(FROZEN[name]["damaged"])
    assert len(names) == len(then)
    assert [row for row in zip(names, now, then) if row[1] != row[2]] == []


@pytest.mark.parametrize("codec", ["pickle", "msgpack"])
def test_values_keep_their_types(codec: str) -> None:
    values = (*PLAIN, *NESTED, *(PICKLED if codec == "pickle" else ()))
    rows = [(value, [value, value]) for value in values]
    back = unpack_values(codec, pack_values(codec, ("one", "two"), rows), len(rows), 2)
    assert ascii(back) == ascii(rows)


def test_a_message_of_the_other_codec_is_refused() -> None:
    source: Any = ("words", 7, "default", ("f0",))
    for name, codec in (("pickle: one word", "msgpack"), ("msgpack: one word", "pickle")):
        with pytest.raises(Exception) as refused:
            read_message(parts_of(name), codec, source)
        assert type(refused.value).__name__ == "Undecodable"
