"""Codecs with a real schema registry: what it takes, and what it says no to. All else is in `test_schema_codecs.py`, with a
stand-in."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from squall_io.kit.codecs import UnreadableMessage, decoder, encoder
from squall_io.kit.schemas import Avro, JsonSchema, Protobuf, RegistryRefused
from squall_io.kit.schemas.wire import HEAD
from tests.registry_servers import RegistryServer, registry_server
from tests.squall_io.test_schema_codecs import PERSON, RECORD, protobuf_classes

__all__ = ["registry_server"]

pytestmark = pytest.mark.slow

NEWER = {**RECORD, "fields": [*RECORD["fields"], {"name": "c", "type": "int", "default": 9}]}
OTHER = {**RECORD, "fields": [{"name": "a", "type": "string"}]}


@pytest.fixture
def url(registry_server: RegistryServer) -> Iterator[str]:
    yield registry_server.url


def test_messages_of_an_older_schema_are_read_as_a_newer_one(url: str) -> None:
    data = encoder(Avro(url, schema=RECORD), "evolving")({"a": 27, "b": "foo"})
    assert data[HEAD:] == b"\x36\x06\x66\x6f\x6f"
    newer = encoder(Avro(url, schema=NEWER), "evolving")({"a": 1, "b": "", "c": 2})
    assert newer[:HEAD] != data[:HEAD]
    assert decoder(Avro(url))(data) == {"a": 27, "b": "foo"}
    assert decoder(Avro(url, schema=NEWER))(data) == {"a": 27, "b": "foo", "c": 9}
    assert decoder(Avro(url, subject="evolving"))(newer) == {"a": 1, "b": "", "c": 2}
    assert encoder(Avro(url, subject="evolving"))({"a": 1, "b": "", "c": 2}) == newer


def test_an_incompatible_schema_is_refused_in_the_words_of_the_registry(url: str) -> None:
    encoder(Avro(url, schema=RECORD), "strict")({"a": 1, "b": ""})
    request = urllib.request.Request(
        f"{url}/config/strict", json.dumps({"compatibility": "BACKWARD"}).encode(),
        {"Content-Type": "application/vnd.schemaregistry.v1+json"}, method="PUT",
    )  # fmt: skip
    urllib.request.urlopen(request, timeout=30).close()
    with pytest.raises(RegistryRefused, match="strict"):
        encoder(Avro(url, schema=OTHER), "strict")({"a": "1"})
    with pytest.raises(RegistryRefused, match="missing"):
        encoder(Avro(url, schema=RECORD, register=False), "missing")({"a": 1, "b": ""})


def test_json_with_its_schema(url: str) -> None:
    codec = JsonSchema(url, schema=PERSON, validate=True)
    data = encoder(codec, "people")({"age": 5})
    assert decoder(JsonSchema(url, validate=True))(data) == {"age": 5}


def test_protobuf_with_a_file_that_it_imports(url: str) -> None:
    order, _, _ = protobuf_classes()
    codec = Protobuf(order, url, subject="orders")
    data = encoder(codec)({"id": 1, "price": {"cents": 5}})
    assert data[HEAD:] == b"\x02\x02" + b"\x08\x01\x12\x02\x08\x05"
    found: Any = decoder(codec)(data)
    assert (found.id, found.price.cents) == (1, 5)


def test_an_id_that_it_does_not_have(url: str) -> None:
    with pytest.raises(UnreadableMessage, match="has no schema 999999"):
        decoder(Avro(url))(b"\0\0\x0f\x42\x3f\x36")
