"""Writes the page docs/http-api.md for people, from Nimbus's table of endpoints and the schemas of its OpenAPI document.

`scripts/reference_pages.py` calls it. Must not know: requests, handlers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from msgspec import Struct

from nimbus.http.errors import MEANINGS
from nimbus.http.errors import TABLE as ERRORS
from nimbus.http.openapi import REF, Schema, fields_of, schemas, statuses
from nimbus.http.table import ANYBODY, DAEMONS, OPERATORS, SUPERVISORS, TABLE, AnyEndpoint

#: Who may ask -> the sentence that says so.
WHO: Final[Mapping[frozenset[str], str]] = {
    ANYBODY: " Needs no credentials.",
    OPERATORS: "",
    DAEMONS: " Daemons may ask too.",
    SUPERVISORS: " For supervisors only.",
}
KINDS: Final = {
    "string": "text",
    "integer": "whole number",
    "number": "number",
    "boolean": "true or false",
    "object": "object",
    "array": "list",
}


def as_markdown() -> str:
    """Return the page docs/http-api.md."""
    return "\n".join(page()) + "\n"


INTRODUCTION: Final = """# The HTTP API

Nimbus answers HTTP requests, from the `squall` command or from any other client, such as `curl`:

```text
printf 'Authorization: Bearer %s\\n' "$(cat TOKEN_FILE)" |
    curl -H @- http://127.0.0.1:6627/api/v1/topologies
```

The operators' token is in a file whose path Nimbus logs when it becomes the leader. Any Nimbus of the cluster answers requests
that only read; a request that changes something is redirected (307) to the leader. `curl -L` follows the
redirect without the token and gets a 401: ask the leader instead, whose URL is in `GET /api/v1/cluster`, if it is a Nimbus that
you know. (`--location-trusted` would send the token to any host that an answer names.)

Names in paths are quoted (`a b` is `a%20b`). Answers are JSON; times are in seconds. The types of all fields are in
`openapi.json`; later releases may add fields. A body may be nested 100 levels deep.
"""
ERRORS_HEAD: Final = """## Errors

An error is `{"error": {"kind", "message", "problems"}}`: `message` is for people, `problems` lists all
problems, if there can be more than one. A 503 has the header `Retry-After`, in seconds.

| status | kinds | meaning |
|---|---|---|"""


def page() -> Iterator[str]:
    yield INTRODUCTION
    for group in dict.fromkeys(endpoint.group for endpoint in TABLE):
        yield f"## {group}"
        yield ""
        for endpoint in TABLE:
            if endpoint.group == group:
                yield from entry(endpoint)
    yield ERRORS_HEAD
    for status, meaning in MEANINGS.items():
        kinds = dict.fromkeys(f"`{kind}`" for of_row, kind, _ in ERRORS if of_row == status)
        yield f"| {status} | {', '.join(kinds)} | {meaning} |"


def entry(endpoint: AnyEndpoint) -> Iterator[str]:
    yield f"### {endpoint.method} {endpoint.path}"
    yield ""
    yield f"{endpoint.summary}.{WHO[endpoint.who]}"
    yield ""
    body = None if endpoint.body is None else endpoint.body.shape
    for where, shape in (("query", endpoint.query), ("body", body)):
        required = () if shape is None else schemas()[shape.__name__]["required"]
        fields = fields_of(shape)
        for name, schema in fields.items():
            must = ", required" if name in required else ""
            yield f"- `{name}` ({kind_of(schema)}, in the {where}{must}): {field_text(schema)}"
        if fields:
            yield ""
    for status, answer in endpoint.answers.items():
        yield f"- {status}: {answer_text(endpoint, status, answer)}"
    if errors := ", ".join(map(str, statuses(endpoint))):
        yield f"- errors: {errors}."
    yield ""


def kind_of(schema: Schema) -> str:
    if "$ref" in schema:
        return KINDS["object"]
    return "text" if "enum" in schema else KINDS[schema["type"]]


def field_text(schema: Schema) -> str:
    text = str(schema["description"])
    if "items" in schema:
        text += f" Each is `{shape_of(schema['items'])}`."
    if "enum" in schema:
        text += f" One of {', '.join(f'`{choice}`' for choice in schema['enum'])}."
    default = schema.get("default")
    if default not in (None, "", {}, []):
        text += f" Default: `{str(default).lower() if isinstance(default, bool) else default}`."
    return text


def answer_text(endpoint: AnyEndpoint, status: int, answer: type[Struct] | str) -> str:
    if isinstance(answer, str):
        return f"{answer}."
    schema = schemas()[answer.__name__]
    note = endpoint.notes.get(status)
    return f"`{shape_of(schema)}`, {note}." if note else f"`{shape_of(schema)}`. {schema['description']}"


def shape_of(schema: Mapping[str, Any]) -> str:
    """Return the fields of a schema in one line, nested ones too; "" if there are none, only a type."""
    if "$ref" in schema:
        return shape_of(schemas()[schema["$ref"].removeprefix(REF)])
    if "anyOf" in schema:
        inner = next((text for text in map(shape_of, schema["anyOf"]) if text), "")
        return f"{inner} or null" if inner else ""
    if "enum" in schema:
        return " or ".join(f'"{text}"' for text in schema["enum"])
    if "properties" in schema:
        fields = ((name, shape_of(each)) for name, each in schema["properties"].items())
        return "{" + ", ".join(f'"{name}": {text}' if text else f'"{name}"' for name, text in fields) + "}"
    values = schema.get("additionalProperties") or schema.get("items")
    inner = shape_of(values) if isinstance(values, dict) else ""
    if not inner:
        return ""
    return f"{{{schema['propertyNames']['title']}: {inner}}}" if schema["type"] == "object" else f"[{inner}]"
