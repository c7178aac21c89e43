"""JSON messages whose schemas are in a registry. jsonschema is imported if it is to check. Must not know: connectors, HTTP."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from squall_io.kit.codecs import Decode, Encode, UnreadableMessage, decoder, encoder
from squall_io.kit.schemas.registry import (
    JSON,
    RegisteredSchema,
    RegistryCodec,
    SchemaRegistry,
    once,
    readable,
    text_of_schema,
)
from squall_io.kit.schemas.wire import HEAD, head, schema_id_of
from topology_api import FailTuple, SquallError
from topology_api.wording import class_name, message_of


class JsonSchema(RegistryCodec):
    """JSON with a schema registry.

    schema: to write, the schema: a dict, or JSON; None: the last version of the subject. To read, the schema to check values
        with; None: that of each message.
    validate: whether values are checked, which costs much more than reading or writing them. It needs the extra
        `squall[json-schema]`. Without it, nothing is checked: the schema only goes with the messages.
    """

    def __init__(
        self,
        registry: str,
        *,
        schema: Any = None,
        subject: str | None = None,
        password: str | None = None,
        register: bool = True,
        validate: bool = False,
        timeout: float = 10.0,
    ) -> None:
        text, problem = text_of_schema("schema", schema)
        super().__init__(registry, subject, password, register, timeout, [problem])
        self.schema, self.validate = text, validate

    def open_decoder(self) -> Decode:
        """Return the function that reads messages."""
        read, registry = decoder("json"), self.opened()
        checks: dict[int, Callable[[Any], str | None]] = {}
        wanted = None if self.schema is None else RegisteredSchema(self.schema, JSON)
        if self.validate:
            _loaded()

        def decode(data: bytes) -> Any:
            schema_id = schema_id_of(data)
            value = read(data[HEAD:])
            if self.validate:
                if (check := checks.get(schema_id)) is None:
                    found = registry.schema(schema_id) if wanted is None else wanted
                    if found.schemaType != JSON:
                        raise UnreadableMessage(
                            f"its schema {schema_id} is of type {found.schemaType}, not JSON"
                        )
                    check = checks[schema_id] = (
                        _check(registry, found)
                        if wanted is not None
                        else readable(lambda: _check(registry, found), schema_id)
                    )
                if (why := check(value)) is not None:
                    raise UnreadableMessage(f"it does not fit its schema: {why}")
            return value

        return decode

    def open_encoder(self, subject: str) -> Encode:
        """Return the function that writes messages. The registry is asked at the first one."""
        write, registry = encoder("json"), self.opened()
        subject = self.subject or subject
        if self.validate:
            _loaded()

        def schema() -> tuple[bytes, Callable[[Any], str | None] | None]:
            if self.schema is None:
                schema_id, found = registry.latest(subject)
            else:
                found = RegisteredSchema(self.schema, JSON)
                schema_id = self.id_of(registry, subject, found)
            return head(schema_id), _check(registry, found) if self.validate else None

        opened = once(schema)

        def encode(value: Any) -> bytes:
            begin, check = opened()
            data = write(value)
            if check is not None and (why := check(json.loads(data))) is not None:
                raise FailTuple(f"the value does not fit the schema of {subject!r}: {why}")
            return bytes(begin + data)

        return encode


def _loaded() -> Any:
    try:
        import jsonschema
    except ImportError:
        raise SquallError(
            "JsonSchema(validate=True) needs jsonschema: install Squall with its extra `json-schema`"
        ) from None
    return jsonschema


def _check(registry: SchemaRegistry, schema: RegisteredSchema) -> Callable[[Any], str | None]:
    """Return what says why a value does not fit a schema. What the schema refers to is that of the registry, and nothing is
    fetched from anywhere else."""
    jsonschema = _loaded()
    import referencing
    from referencing.jsonschema import DRAFT7

    try:
        parsed = json.loads(schema.schema)
        known = [
            (each.name, referencing.Resource.from_contents(json.loads(found.schema), DRAFT7))
            for each, found in registry.named(schema)
        ]
        kind = jsonschema.validators.validator_for(parsed, jsonschema.Draft7Validator)
        kind.check_schema(parsed)
        validator = kind(parsed, registry=referencing.Registry().with_resources(known))
    except SquallError:
        raise
    except Exception as error:
        raise SquallError(
            f"the schema is no JSON Schema: {class_name(error)}: {message_of(error)}"
        ) from error

    def check(value: Any) -> str | None:
        try:
            error = jsonschema.exceptions.best_match(validator.iter_errors(value))
        except Exception as failure:  # the schema refers to one that is not there
            return f"{class_name(failure)}: {message_of(failure)}"
        return None if error is None else f"{error.json_path}: {' '.join(str(error.message).split())[:500]}"

    return check
