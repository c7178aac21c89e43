"""Grouping: the base of custom groupings. The built-in ones are names here; the router of a worker runs them.

It must not know how tuples travel.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from topology_api.errors import SquallError

if TYPE_CHECKING:
    from topology_api.context import Context

__all__ = ["KEYED_KINDS", "KINDS", "Grouping"]

# What GroupingSpec.kind may be; the method of the declarer has the same name, with "_grouping" behind it.
KINDS = ("shuffle", "fields", "partial_key", "all", "global", "none", "direct", "local_or_shuffle", "custom")
KEYED_KINDS = ("fields", "partial_key")  # those that name fields


class Grouping:
    """Base of custom groupings: `declarer.custom_grouping("split", ByLength())`.

    An instance is pickled when the topology is built; each task that emits to it has its own copy.
    """

    def prepare(self, context: Context, source: str, stream: str, target_tasks: Sequence[int]) -> None:
        """Called once in each emitting task before the first `choose`. Optional.

        context: the Context of the emitting task. source, stream: what is grouped.
        target_tasks: the ids of the tasks of the reading bolt, ascending.
        """

    def choose(self, values: tuple[object, ...]) -> Sequence[int]:
        """Called for each emission; returns the ids of the tasks that get it, each out of `target_tasks`.

        An empty sequence drops it; anything but a sequence of target tasks is a GroupingError.
        """
        raise SquallError(f"{type(self).__name__} has no choose(values): a custom grouping must have one")
