"""Codecs with a schema registry: the bytes of Confluent's wire format, and what happens when the registry is away or says no.

The registry is a stand-in (`tests/registry_stand_in.py`); `test_schema_registry.py` has a real one.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from squall_io.kit.codecs import CodecAway, MessageCodec, UnreadableMessage, decoder, encoder
from squall_io.kit.schemas import Avro, JsonSchema, Protobuf, RegistryRefused
from squall_io.kit.schemas.wire import HEAD, head, indexes_head, indexes_of, schema_id_of
from squall_io.kit.secrets import NoSecret
from tests.registry_stand_in import StandIn, registry
from topology_api import FailTuple, InvalidConfig

pytest.importorskip("fastavro")
pytest.importorskip("jsonschema")
pytest.importorskip("google.protobuf")

RECORD = {
    "type": "record",
    "name": "test",
    "fields": [{"name": "a", "type": "long"}, {"name": "b", "type": "string"}],
}
PERSON = {"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"]}


@pytest.fixture
def there() -> Iterator[StandIn]:
    with registry() as stand_in:
        yield stand_in


def shipped(codec: MessageCodec) -> Any:
    return pickle.loads(pickle.dumps(codec))


# The bytes.


def test_the_bytes_of_avro_are_those_of_the_specifications(there: StandIn) -> None:
    """The message is the example of Avro's specification; before it, a zero byte and the id 7 in four bytes."""
    for number in range(6):
        there.add(f"other-{number}", {"type": "fixed", "size": number + 1, "name": "f"})
    write = encoder(shipped(Avro(there.url, schema=RECORD)), "orders-value")
    data = write({"a": 27, "b": "foo"})
    assert data == b"\x00\x00\x00\x00\x07" + b"\x36\x06\x66\x6f\x6f"
    assert there.subjects["orders-value"] == [7]
    assert decoder(shipped(Avro(there.url)))(data) == {"a": 27, "b": "foo"}


def test_the_place_of_a_protobuf_type_is_written_as_confluent_documents_it() -> None:
    assert indexes_head([0]) == b"\x00"
    assert indexes_head([1, 0]) == b"\x04\x02\x00"
    assert indexes_head([2]) == b"\x02\x04"
    assert head(0x01020304) == b"\x00\x01\x02\x03\x04"
    assert indexes_of(head(1) + b"\x00message") == ([0], HEAD + 1)
    assert indexes_of(head(1) + b"\x02\x00message") == ([0], HEAD + 2)


@given(st.lists(st.integers(0, 500), min_size=1, max_size=20), st.integers(0, 2**32 - 1), st.binary())
def test_what_is_written_before_a_message_is_read(indexes: list[int], number: int, rest: bytes) -> None:
    data = head(number) + indexes_head(indexes) + rest
    assert schema_id_of(data) == number
    found, begin = indexes_of(data)
    assert (found, data[begin:]) == (indexes, rest)


@given(st.binary(max_size=40))
def test_any_bytes_are_read_or_unreadable(data: bytes) -> None:
    try:
        schema_id_of(data)
        indexes, begin = indexes_of(data)
    except UnreadableMessage:
        return
    assert HEAD < begin <= len(data) and len(indexes) <= 100


# Avro.


def test_a_schema_is_asked_for_once(there: StandIn) -> None:
    write, read = encoder(Avro(there.url, schema=RECORD), "s"), decoder(Avro(there.url))
    for number in range(5):
        assert read(write({"a": number, "b": ""})) == {"a": number, "b": ""}
    assert there.asked == ["/subjects/s/versions", "/schemas/ids/1"]


def test_messages_of_an_older_schema_are_read_as_a_newer_one(there: StandIn) -> None:
    old = encoder(Avro(there.url, schema=RECORD), "s")({"a": 1, "b": "x"})
    newer = {**RECORD, "fields": [*RECORD["fields"], {"name": "c", "type": "int", "default": 9}]}
    assert decoder(Avro(there.url, schema=newer))(old) == {"a": 1, "b": "x", "c": 9}


def test_logical_types_are_values_of_python(there: StandIn) -> None:
    codec = Avro(there.url, schema={"type": "long", "logicalType": "timestamp-millis"}, subject="times")
    now = datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=timezone.utc)
    assert decoder(codec)(encoder(codec)(now)) == now
    assert list(there.subjects) == ["times"]


def test_schemas_that_refer_to_others_are_read(there: StandIn) -> None:
    there.add(
        "money", {"type": "record", "name": "shop.Money", "fields": [{"name": "cents", "type": "long"}]}
    )
    order = {"type": "record", "name": "shop.Order", "fields": [{"name": "price", "type": "shop.Money"}]}
    there.add("o", order, references=[{"name": "shop.Money", "subject": "money", "version": 1}])
    codec = Avro(there.url, subject="o")
    assert decoder(codec)(encoder(codec)({"price": {"cents": 5}})) == {"price": {"cents": 5}}


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "it has 0 bytes"),
        (b"{\"a\"", "it has 4 bytes"),
        (b"{\"a\": 1}", "it begins with the byte 123, not 0"),
        (b"\0\0\0\0\x63\x36", "has no schema 99"),
        (b"\0\0\0\0\1\x36\x06\x66", "it is no Avro of schema 1"),
        (b"\0\0\0\0\1\x36\x06\x66\x6f\x6f!", "it has 1 bytes after"),
        (b"\0\0\0\0\2{}", "its schema 2 is of type JSON, not AVRO"),
    ],
)  # fmt: skip
def test_what_is_no_message_is_unreadable(there: StandIn, data: bytes, why: str) -> None:
    there.add("s", RECORD)
    there.add("j", PERSON, "JSON")
    with pytest.raises(UnreadableMessage, match=why.replace("{", "\\{")):
        decoder(Avro(there.url))(data)


