"""A client that decodes answers into structs of the API. If an answer does not fit its struct, the client raises an error
before a command uses the answer.

The checks are necessary because any program may listen at the address of a Nimbus and answer in JSON. Unknown fields are
ignored, since a newer Nimbus sends more fields.
Must not know: the commands.
"""

from __future__ import annotations

from typing import Any, TypeVar

from msgspec import Struct, ValidationError, convert

from squall import __version__
from squall.api import answers, cluster_answers
from squall.http.client import Client, Refused, at
from squall_cli.cluster.events import events_of
from topology_api.errors import SquallError

A = TypeVar("A", bound=Struct)


class NoNimbus(SquallError):
    """The answer does not fit the API: perhaps the program that answered is not a Nimbus of this version."""


class NimbusClient(Client):
    """Sends requests to a Nimbus. Each method returns the answer as a struct; `*_json` methods also return the received
    JSON."""

    def cluster(self) -> cluster_answers.ClusterAnswer:
        return self.read(cluster_answers.ClusterAnswer, "cluster")

    def supervisors(self) -> list[cluster_answers.SupervisorEntry]:
        return self.read(cluster_answers.SupervisorsAnswer, "supervisors").supervisors

    def topologies(self) -> list[answers.TopologySummary]:
        return self.read(answers.TopologiesAnswer, "topologies").topologies

    def topology(self, name: str) -> answers.TopologyAnswer:
        return self.read(answers.TopologyAnswer, "topologies", name)

    def topology_or_none(self, name: str) -> answers.TopologyAnswer | None:
        """Return the status of a topology; None if no topology has this name."""
        try:
            return self.topology(name)
        except Refused as refused:
            if refused.kind == "NoSuchTopology":
                return None
            raise

    def change(
        self, name: str, change: str, body: object = None, repeatable: bool = False
    ) -> tuple[answers.StateAnswer, Any]:
        """Request a change of a topology: activate, deactivate or rebalance. `repeatable`: see `Client.post`."""
        place = "topologies", name, change
        return self.post_json(answers.StateAnswer, *place, body=body, repeatable=repeatable)

    def read(self, kind: type[A], *place: str, **query: object) -> A:
        """Send GET."""
        return self.read_json(kind, *place, **query)[0]

    def read_json(self, kind: type[A], *place: str, **query: object) -> tuple[A, Any]:
        """Send GET, for a command that prints the JSON."""
        return _decoded(kind, self.get(at(*place), **query), at(*place))

    def post_json(
        self,
        kind: type[A],
        *place: str,
        body: object = None,
        repeatable: bool = False,
        timeout: float | None = None,
    ) -> tuple[A, Any]:
        """Send POST. `repeatable`, `timeout`: see `Client.post`."""
        return _decoded(kind, self.post(at(*place), body, repeatable, timeout), at(*place))

    def delete_json(self, kind: type[A], *place: str, **query: object) -> tuple[A, Any]:
        """Send DELETE."""
        return _decoded(kind, self.delete(at(*place), **query), at(*place))


def _decoded(kind: type[A], value: object, path: str) -> tuple[A, Any]:
    problem = f"is {type(value).__name__}, not an object"
    if isinstance(value, dict):
        known = value
        if kind is answers.TopologyAnswer:  # a different release may have different events
            known = {**value, "events": events_of(value)}
        try:
            return convert(known, kind), value
        except ValidationError as error:
            problem = f"does not fit ({error})"
    raise NoNimbus(f"the answer to {path!r} {problem}: is a Nimbus of Squall {__version__} listening there?")
