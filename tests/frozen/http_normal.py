"""Answers over HTTP without values that differ from run to run, and without texts for people: for comparisons.

Texts for people become `<text>`, times `<time>`, random names of a run their meaning. Must not know: requests.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

#: Fields whose value is for people.
SAID: Final = frozenset({"message", "problems", "text", "error", "why", "errors", "idle", "first_failure"})
TIMES: Final = frozenset({"uptime_secs", "state_secs", "submitted", "secs", "note_times", "time"})
VERSIONS: Final = frozenset({"version", "python", "cloudpickle", "squall"})
_TOPOLOGY_ID: Final = re.compile(r"-(\d+)-\d{9,}")
#: Fields of an OpenAPI document that are for people.
DESCRIBED: Final = frozenset({"description", "summary", "title", "info", "tags", "operationId"})


def normal(value: Any, names: Mapping[str, str], key: str = "") -> Any:
    """JSON values of an answer in comparable form. `names`: texts of this run, and their replacements."""
    if isinstance(value, dict):
        return {_named(name, names): normal(each, names, name) for name, each in value.items()}
    if isinstance(value, list):
        return [normal(each, names, key) for each in value]
    if key in TIMES and isinstance(value, (int, float)) and not isinstance(value, bool):
        return "<time>"
    if isinstance(value, str):
        if key in SAID:
            return "<text>" if value else ""
        return "<version>" if key in VERSIONS and value else _named(value, names)
    return value


def _named(text: str, names: Mapping[str, str]) -> str:
    for name in sorted(names, key=len, reverse=True):
        text = text.replace(name, names[name])
    return _TOPOLOGY_ID.sub(r"-\1-<time>", text)


def normal_answer(answer: Mapping[str, Any]) -> dict[str, Any]:
    """An answer in comparable form."""
    names, body = answer["names"], answer["body"]
    if isinstance(body, dict) and "openapi" in body:
        body = without_words(body)
    elif isinstance(body, str) and answer["headers"]["content-type"].startswith("text/plain"):
        body = sorted(line for line in _named(body, names).splitlines() if not line.startswith("# HELP"))
    else:
        body = normal(body, names)
    headers = normal(answer["headers"], names)
    if "allow" in headers:
        headers["allow"] = sorted(headers["allow"].replace(",", " ").split())
    return {"status": answer["status"], "headers": headers, "body": body}


def without_words(value: Any) -> Any:
    """An OpenAPI document without texts for people."""
    if isinstance(value, dict):
        kept = {name: each for name, each in value.items() if name not in DESCRIBED or isinstance(each, dict)}
        return {name: without_words(each) for name, each in kept.items() if name != "info"}
    if isinstance(value, list):
        if value and all(isinstance(each, dict) and "name" in each for each in value):
            return {each["name"]: without_words(each) for each in value}
        return [without_words(each) for each in value]
    return value


def resolved(answer: Mapping[str, Any]) -> Mapping[str, Any]:
    """A normal answer; if it is an OpenAPI document, with the schemas in place of references to them, without the parts of
    schemas that say nothing: `additionalProperties: {}`, and the type of an enumeration.
    """
    body = answer["body"]
    if not isinstance(body, dict) or "openapi" not in body:
        return answer
    without = {name: each for name, each in body.items() if name != "components"}
    return {**answer, "body": _resolved(without, body["components"]["schemas"])}


def _resolved(value: Any, schemas: Mapping[str, Any]) -> Any:
    if isinstance(value, list):
        return [_resolved(each, schemas) for each in value]
    if not isinstance(value, dict):
        return value
    if "$ref" in value:
        return _resolved(schemas[value["$ref"].rpartition("/")[2]], schemas)
    silent = {name for name, each in value.items() if name == "additionalProperties" and each == {}}
    if isinstance(value.get("enum"), list):
        silent.add("type")
    return {name: _resolved(each, schemas) for name, each in value.items() if name not in silent}


def missing(now: Any, then: Any, path: str = "") -> list[str]:
    """The places where an answer lacks something that it had. Additional fields are allowed."""
    if isinstance(then, dict) and isinstance(now, dict):
        gone = [f"{path}/{name} is gone" for name in then if name not in now]
        both = [name for name in then if name in now]
        return gone + [each for name in both for each in missing(now[name], then[name], f"{path}/{name}")]
    if isinstance(then, list) and isinstance(now, list):
        if path.endswith(("/required", "/enum")) or path == "/body":  # sets
            return [f"{path} lacks {each!r}" for each in then if each not in now]
        if len(then) == len(now):
            return [each for at, old in enumerate(then) for each in missing(now[at], old, f"{path}[{at}]")]
    if now == then and type(now) is type(then):
        return []
    return [f"{path} was {then!r:.200} and is {now!r:.200}"]