def test_a_value_that_does_not_fit_fails_its_tuple(there: StandIn) -> None:
    write = encoder(Avro(there.url, schema=RECORD), "s")
    for value in ({"a": "x", "b": "y"}, {"b": "y"}, 5, {"a": 2**70, "b": ""}):
        with pytest.raises(FailTuple, match="does not fit the schema of 's'"):
            write(value)
    assert write({"a": 1, "b": ""})


# JSON.


def test_json_goes_with_its_schema(there: StandIn) -> None:
    write = encoder(JsonSchema(there.url, schema=PERSON), "p")
    assert write({"age": 5}) == b'\0\0\0\0\1{"age":5}'
    assert there.schemas == [{"schema": json.dumps(PERSON), "schemaType": "JSON"}]
    assert decoder(JsonSchema(there.url))(write({"age": "old"})) == {"age": "old"}  # nothing is checked


def test_json_is_checked_if_that_is_wanted(there: StandIn) -> None:
    codec = JsonSchema(there.url, schema=PERSON, validate=True, subject="p")
    write, read = encoder(shipped(codec)), decoder(JsonSchema(there.url, validate=True))
    assert read(write({"age": 5})) == {"age": 5}
    with pytest.raises(FailTuple, match=r"does not fit the schema of 'p': \$.age: 'old' is not of type"):
        write({"age": "old"})
    with pytest.raises(UnreadableMessage, match=r"does not fit its schema: \$: 'age' is a required property"):
        read(b"\0\0\0\0\1{}")
    with pytest.raises(UnreadableMessage, match="it is no JSON"):
        read(b"\0\0\0\0\1{")


def test_checks_follow_references_of_the_registry_alone(there: StandIn) -> None:
    there.add("age", {"type": "integer", "minimum": 0}, "JSON")
    schema = {"type": "object", "properties": {"age": {"$ref": "age.json"}}}
    there.add("p", schema, "JSON", references=[{"name": "age.json", "subject": "age", "version": 1}])
    write = encoder(JsonSchema(there.url, subject="p", validate=True))
    assert write({"age": 5})
    with pytest.raises(FailTuple, match="minimum"):
        write({"age": -5})


# Protobuf.


