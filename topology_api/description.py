"""Converts a topology to its typed description (JSON-compatible values) and back.

A description may come over the network, so `parse` checks everything: first its shape, then the rules of validation. It raises
InvalidTopology with all problems, and never unpickles anything.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Any, TypeVar

from topology_api.errors import InvalidTopology
from topology_api.topology import ComponentSpec, GroupingSpec, StreamSpec, Subscription, Topology
from topology_api.validation import problems_of_topology
from topology_api.wording import shown

T = TypeVar("T")
FORMAT = 1  # increased when an older reader would misread a new description


def describe(topology: Topology) -> dict[str, Any]:
    """Return the topology's description, which `parse` reads."""
    from topology_api.options import json_copy

    return {
        "format": FORMAT,
        "name": topology.name,
        "conf": json_copy(topology.conf),
        "components": [
            {
                "id": component.id,
                "kind": component.kind,
                "parallelism": component.parallelism,
                "conf": json_copy(component.conf),
                **({"keeps_tasks": True} if component.keeps_tasks else {}),
                "outputs": {
                    stream: {"fields": list(spec.fields), "direct": spec.direct}
                    for stream, spec in component.outputs.items()
                },
                "inputs": [
                    {
                        "source": subscription.source,
                        "stream": subscription.stream,
                        "grouping": subscription.grouping.kind,
                        "fields": list(subscription.grouping.fields),
                        "custom": b64encode(subscription.grouping.custom).decode("ascii"),
                    }
                    for subscription in component.inputs
                ],
                **({"keeps": json_copy(component.keeps)} if component.keeps else {}),
                **({} if component.batch_interval is None else {"batch_interval": component.batch_interval}),
            }
            for component in topology.components
        ],
    }


class _Reader:
    """Reads typed values from a description and records each problem with its place."""

    def __init__(self) -> None:
        self.problems: list[str] = []

    def problem(self, path: str, what: str) -> None:
        self.problems.append(f"the description's {path} {what}")

    def get(self, mapping: object, key: str, kind: type[T], place: str) -> T:
        value = mapping.get(key, None) if isinstance(mapping, Mapping) else None
        # A bool is an int in Python, but not in a description.
        if isinstance(value, kind) and (kind is bool or not isinstance(value, bool)):
            return value
        self.problem(place + key, f"is {shown(value)}: it must be a {kind.__name__}")
        return kind()

    def flag(self, mapping: object, key: str, place: str) -> bool:
        """A value that is written only if it is true."""
        return isinstance(mapping, Mapping) and key in mapping and self.get(mapping, key, bool, place)

    def seconds(self, mapping: object, key: str, place: str) -> float | None:
        """A time that only some components have."""
        if not isinstance(mapping, Mapping) or key not in mapping:
            return None
        value = self.get(mapping, key, float, place)
        if 0 < value < float("inf"):
            return value
        self.problem(place + key, f"is {shown(value)}: it must be a number > 0")
        return None

    def strings(self, mapping: object, key: str, place: str) -> tuple[str, ...]:
        values = self.get(mapping, key, list, place)
        if all(isinstance(value, str) for value in values):
            return tuple(values)
        self.problem(place + key, f"holds something that is not a string: {shown(values)}")
        return ()

    def component(self, number: int, raw: object) -> ComponentSpec:
        place = f"components[{number}]."
        outputs = self.get(raw, "outputs", dict, place)
        inputs = self.get(raw, "inputs", list, place)
        return ComponentSpec(
            id=self.get(raw, "id", str, place),
            kind=self.get(raw, "kind", str, place),
            parallelism=self.get(raw, "parallelism", int, place),
            conf=self.get(raw, "conf", dict, place),
            outputs={
                stream: self.stream(spec, f"{place}outputs[{stream!r}].") for stream, spec in outputs.items()
            },
            inputs=tuple(self.input(item, f"{place}inputs[{at}].") for at, item in enumerate(inputs)),
            keeps_tasks=self.flag(raw, "keeps_tasks", place),
            # A topology that an earlier release has described says nothing of what it keeps.
            keeps=self.get(raw, "keeps", dict, place) if isinstance(raw, Mapping) and "keeps" in raw else {},
            batch_interval=self.seconds(raw, "batch_interval", place),
        )

    def stream(self, raw: object, place: str) -> StreamSpec:
        return StreamSpec(self.strings(raw, "fields", place), self.get(raw, "direct", bool, place))

    def input(self, raw: object, place: str) -> Subscription:
        custom = b""
        try:
            custom = b64decode(self.get(raw, "custom", str, place), validate=True)
        except ValueError:
            self.problem(f"{place}custom", "is not base64")
        kind = self.get(raw, "grouping", str, place)
        if (kind == "custom") != bool(custom):
            self.problem(
                f"{place}custom", "must hold a pickle if the grouping is custom, and must be empty otherwise"
            )
        grouping = GroupingSpec(kind, self.strings(raw, "fields", place), custom)
        source = self.get(raw, "source", str, place)
        return Subscription(source, self.get(raw, "stream", str, place), grouping)


def parse(description: object, pickles: Mapping[str, bytes]) -> Topology:
    """Return the described topology. Raises InvalidTopology with all problems if it is invalid."""
    found = description.get("format") if isinstance(description, Mapping) else description
    if found != FORMAT or found is True:  # True == 1, but is not a format
        raise InvalidTopology(
            [f"the description's format is {shown(found)}: this version reads format {FORMAT}"]
        )
    reader = _Reader()
    name = reader.get(description, "name", str, "")
    conf = reader.get(description, "conf", dict, "")
    raw = reader.get(description, "components", list, "")
    components = tuple(reader.component(number, item) for number, item in enumerate(raw))
    problems = reader.problems or problems_of_topology(name, conf, components)
    ids = {component.id for component in components}
    problems += [f"component {one!r} comes without its pickle" for one in sorted(ids - set(pickles))]
    problems += [
        f"there is a pickle for {one!r}, which is not a component" for one in sorted(set(pickles) - ids)
    ]
    if problems:
        raise InvalidTopology(problems, name or None)
    return Topology(name, conf, components, pickles)
