"""A client whose answers are structs of the API: whatever does not fit is one error, raised before a command uses it.

Any program may listen at the address of a Nimbus, and answer in JSON. Fields that are not known here are ignored: a newer
Nimbus sends more.
Must not know: what is asked.
"""

from __future__ import annotations

from typing import Any, TypeVar

from msgspec import Struct, ValidationError, convert

from squall import __version__
from squall.api.answers import TopologyAnswer
from squall.http.client import Client
from squall_cli.cluster.events import events_of
from topology_api.errors import SquallError

A = TypeVar("A", bound=Struct)


class NoNimbus(SquallError):
    """The answer does not come from a Nimbus of this version."""


class NimbusClient(Client):
    """Asks a Nimbus. Each method returns the answer as its struct; `*_json` returns the JSON as it came, too."""

    def read(self, kind: type[A], path: str, **query: object) -> A:
        """GET."""
        return self.read_json(kind, path, **query)[0]

    def read_json(self, kind: type[A], path: str, **query: object) -> tuple[A, Any]:
        """GET, for a command that prints the JSON."""
        return _decoded(kind, self.get(path, **query), path)

    def post_json(
        self,
        kind: type[A],
        path: str,
        body: object = None,
        repeatable: bool = False,
        timeout: float | None = None,
    ) -> tuple[A, Any]:
        """POST."""
        return _decoded(kind, self.post(path, body, repeatable, timeout), path)

    def delete_json(self, kind: type[A], path: str, **query: object) -> tuple[A, Any]:
        """DELETE."""
        return _decoded(kind, self.delete(path, **query), path)


def _decoded(kind: type[A], value: object, path: str) -> tuple[A, Any]:
    if not isinstance(value, dict):
        raise NoNimbus(_text(path, f"is {type(value).__name__}, not an object"))
    known = value
    if kind is TopologyAnswer:  # another release may have other events
        known = {**value, "events": events_of(value)}
    try:
        return convert(known, kind), value
    except ValidationError as error:
        raise NoNimbus(_text(path, f"does not fit ({error})")) from None


def _text(path: str, problem: str) -> str:
    return f"the answer to {path!r} {problem}: is it a Nimbus of Squall {__version__} that listens there?"
