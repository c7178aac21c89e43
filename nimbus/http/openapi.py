"""The API as an OpenAPI document, made from the table and its structs. `scripts/http_api_page.py` makes the page for readers.

Must not know: requests, handlers.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from msgspec import Struct
from msgspec.json import schema_components

from nimbus.http.errors import MEANINGS
from nimbus.http.table import ANYBODY, DAEMONS, OPERATORS, SUPERVISORS, TABLE, AnyEndpoint
from squall import __version__
from squall.api.errors import ErrorAnswer
from squall.reports.events import Cause, Event

Schema = dict[str, Any]

REF: Final = "#/components/schemas/"
_WITHOUT_DEFAULTS: Final = (Event.__name__, Cause.__name__)
#: Who may ask -> the security schemes.
_WHO: Final[Mapping[frozenset[str], tuple[str, ...]]] = {
    ANYBODY: (),
    OPERATORS: ("operator",),
    DAEMONS: ("operator", "daemon"),
    SUPERVISORS: ("daemon",),
}


@lru_cache(maxsize=1)
def document() -> dict[str, Any]:
    """Return the OpenAPI document."""
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in TABLE:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint)
    operator = {"type": "http", "scheme": "bearer", "description": "The operators' token."}
    daemon = {
        "type": "apiKey",
        "in": "header",
        "name": "Authorization",
        "description": "Squall-Daemon ID:TOKEN, which a daemon makes from its key pair.",
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "Squall", "version": __version__, "description": "The control API of Nimbus."},
        "paths": paths,
        "components": {
            "schemas": schemas(),
            "securitySchemes": {"operator": operator, "daemon": daemon},
        },
    }


@lru_cache(maxsize=1)
def schemas() -> dict[str, Schema]:
    """Return the schema of each struct, by the struct's name. In answers, fields with a default are required too, because
    Nimbus always sends them, except in events."""
    sent = [
        ErrorAnswer,
        *(shape for row in TABLE for shape in row.answers.values() if not isinstance(shape, str)),
    ]
    taken = [shape for row in TABLE for shape in (row.query, row.body and row.body.shape) if shape]
    found: dict[str, Schema] = {}
    for shapes, is_answer in ((sent, True), (taken, False)):
        for name, schema in schema_components(dict.fromkeys(shapes), ref_template=REF + "{name}")[1].items():
            if name in found:  # it is sent and taken
                continue
            schema["description"] = " ".join(str(schema.get("description", "")).split())
            if is_answer and "properties" in schema and name not in _WITHOUT_DEFAULTS:
                schema["required"] = list(schema["properties"])
            elif "properties" in schema:
                schema["properties"] = {key: _taken(each) for key, each in schema["properties"].items()}
            found[name] = schema
    return found


def _taken(schema: Schema) -> Schema:
    """Return the schema of an optional field, without the type null."""
    schema = {**schema, **next((each for each in schema.get("anyOf", ()) if each != {"type": "null"}), {})}
    schema.pop("anyOf", None)
    if schema.get("default", ...) is None:
        del schema["default"]
    return schema


def statuses(endpoint: AnyEndpoint) -> tuple[int, ...]:
    """Return the error statuses of an endpoint."""
    found = set(endpoint.errors)
    if endpoint.who != ANYBODY:
        found |= {401, 500, 503}
    if endpoint.query or endpoint.body is not None:
        found.add(400)
    return tuple(sorted(found))


def _operation(endpoint: AnyEndpoint) -> dict[str, Any]:
    parameters = [
        {"name": part[1:-1], "in": "path", "required": True, "schema": {"type": "string"}}
        for part in endpoint.path.split("/")
        if part.startswith("{")
    ]
    for name, schema in fields_of(endpoint.query).items():
        described = {"description": schema["description"], "schema": schema}
        parameters.append({"name": name, "in": "query", "required": False, **described})
    responses = {str(status): _response(endpoint, status) for status in endpoint.answers}
    if endpoint.leads or endpoint.id == "get_file":
        location = {"schema": {"type": "string", "format": "uri"}}
        text = "another Nimbus leads: ask there"
        responses["307"] = {"description": text, "headers": {"Location": location}}
    for status in statuses(endpoint):
        responses[str(status)] = {"description": MEANINGS[status], "content": _json_of(ErrorAnswer)}
    operation: dict[str, Any] = {
        "operationId": endpoint.id,
        "summary": endpoint.summary,
        "tags": [endpoint.group],
        "parameters": parameters,
        "responses": responses,
        "security": [{scheme: []} for scheme in _WHO[endpoint.who]],
    }
    if endpoint.body is not None:
        schema = schemas()[endpoint.body.shape.__name__]
        content = _json_of(endpoint.body.shape)
        operation["requestBody"] = {"required": bool(schema["required"]), "content": content}
    elif endpoint.method == "PUT":
        operation["requestBody"] = {"required": True, "content": {"application/octet-stream": {}}}
    return operation


def _response(endpoint: AnyEndpoint, status: int) -> dict[str, Any]:
    answer = endpoint.answers[status]
    if not isinstance(answer, str):
        text = endpoint.notes.get(status) or schemas()[answer.__name__]["description"]
        return {"description": text, "content": _json_of(answer)}
    content: Schema = {} if endpoint.method == "HEAD" else {"content": {endpoint.media_type: {}}}
    return {"description": answer} | content


def _json_of(shape: type[Struct]) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": REF + shape.__name__}}}


def fields_of(shape: type[Struct] | None) -> dict[str, Schema]:
    """Return the schemas of the fields of a request, by name."""
    return {} if shape is None else dict(schemas()[shape.__name__]["properties"])
