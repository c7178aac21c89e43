"""Protobuf messages whose schemas are in a registry. protobuf is imported where it is used. Must not know: connectors, HTTP."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, Final

from squall_io.kit.codecs import Decode, Encode, UnreadableMessage
from squall_io.kit.schemas.registry import (
    PROTOBUF,
    Reference,
    RegisteredSchema,
    RegistryCodec,
    SchemaRegistry,
    once,
)
from squall_io.kit.schemas.wire import head, indexes_head, indexes_of, schema_id_of
from topology_api import FailTuple, SquallError
from topology_api.wording import class_name, message_of, typed

#: Files that every registry has.
_WELL_KNOWN: Final = ("google/protobuf/", "google/type/", "confluent/")


class Protobuf(RegistryCodec):
    """Protobuf with a schema registry. Needs the extra `squall[protobuf]`.

    Read values are messages of the class; written are messages of it, or dicts from its fields to their values. The file of the
    class is registered, with the files that it imports, each as a subject of the file's name.

    message: the class, as `protoc` has made it.
    """

    def __init__(
        self,
        message: Any,
        registry: str,
        *,
        subject: str | None = None,
        password: str | None = None,
        register: bool = True,
        timeout: float = 10.0,
    ) -> None:
        descriptor = getattr(message, "DESCRIPTOR", None)
        problem = None
        if not isinstance(message, type) or not hasattr(descriptor, "full_name"):
            problem = f"message is {typed(message)}: give a class that protoc has made"
        super().__init__(registry, subject, password, register, timeout, [problem])
        self.message = message

    def open_decoder(self) -> Decode:
        """Return the function that reads messages. The registry is not needed: the class says how they are read."""
        error_of_protobuf = _loaded().message.DecodeError
        kind, own = self.message, _indexes(self.message.DESCRIPTOR)

        def decode(data: bytes) -> Any:
            schema_id_of(data)
            indexes, begin = indexes_of(data)
            if indexes != own:
                raise UnreadableMessage(
                    f"it is of another type of its file, {indexes}: {kind.__name__} is type {own}"
                )
            try:
                return kind.FromString(data[begin:])
            except error_of_protobuf as error:
                raise UnreadableMessage(f"it is no {kind.__name__}: {message_of(error)}") from None

        return decode

    def open_encoder(self, subject: str) -> Encode:
        """Return the function that writes messages. The registry is asked at the first one."""
        _loaded()
        registry, kind = self.opened(), self.message
        subject = self.subject or subject
        place = indexes_head(_indexes(kind.DESCRIPTOR))
        opened = once(lambda: head(self._registered(registry, subject, kind.DESCRIPTOR.file)) + place)

        def encode(value: Any) -> bytes:
            begin: bytes = opened()
            try:
                message = kind(**value) if isinstance(value, Mapping) else value
                if not isinstance(message, kind):
                    raise FailTuple(f"{typed(value)} is no {kind.__name__}, and no dict of its fields")
                return begin + bytes(message.SerializeToString())
            except FailTuple:
                raise
            except Exception as error:
                raise FailTuple(
                    f"{typed(value)} makes no {kind.__name__}: {class_name(error)}: {message_of(error)}"
                ) from error

        return encode

    def _registered(self, registry: SchemaRegistry, subject: str, file: Any) -> int:
        """Register a file after those that it imports; return its id."""
        return self.id_of(registry, subject, self._schema(registry, file))

    def _schema(self, registry: SchemaRegistry, file: Any) -> RegisteredSchema:
        references = []
        for each in file.dependencies:
            if not each.name.startswith(_WELL_KNOWN):
                schema = self._schema(registry, each)
                if self.register:
                    registry.register(each.name, schema)
                version = registry.registered(each.name, schema)[1]
                references.append(Reference(each.name, each.name, version))
        return RegisteredSchema(base64.b64encode(file.serialized_pb).decode(), PROTOBUF, tuple(references))


def _loaded() -> Any:
    try:
        import google.protobuf.message
    except ImportError:
        raise SquallError("Protobuf needs protobuf: install Squall with its extra `protobuf`") from None
    return google.protobuf


def _indexes(descriptor: Any) -> list[int]:
    """Return the place of a type in its file: the indexes of the types around it, then its own."""
    around = descriptor.containing_type
    if around is None:
        return [list(descriptor.file.message_types_by_name).index(descriptor.name)]
    return [*_indexes(around), [each.name for each in around.nested_types].index(descriptor.name)]
