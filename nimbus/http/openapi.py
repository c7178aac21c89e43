"""The API as documents: OpenAPI for machines, a page in Markdown for people. Both are made from the table and the errors.

Must not know: requests, handlers.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final

from nimbus.http.answers import Answer, as_schema, as_text
from nimbus.http.errors import MEANINGS
from nimbus.http.errors import TABLE as ERRORS
from nimbus.http.table import ANYBODY, DAEMONS, OPERATORS, TABLE, Endpoint, Parameter
from squall import __version__

_SCHEMAS: Final[dict[str, dict[str, Any]]] = {
    "text": {"type": "string"},
    "whole number": {"type": "integer"},
    "number": {"type": "number"},
    "true or false": {"type": "boolean"},
    "object": {"type": "object"},
    "list": {"type": "array", "items": {}},
}
_ERROR: Final = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["kind", "message", "problems"],
            "properties": {
                "kind": {"type": "string"},
                "message": {"type": "string"},
                "problems": {"type": "array", "items": {"type": "string"}},
            },
        }
    },
}


@lru_cache(maxsize=1)
def document() -> dict[str, Any]:
    """The OpenAPI document."""
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in TABLE:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Squall", "version": __version__, "description": "The control API of Nimbus."},
        "paths": paths,
        "components": {
            "schemas": {"Error": _ERROR},
            "securitySchemes": {
                "operator": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "The operators' token.",
                },
                "daemon": {
                    "type": "apiKey",
                    "in": "header",
                    "name": "Authorization",
                    "description": "Squall-Daemon ID:TOKEN, which a daemon makes from its key pair.",
                },
            },
        },
    }


def statuses(endpoint: Endpoint) -> tuple[int, ...]:
    """The statuses of the errors that an endpoint may answer with."""
    found = set(endpoint.errors)
    if endpoint.who != ANYBODY:
        found |= {401, 500, 503}
    if endpoint.query or endpoint.body is not None:
        found.add(400)
    return tuple(sorted(found))


def _operation(endpoint: Endpoint) -> dict[str, Any]:
    parameters = [
        {"name": part[1:-1], "in": "path", "required": True, "schema": {"type": "string"}}
        for part in endpoint.path.split("/")
        if part.startswith("{")
    ]
    parameters += [
        {
            "name": each.name,
            "in": "query",
            "required": False,
            "description": each.text,
            "schema": _schema(each),
        }
        for each in endpoint.query
    ]
    responses = {str(status): _response(endpoint, answer) for status, answer in endpoint.answers.items()}
    if endpoint.leads or endpoint.id == "get_file":
        location = {"schema": {"type": "string", "format": "uri"}}
        responses["307"] = {
            "description": "another Nimbus leads: the same, there",
            "headers": {"Location": location},
        }
    for status in statuses(endpoint):
        schema = {"$ref": "#/components/schemas/Error"}
        responses[str(status)] = {
            "description": MEANINGS[status],
            "content": {"application/json": {"schema": schema}},
        }
    operation: dict[str, Any] = {
        "operationId": endpoint.id,
        "summary": endpoint.summary,
        "tags": [endpoint.group],
        "parameters": parameters,
        "responses": responses,
        "security": _security(endpoint),
    }
    if endpoint.body is not None:
        properties = {each.name: {**_schema(each), "description": each.text} for each in endpoint.body}
        required = [each.name for each in endpoint.body if each.required]
        whole = {
            "type": "object",
            "properties": properties,
            "additionalProperties": False,
            "required": required,
        }
        operation["requestBody"] = {
            "required": bool(required),
            "content": {"application/json": {"schema": whole}},
        }
    elif endpoint.method == "PUT":
        operation["requestBody"] = {"required": True, "content": {"application/octet-stream": {}}}
    return operation


def _response(endpoint: Endpoint, answer: Answer) -> dict[str, Any]:
    if answer.shape is not None:
        schema = as_schema(answer.shape)
        description = answer.note.lstrip(",;: ") or "what was asked for"
        return {"description": description, "content": {endpoint.media_type: {"schema": schema}}}
    if endpoint.method == "HEAD":
        return {"description": answer.note}
    return {"description": answer.note, "content": {endpoint.media_type: {}}}


def _schema(parameter: Parameter) -> dict[str, Any]:
    schema = dict(_SCHEMAS[parameter.kind])
    if parameter.default is not None:
        schema["default"] = parameter.default
    if parameter.choices:
        schema["enum"] = list(parameter.choices)
    if parameter.least is not None:
        schema["minimum"] = parameter.least
    if parameter.most is not None:
        schema["maximum"] = parameter.most
    return schema


def _security(endpoint: Endpoint) -> list[dict[str, list[str]]]:
    if endpoint.who == ANYBODY:
        return []
    both: list[dict[str, list[str]]] = [{"operator": []}, {"daemon": []}]
    return both if endpoint.who == DAEMONS else both[:1] if endpoint.who == OPERATORS else both[1:]


def as_markdown() -> str:
    """The page docs/http-api.md, without its first line."""
    return "\n".join(_page()) + "\n"


def _page() -> Iterator[str]:
    yield "# The HTTP API"
    yield ""
    yield "Nimbus answers HTTP, as the `squall` command, and anyone's `curl`, ask it:"
    yield ""
    yield "```text"
    yield "printf 'Authorization: Bearer %s\\n' \"$(cat TOKEN_FILE)\" |"
    yield "    curl -H @- http://127.0.0.1:6627/api/v1/topologies"
    yield "```"
    yield ""
    yield "The operators' token is in the file that Nimbus names when it begins to lead. Any Nimbus of the cluster answers what"
    yield "only reads; a request that changes something is redirected (307) to the one that leads. `curl` follows there with"
    yield "`--location-trusted`; with `-L` it keeps the token to itself, and the answer is 401."
    yield ""
    yield "Names in paths are quoted (`a b` is `a%20b`). Answers are JSON; times are seconds. The types of all fields are in"
    yield "`openapi.json`; later releases may add fields. A body may be nested 100 levels deep."
    yield ""
    groups = dict.fromkeys(endpoint.group for endpoint in TABLE)
    for group in groups:
        yield f"## {group}"
        yield ""
        for endpoint in TABLE:
            if endpoint.group == group:
                yield from _entry(endpoint)
    yield "## Errors"
    yield ""
    yield 'An error is `{"error": {"kind", "message", "problems"}}`: `message` is for people, `problems` lists all that was'
    yield "found, where there may be more than one. With 503 stands `Retry-After`, in seconds."
    yield ""
    yield "| status | kinds | meaning |"
    yield "|---|---|---|"
    for status, meaning in MEANINGS.items():
        kinds = ", ".join(
            f"`{kind}`" for kind in dict.fromkeys(row.kind for row in ERRORS if row.status == status)
        )
        yield f"| {status} | {kinds} | {meaning} |"


def _entry(endpoint: Endpoint) -> Iterator[str]:
    yield f"### {endpoint.method} {endpoint.path}"
    yield ""
    yield f"{endpoint.summary}.{_who(endpoint)}"
    yield ""
    for where, parameters in (("in the query", endpoint.query), ("in the body", endpoint.body or ())):
        for each in parameters:
            choices = (
                f" One of {', '.join(f'`{choice}`' for choice in each.choices)}." if each.choices else ""
            )
            default = (
                ""
                if each.default is None
                else f" Default: `{str(each.default).lower() if isinstance(each.default, bool) else each.default}`."
            )
            must = ", required" if each.required else ""
            yield f"- `{each.name}` ({each.kind}, {where}{must}): {each.text}{choices}{default}"
        if parameters:
            yield ""
    for status, answer in endpoint.answers.items():
        yield f"- {status}: {as_text(answer)}."
    errors = ", ".join(map(str, statuses(endpoint)))
    if errors:
        yield f"- errors: {errors}."
    yield ""


def _who(endpoint: Endpoint) -> str:
    if endpoint.who == ANYBODY:
        return " Needs no credentials."
    if endpoint.who == DAEMONS:
        return " Daemons may ask too."
    return "" if endpoint.who == OPERATORS else " For supervisors only."
