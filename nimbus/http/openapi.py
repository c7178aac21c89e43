"""The API as documents: OpenAPI for machines, a page in Markdown for people. Both are made from the table and its structs.

Must not know: requests, handlers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

from msgspec import Struct
from msgspec.json import schema_components

from nimbus.http.errors import MEANINGS
from nimbus.http.errors import TABLE as ERRORS
from nimbus.http.table import ANYBODY, DAEMONS, OPERATORS, SUPERVISORS, TABLE, AnyEndpoint
from squall import __version__
from squall.api.answers import ErrorAnswer
from squall.reports.events import Cause, Event

Schema = dict[str, Any]

_REF: Final = "#/components/schemas/"
_WITHOUT_DEFAULTS: Final = (Event.__name__, Cause.__name__)
#: Who may ask -> their security schemes, and the sentence for the page.
_WHO: Final[Mapping[frozenset[str], tuple[tuple[str, ...], str]]] = {
    ANYBODY: ((), " Needs no credentials."),
    OPERATORS: (("operator",), ""),
    DAEMONS: (("operator", "daemon"), " Daemons may ask too."),
    SUPERVISORS: (("daemon",), " For supervisors only."),
}
_KINDS: Final = {
    "string": "text",
    "integer": "whole number",
    "number": "number",
    "boolean": "true or false",
    "object": "object",
    "array": "list",
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
            "schemas": _schemas(),
            "securitySchemes": {"operator": operator, "daemon": daemon},
        },
    }


@lru_cache(maxsize=1)
def _schemas() -> dict[str, Schema]:
    """Return the schema of each struct by its name. Nimbus always sends fields that have a default, except in events."""
    sent = [
        ErrorAnswer,
        *(shape for row in TABLE for shape in row.answers.values() if not isinstance(shape, str)),
    ]
    taken = [
        shape for row in TABLE for shape in (row.query, row.body and row.body.shape) if shape is not None
    ]
    schemas: dict[str, Schema] = {}
    for shapes, is_answer in ((sent, True), (taken, False)):
        for name, schema in schema_components(dict.fromkeys(shapes), ref_template=_REF + "{name}")[1].items():
            schema["description"] = " ".join(str(schema.get("description", "")).split())
            if is_answer and "properties" in schema and name not in _WITHOUT_DEFAULTS:
                schema["required"] = list(schema["properties"])
            elif "properties" in schema:
                schema["properties"] = {key: _taken(each) for key, each in schema["properties"].items()}
            schemas[name] = schema
    return schemas


def _taken(schema: Schema) -> Schema:
    """Return the schema of an optional field without its null."""
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
    for name, schema in _fields(endpoint.query).items():
        text = schema["description"]
        parameters.append(
            {"name": name, "in": "query", "required": False, "description": text, "schema": schema}
        )
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
        "security": [{scheme: []} for scheme in _WHO[endpoint.who][0]],
    }
    if endpoint.body is not None:
        schema = _schemas()[endpoint.body.shape.__name__]
        content = _json_of(endpoint.body.shape)
        operation["requestBody"] = {"required": bool(schema["required"]), "content": content}
    elif endpoint.method == "PUT":
        operation["requestBody"] = {"required": True, "content": {"application/octet-stream": {}}}
    return operation


def _response(endpoint: AnyEndpoint, status: int) -> dict[str, Any]:
    answer = endpoint.answers[status]
    if not isinstance(answer, str):
        text = endpoint.notes.get(status) or _schemas()[answer.__name__]["description"]
        return {"description": text, "content": _json_of(answer)}
    content: Schema = {} if endpoint.method == "HEAD" else {"content": {endpoint.media_type: {}}}
    return {"description": answer} | content


def _json_of(shape: type[Struct]) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": _REF + shape.__name__}}}


def _fields(shape: type[Struct] | None) -> dict[str, Schema]:
    """Return the schemas of the fields of a request, by name."""
    return {} if shape is None else dict(_schemas()[shape.__name__]["properties"])


def as_markdown() -> str:
    """Return the page docs/http-api.md."""
    return "\n".join(_page()) + "\n"


_INTRODUCTION: Final = """# The HTTP API

Nimbus answers HTTP requests, from the `squall` command or from any other client, such as `curl`:

