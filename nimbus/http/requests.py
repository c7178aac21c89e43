"""Reads the query and the JSON body of a request, within limits. The table of endpoints says which struct each becomes.

Must not know: the meaning of requests.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from typing import Any, Final

from msgspec import ValidationError, convert, inspect
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from nimbus.submission.parse import BadRequest, S, TooLarge
from squall.api.problems import fields_of, plain_type

#: How deep objects and lists in a body may be nested: far below Python's recursion limit. Configurations may be nested only
#: half as deep.
_MOST_LEVELS: Final = 100


def read_query(shape: type[S], pairs: list[tuple[str, str]]) -> S:
    """Return the query as its struct; raise `BadRequest` with all problems."""
    known = {field.name: plain_type(field.type) for field in fields_of(shape)}
    values: dict[str, object] = {}
    problems = []
    for name, text in pairs:
        if name not in known:
            problems.append(f"the query has an unknown parameter {name!r:.80}")
            continue
        try:
            values[name] = _value(known[name], text)
        except ValueError as error:
            problems.append(f"{name!r} in the query {error}")
    if problems:
        raise BadRequest(problems)
    try:
        return convert(values, shape)
    except ValidationError as error:  # a text outside of the limits of its parameter
        raise BadRequest([f"the query: {error}"]) from None


def _value(kind: inspect.Type, text: str) -> object:
    if isinstance(kind, inspect.LiteralType) and text not in kind.values:
        raise ValueError(f"is {text!r:.80}: give {' or '.join(map(repr, kind.values))}")
    if not isinstance(kind, (inspect.IntType, inspect.FloatType)):
        return text
    wanted = "whole number" if isinstance(kind, inspect.IntType) else "number"
    try:
        number = int(text) if isinstance(kind, inspect.IntType) else float(text)
    except ValueError:
        raise ValueError(f"is {text!r:.80}: give a {wanted}") from None
    least = -math.inf if kind.ge is None else kind.ge
    most = math.inf if kind.le is None else kind.le
    if not least <= number <= most:  # NaN compares as false
        limits = f"{least:,.0f} or more" if most == math.inf else f"{least:,.0f} to {most:,.0f}"
        raise ValueError(f"is {text:.80}: give a {wanted}, {limits}")
    return number


async def read_json(request: Request, limit: int) -> Any:
    """Return the JSON of a body; None if the body is empty. Raises `TooLarge` above `limit` bytes."""
    size = request.headers.get("content-length", "")
    over = TooLarge(f"the request is longer than the {limit:,} bytes that are accepted here")
    if size.isdigit() and int(size) > limit:
        raise over
    data = bytearray()
    async for chunk in request.stream():
        data += chunk
        if len(data) > limit:
            raise over
    return await run_in_threadpool(parsed_json, bytes(data)) if data else None


def parsed_json(data: bytes) -> Any:
    """Parse JSON, and accept only JSON that can be written again: not nested too deeply, without NaN."""
    too_deep = BadRequest([f"the body is nested more than {_MOST_LEVELS} levels deep"])
    try:
        value = json.loads(data, parse_constant=_refuse_constant)
    except ValueError as error:
        raise BadRequest([f"the body is not JSON: {error}"]) from None
    except RecursionError:
        raise too_deep from None
    level = _containers([value])
    for _ in range(_MOST_LEVELS):
        level = _containers(
            inner for each in level for inner in (each.values() if isinstance(each, dict) else each)
        )
    if level:
        raise too_deep
    return value


def _containers(values: Iterable[Any]) -> list[Any]:
    return [value for value in values if isinstance(value, (dict, list))]


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")