def protobuf_classes() -> tuple[Any, ...]:
    """A class of a file that imports another one, a class nested in it, and the class of the other file."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    field = descriptor_pb2.FieldDescriptorProto
    money = descriptor_pb2.FileDescriptorProto(name="money.proto", package="shop", syntax="proto3")
    cents = money.message_type.add(name="Money").field.add(name="cents", number=1)
    cents.type, cents.label = field.TYPE_INT64, field.LABEL_OPTIONAL
    order = descriptor_pb2.FileDescriptorProto(name="order.proto", package="shop", syntax="proto3")
    order.dependency.append("money.proto")
    order.message_type.add(name="Other")
    whole = order.message_type.add(name="Order")
    number = whole.field.add(name="id", number=1)
    number.type, number.label = field.TYPE_INT32, field.LABEL_OPTIONAL
    price = whole.field.add(name="price", number=2, type_name=".shop.Money")
    price.type, price.label = field.TYPE_MESSAGE, field.LABEL_OPTIONAL
    whole.nested_type.add(name="Note")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(money)
    pool.Add(order)
    return tuple(
        message_factory.GetMessageClass(pool.FindMessageTypeByName(name))
        for name in ("shop.Order", "shop.Order.Note", "shop.Money")
    )


def test_protobuf_registers_a_file_after_those_that_it_imports(there: StandIn) -> None:
    order, note, money = protobuf_classes()
    codec = Protobuf(order, there.url, subject="o")
    data = encoder(codec)({"id": 1, "price": {"cents": 5}})
    assert data == b"\0\0\0\0\2" + b"\x02\x02" + b"\x08\x01\x12\x02\x08\x05"
    assert list(there.subjects) == ["money.proto", "o"]
    assert there.schemas[1]["references"] == [{"name": "money.proto", "subject": "money.proto", "version": 1}]
    found = decoder(codec)(data)
    assert (found.id, found.price.cents) == (1, 5)
    assert encoder(Protobuf(note, there.url, subject="n"))(note())[HEAD:] == b"\x04\x02\x00"
    assert encoder(Protobuf(money, there.url, subject="m"))({"cents": 1})[HEAD:] == b"\0\x08\x01"


def test_protobuf_of_another_type_is_unreadable(there: StandIn) -> None:
    order, note, _ = protobuf_classes()
    data = encoder(Protobuf(note, there.url, subject="n"))(note())
    with pytest.raises(
        UnreadableMessage, match=r"of another type of its file, \[1, 0\]: Order is type \[1\]"
    ):
        decoder(Protobuf(order, there.url))(data)
    with pytest.raises(UnreadableMessage, match="it is no Order"):
        decoder(Protobuf(order, there.url))(b"\0\0\0\0\1\x02\x02\xff")
    for value in (5, {"none": 1}, {"id": "x"}):
        with pytest.raises(FailTuple, match="Order"):
            encoder(Protobuf(order, there.url, subject="o"))(value)


# The registry.


CODECS: dict[str, Callable[..., MessageCodec]] = {
    "avro": lambda url, **more: Avro(url, schema=RECORD, **more),
    "json": lambda url, **more: JsonSchema(url, schema=PERSON, **more),
    "protobuf": lambda url, **more: Protobuf(protobuf_classes()[2], url, **more),
}
VALUES: dict[str, Any] = {"avro": {"a": 1, "b": ""}, "json": {"age": 1}, "protobuf": {"cents": 1}}


@pytest.mark.parametrize("kind", CODECS)
def test_a_registry_that_is_away_is_no_matter_of_the_value(kind: str) -> None:
    with registry() as first:
        url, port = first.url, int(first.url.rpartition(":")[2])
    write = encoder(CODECS[kind](url), "s")
    with pytest.raises(CodecAway, match=f"registry {url} does not answer"):
        write(VALUES[kind])
    with registry(port) as there:
        there.broken = 503
        with pytest.raises(CodecAway, match="does not serve: no leader"):
            write(VALUES[kind])
        there.broken = None
        assert write(VALUES[kind])


def test_a_message_is_read_once_the_registry_is_back(there: StandIn) -> None:
    data = encoder(Avro(there.url, schema=RECORD), "s")({"a": 1, "b": ""})
    read = decoder(Avro(there.url))
    there.broken = 500
    with pytest.raises(CodecAway):
        read(data)
    there.broken = None
    assert read(data) == {"a": 1, "b": ""}


@pytest.mark.parametrize("kind", CODECS)
def test_an_incompatible_schema_is_an_error_in_the_words_of_the_registry(there: StandIn, kind: str) -> None:
    there.add("s", {"type": "string"})
    there.closed.add("s")
    with pytest.raises(RegistryRefused, match="'s': Schema being registered is incompatible: age"):
        encoder(CODECS[kind](there.url), "s")(VALUES[kind])


@pytest.mark.parametrize("kind", CODECS)
def test_a_schema_is_not_registered_unless_that_is_wanted(there: StandIn, kind: str) -> None:
    there.add("s", {"type": "string"})
    with pytest.raises(RegistryRefused, match="the schema is not registered for subject 's'"):
        encoder(CODECS[kind](there.url, register=False), "s")(VALUES[kind])
    wanted = encoder(CODECS[kind](there.url), "s")(VALUES[kind])
    assert encoder(CODECS[kind](there.url, register=False), "s")(VALUES[kind]) == wanted


def test_a_subject_without_a_schema_is_an_error(there: StandIn) -> None:
    with pytest.raises(
        RegistryRefused, match="subject 'none' has no schema that can be read: Subject not found"
    ):
        encoder(Avro(there.url, subject="none"))({})


def test_the_password_is_looked_up_where_the_codec_is_opened(
    there: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    there.user = ("app", "a secret")
    url = there.url.replace("http://", "http://app@")
    codec = Avro(url, schema=RECORD, password="env:REGISTRY_PASSWORD")
    with pytest.raises(NoSecret, match="REGISTRY_PASSWORD"):
        encoder(codec, "s")
    monkeypatch.setenv("REGISTRY_PASSWORD", "wrong secret")
    with pytest.raises(RegistryRefused, match=r"Unauthorized .*check the user in registry=") as refused:
        encoder(codec, "s")({"a": 1, "b": ""})
    assert "wrong secret" not in str(refused.value)
    monkeypatch.setenv("REGISTRY_PASSWORD", "a secret")
    assert b"a secret" not in pickle.dumps(codec)
    assert encoder(codec, "s")({"a": 1, "b": ""})


def test_all_that_is_wrong_with_the_arguments_is_said_at_once() -> None:
    with pytest.raises(InvalidConfig) as wrong:
        Avro("http://app:word@host", schema="{", subject="", password="word", timeout=0)
    text = str(wrong.value)
    for part in ("registry has a password", "schema is no JSON", "subject is", "password has", "timeout is"):
        assert part in text
    assert "word@" not in text
    for registry_, password in (("http://app@host", None), ("http://host", "env:P")):
        with pytest.raises(InvalidConfig, match="belong together"):
            JsonSchema(registry_, password=password)
    with pytest.raises(InvalidConfig, match=r"message is .*give a class that protoc has made"):
        Protobuf(int, "http://host")
    with pytest.raises(InvalidConfig, match="give its URL"):
        Avro("host:8081")