```text
printf 'Authorization: Bearer %s\\n' "$(cat TOKEN_FILE)" |
    curl -H @- http://127.0.0.1:6627/api/v1/topologies
```

The operators' token is in a file whose path Nimbus logs when it becomes the leader. Any Nimbus of the cluster answers requests
that only read; a request that changes something is redirected (307) to the leader. `curl --location-trusted` follows the
redirect; `curl -L` follows it without the token and gets a 401.

Names in paths are quoted (`a b` is `a%20b`). Answers are JSON; times are in seconds. The types of all fields are in
`openapi.json`; later releases may add fields. A body may be nested 100 levels deep.
"""
_ERRORS: Final = """## Errors

An error is `{"error": {"kind", "message", "problems"}}`: `message` is for people, `problems` lists all
problems, if there can be more than one. A 503 has the header `Retry-After`, in seconds.

| status | kinds | meaning |
|---|---|---|"""


def _page() -> Iterator[str]:
    yield _INTRODUCTION
    for group in dict.fromkeys(endpoint.group for endpoint in TABLE):
        yield f"## {group}"
        yield ""
        for endpoint in TABLE:
            if endpoint.group == group:
                yield from _entry(endpoint)
    yield _ERRORS
    for status, meaning in MEANINGS.items():
        kinds = dict.fromkeys(f"`{row.kind}`" for row in ERRORS if row.status == status)
        yield f"| {status} | {', '.join(kinds)} | {meaning} |"


def _entry(endpoint: AnyEndpoint) -> Iterator[str]:
    yield f"### {endpoint.method} {endpoint.path}"
    yield ""
    yield f"{endpoint.summary}.{_WHO[endpoint.who][1]}"
    yield ""
    body = None if endpoint.body is None else endpoint.body.shape
    for where, shape in (("query", endpoint.query), ("body", body)):
        required = () if shape is None else _schemas()[shape.__name__]["required"]
        fields = _fields(shape)
        for name, schema in fields.items():
            must = ", required" if name in required else ""
            yield f"- `{name}` ({_kind(schema)}, in the {where}{must}): {_field_text(schema)}"
        if fields:
            yield ""
    for status, answer in endpoint.answers.items():
        yield f"- {status}: {_answer_text(endpoint, status, answer)}"
    if errors := ", ".join(map(str, statuses(endpoint))):
        yield f"- errors: {errors}."
    yield ""


def _kind(schema: Schema) -> str:
    return "text" if "enum" in schema else _KINDS[schema["type"]]


def _field_text(schema: Schema) -> str:
    text = str(schema["description"])
    if "items" in schema:
        text += f" Each is `{_shape(schema['items'])}`."
    if "enum" in schema:
        text += f" One of {', '.join(f'`{choice}`' for choice in schema['enum'])}."
    default = schema.get("default")
    if default not in (None, "", {}, []):
        text += f" Default: `{str(default).lower() if isinstance(default, bool) else default}`."
    return text


def _answer_text(endpoint: AnyEndpoint, status: int, answer: type[Struct] | str) -> str:
    if isinstance(answer, str):
        return f"{answer}."
    schema = _schemas()[answer.__name__]
    note = endpoint.notes.get(status)
    return f"`{_shape(schema)}`, {note}." if note else f"`{_shape(schema)}`. {schema['description']}"


def _shape(schema: Mapping[str, Any]) -> str:
    """Return the fields of a schema in one line, nested ones too; "" if there are none, only a type."""
    if "$ref" in schema:
        return _shape(_schemas()[schema["$ref"].removeprefix(_REF)])
    if "anyOf" in schema:
        inner = next((text for text in map(_shape, schema["anyOf"]) if text), "")
        return f"{inner} or null" if inner else ""
    if "enum" in schema:
        return " or ".join(f'"{text}"' for text in schema["enum"])
    if "properties" in schema:
        fields = ((name, _shape(each)) for name, each in schema["properties"].items())
        return "{" + ", ".join(f'"{name}": {text}' if text else f'"{name}"' for name, text in fields) + "}"
    values = schema.get("additionalProperties") or schema.get("items")
    inner = _shape(values) if isinstance(values, dict) else ""
    if not inner:
        return ""
    return f"{{{schema['propertyNames']['title']}: {inner}}}" if schema["type"] == "object" else f"[{inner}]"
