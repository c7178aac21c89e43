"""Checks the JSON of a request against its struct and lists all problems; msgspec would stop at the first.

A field that is null counts as missing. Types are exact: true is not a number, 1.0 is not a whole number.
Must not know: what a request means, HTTP.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct, inspect

from topology_api.values import MAX_SECONDS, number_problem

_NAMES: Final[Mapping[type, str]] = {
    str: "a text", bool: "true or false", dict: "an object", list: "a list", int: "a whole number", float: "a number",
}  # fmt: skip
_TYPES: Final[tuple[tuple[type[inspect.Type], tuple[type, ...], str], ...]] = (
    (inspect.StrType, (str,), "a text"),
    (inspect.BoolType, (bool,), "true or false"),
    (inspect.DictType, (dict,), "an object"),
    (inspect.CollectionType, (list,), "a list"),
    (inspect.NamedTupleType, (list,), "a list"),
    (inspect.IntType, (int,), "a whole number"),
    (inspect.FloatType, (int, float), "a number"),
)


def problems_of(kind: type[Struct], body: object) -> tuple[dict[str, Any], list[str]]:
    """Return the fields of `body` that fit the struct, and all problems of the other fields."""
    fields = {field.name: field for field in fields_of(kind)}
    values: dict[str, Any] = {}
    problems = []
    if not isinstance(body, dict):
        problems, body = [f"a JSON object was expected, not {named(body)}"], {}
    if unknown := sorted(set(body) - set(fields)):
        problems.append(f"there is no field {', '.join(map(repr, unknown))!s:.200}")
    for name, field in fields.items():
        if body.get(name) is None:
            problems += [f"{name!r} is missing"] if field.required else []
        else:
            wrong = _wrong(name, plain_type(field.type), body[name])
            problems += wrong.values()
            if None not in wrong:
                given = body[name]
                values[name] = {key: given[key] for key in given if key not in wrong} if wrong else given
    return values, problems


def fields_of(kind: type[Struct]) -> tuple[inspect.Field, ...]:
    """Return the fields of a struct."""
    found = inspect.type_info(kind)
    assert isinstance(found, inspect.StructType)
    return found.fields


def plain_type(kind: inspect.Type) -> inspect.Type:
    """Return the type without its description, and without null."""
    if isinstance(kind, inspect.Metadata):
        return plain_type(kind.type)
    if isinstance(kind, inspect.UnionType):
        return next(plain_type(each) for each in kind.types if not isinstance(each, inspect.NoneType))
    return kind


def named(value: object) -> str:
    """Return the kind of JSON that a value is, in words."""
    return "null" if value is None else _NAMES.get(type(value), type(value).__name__)


def _wrong(name: str, kind: inspect.Type, value: Any) -> dict[object, str]:
    """Return the problems of one field, by the key of the wrong part; the key None means the whole field."""
    for info, types, wanted in _TYPES:
        if isinstance(kind, info) and type(value) not in types:
            return {None: f"{name!r} is {named(value)}, it must be {wanted}"}
    if isinstance(kind, inspect.FloatType) and kind.le == MAX_SECONDS:
        problem = number_problem(value, 0, MAX_SECONDS, "seconds", above=False)
        return {None: f"{name!r} {problem}"} if problem else {}
    if isinstance(kind, inspect.DictType) and isinstance(kind.value_type, inspect.StrType):
        return {
            key: f"{name}[{key!r:.80}] is not text" for key, text in value.items() if type(text) is not str
        }
    if isinstance(kind, inspect.NamedTupleType):
        if len(value) != len(kind.fields) or any(type(number) is not int for number in value):
            return {None: f"{name!r} is {value!r:.80}, it must be {len(kind.fields)} whole numbers"}
    elif isinstance(kind, inspect.ListType) and isinstance(kind.item_type, inspect.StructType):
        problems = [
            f"{name}[{row}]: {problem}"
            for row, each in enumerate(value)
            for problem in problems_of(kind.item_type.cls, each)[1]
        ]
        return dict(zip((None, *range(1, len(problems))), problems, strict=False))
    return {}
