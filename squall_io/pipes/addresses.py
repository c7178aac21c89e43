"""Addresses of sources and sinks, `SCHEME:PLACE?OPTION=VALUE&...`: how they are read, and how their options become arguments.

An option is an argument of the connector's class, under the same name: `file:/var/log/app.log?follow=false`. Its annotation
says how its text is read. An argument that is a mapping takes an option for each of its names: `settings.linger.ms=5`.
Must not know: connectors.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Collection, Iterator
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl, unquote

from topology_api import SquallError
from topology_api.wording import listed, nearest, shown

_SCHEME: Final = re.compile(r"([a-z][a-z0-9.+-]*):", re.IGNORECASE)
_TRUTHS: Final = {"true": True, "false": False, "yes": True, "no": False}


class WrongAddress(SquallError):
    """An address that names no source or no sink, or has a wrong option. The text has all problems, a line each."""


class PipeAddress(NamedTuple):
    """A parsed address. scheme: in small letters. place: what is between the scheme and the options, still quoted.
    options: names and values, in order."""

    text: str
    scheme: str
    place: str
    options: tuple[tuple[str, str], ...] = ()

    @property
    def path(self) -> str:
        """The place without quotes, and without the "//" before a path: "/var/log/app.log"."""
        place = unquote(self.place)
        return place[2:] if place.startswith("///") else place

    @property
    def authority(self) -> str:
        """What names the servers in `//SERVERS/...`, without quotes; "" if nothing does."""
        return unquote(self.place[2:].partition("/")[0]) if self.place.startswith("//") else ""

    @property
    def below(self) -> str:
        """What follows the servers, without quotes and without the "/" between."""
        return unquote(self.place[2:].partition("/")[2]) if self.place.startswith("//") else ""


def parse_address(text: str) -> PipeAddress:
    """Parse an address. Raises WrongAddress."""
    found = _SCHEME.match(text)
    if found is None:
        raise WrongAddress(
            f"{shown(text)} is no address: it begins with a scheme, as in file:/var/log/app.log or kafka://host:9092/topic"
        )
    place, mark, options = text[found.end() :].partition("?")
    try:
        pairs = parse_qsl(options, keep_blank_values=True, strict_parsing=bool(options))
    except ValueError:
        raise WrongAddress(f"{shown(text)}: its options are NAME=VALUE, with & between them") from None
    if mark and not options:
        raise WrongAddress(
            f"{shown(text)} ends with ?, which begins options; if it is part of a path, write %3F"
        )
    return PipeAddress(text, found[1].lower(), place, tuple(pairs))


def arguments_of(component: type, address: PipeAddress, taken: Collection[str]) -> dict[str, Any]:
    """Return the options of an address as arguments of a connector's class. Raises WrongAddress with all problems.

    taken: the arguments that the place itself gives; an option cannot give them again.
    """
    parameters = {
        name: parameter
        for name, parameter in inspect.signature(component).parameters.items()
        if name not in taken
    }
    found: dict[str, Any] = {}
    problems: list[str] = []
    for option, text in address.options:
        name, _, key = option.partition(".")
        kinds = [] if name not in parameters else _kinds(parameters[name])
        if not kinds:
            problems.append(
                f"there is no option {shown(option)}{nearest(name, parameters)}; {component.__name__} takes"
                f" {listed(_givable(parameters))}"
            )
        elif key and _is_mapping(kinds):
            found.setdefault(name, {})[key] = text
        elif option in found:
            problems.append(f"{name} is given twice")
        else:
            try:
                found[name] = _value(kinds, text)
            except ValueError as error:
                problems.append(f"{name} is {shown(text)}: {error}")
    if problems:
        raise WrongAddress("\n".join(f"{address.scheme}: {problem}" for problem in problems))
    return found


def _givable(parameters: dict[str, inspect.Parameter]) -> Iterator[str]:
    """Yield the arguments that an option can give."""
    for name, parameter in parameters.items():
        kinds = _kinds(parameter)
        if _is_mapping(kinds) or any(
            kind in ("bool", "int", "float", "str") or _is_list(kind) for kind in kinds
        ):
            yield f"{name}.NAME" if kinds and all(map(_is_map, kinds)) else name


def _kinds(parameter: inspect.Parameter) -> list[str]:
    """Return the alternatives of an annotation, which is text: `int | None` has two."""
    text, depth, kinds = str(parameter.annotation), 0, [""]
    for character in text:
        depth += {"[": 1, "]": -1}.get(character, 0)
        if character == "|" and depth == 0:
            kinds.append("")
        else:
            kinds[-1] += character
    return [kind.strip() for kind in kinds if kind.strip() != "None"]


def _is_map(kind: str) -> bool:
    return kind.startswith(("Mapping[", "dict["))


def _is_list(kind: str) -> bool:
    return kind.startswith(("Sequence[str]", "Collection[str]", "list[str]"))


def _is_mapping(kinds: list[str]) -> bool:
    return any(map(_is_map, kinds))


def _value(kinds: list[str], text: str) -> Any:
    """Return what a text stands for, as the first alternative that can be read. Raises ValueError with what to give."""
    wanted = []
    if "bool" in kinds:
        if text.lower() in _TRUTHS:
            return _TRUTHS[text.lower()]
        wanted.append("true or false")
    for kind, make, what in (("int", int, "a whole number"), ("float", float, "a number")):
        if kind in kinds:
            try:
                return make(text)
            except ValueError:
                wanted.append(what)
    if any(map(_is_list, kinds)) and ("str" not in kinds or "," in text):
        return tuple(part.strip() for part in text.split(","))
    if "str" in kinds:
        return text
    raise ValueError(
        f"give {' or '.join(wanted)}" if wanted else "an address cannot give it; write the topology in Python"
    )
