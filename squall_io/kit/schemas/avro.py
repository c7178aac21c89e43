"""Avro messages whose schemas are in a registry. fastavro is imported where it is used. Must not know: connectors, HTTP."""

from __future__ import annotations

import io
import json
from typing import Any

from squall_io.kit.codecs import Decode, Encode, UnreadableMessage
from squall_io.kit.schemas.registry import (
    AVRO,
    RegisteredSchema,
    RegistryCodec,
    SchemaRegistry,
    once,
    readable,
    text_of_schema,
)
from squall_io.kit.schemas.wire import HEAD, head, schema_id_of
from topology_api import FailTuple, SquallError
from topology_api.wording import class_name, message_of, typed


class Avro(RegistryCodec):
    """Avro with a schema registry. Needs the extra `squall[avro]`.

    Read values are what fastavro makes: dicts, lists, and datetimes, decimals or UUIDs of logical types.

    schema: to write, the schema: a dict, or JSON; None: the last version of the subject. To read, the schema that values shall
        have, whichever they were written with; None: that of each message.
    """

    def __init__(
        self,
        registry: str,
        *,
        schema: Any = None,
        subject: str | None = None,
        password: str | None = None,
        register: bool = True,
        timeout: float = 10.0,
    ) -> None:
        text, problem = text_of_schema("schema", schema)
        super().__init__(registry, subject, password, register, timeout, [problem])
        self.schema = text

    def open_decoder(self) -> Decode:
        """Return the function that reads messages."""
        fastavro, registry = _loaded(), self.opened()
        reader = None if self.schema is None else _parsed(fastavro, registry, RegisteredSchema(self.schema))
        parsed: dict[int, Any] = {}

        def decode(data: bytes) -> Any:
            schema_id = schema_id_of(data)
            if (writer := parsed.get(schema_id)) is None:
                found = registry.schema(schema_id)
                if found.schemaType != AVRO:
                    raise UnreadableMessage(f"its schema {schema_id} is of type {found.schemaType}, not AVRO")
                writer = parsed[schema_id] = readable(lambda: _parsed(fastavro, registry, found), schema_id)
            source = io.BytesIO(data)
            source.seek(HEAD)
            try:
                value = fastavro.schemaless_reader(source, writer, reader)
            except Exception as error:
                raise UnreadableMessage(
                    f"it is no Avro of schema {schema_id}: {class_name(error)}: {message_of(error)}"
                ) from error
            if (more := len(data) - source.tell()) > 0:
                raise UnreadableMessage(f"it has {more} bytes after what schema {schema_id} describes")
            return value

        return decode

    def open_encoder(self, subject: str) -> Encode:
        """Return the function that writes messages. The registry is asked at the first one."""
        fastavro, registry = _loaded(), self.opened()
        subject = self.subject or subject

        def schema() -> tuple[bytes, Any]:
            if self.schema is None:
                schema_id, found = registry.latest(subject)
            else:
                found = RegisteredSchema(self.schema)
                parsed = _parsed(fastavro, registry, found)
                return head(self.id_of(registry, subject, found)), parsed
            return head(schema_id), _parsed(fastavro, registry, found)

        opened = once(schema)

        def encode(value: Any) -> bytes:
            begin, parsed = opened()
            sink = io.BytesIO()
            sink.write(begin)
            try:
                fastavro.schemaless_writer(sink, parsed, value)
            except Exception as error:
                raise FailTuple(
                    f"{typed(value)} does not fit the schema of {subject!r}: {class_name(error)}: {message_of(error)}"
                ) from error
            return sink.getvalue()

        return encode


def _loaded() -> Any:
    try:
        import fastavro
    except ImportError:
        raise SquallError("Avro needs fastavro: install Squall with its extra `avro`") from None
    return fastavro


def _parsed(fastavro: Any, registry: SchemaRegistry, schema: RegisteredSchema) -> Any:
    """Return a schema as fastavro takes it, with those that it refers to."""
    names: dict[str, Any] = {}
    try:
        for _, found in registry.named(schema):
            fastavro.parse_schema(json.loads(found.schema), named_schemas=names)
        return fastavro.parse_schema(json.loads(schema.schema), named_schemas=names)
    except SquallError:
        raise
    except Exception as error:
        raise SquallError(
            f"the schema is no schema of Avro: {class_name(error)}: {message_of(error)}"
        ) from error
