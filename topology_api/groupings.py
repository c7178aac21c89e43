"""Grouping: the base of custom groupings. The built-in groupings are the methods of `topology_api.declarer.BoltDeclarer`.

Must not know: how tuples travel.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from topology_api.errors import SquallError

if TYPE_CHECKING:
    from topology_api.context import Context


class Grouping:
    """Base of custom groupings: `declarer.custom_grouping("split", ByLength())`.

    An instance is pickled when the topology is built; each emitting task has its own copy.
    """

    def prepare(self, context: Context, source: str, stream: str, target_tasks: Sequence[int]) -> None:
        """Prepare the grouping: called once in each emitting task, before the first `choose`. Optional.

        context: the Context of the emitting task. source, stream: the stream that is grouped.
        target_tasks: the ids of the tasks of the reading bolt, ascending.
        """

    def choose(self, values: tuple[object, ...]) -> Sequence[int]:
        """Return the ids of the tasks that receive an emission, each from `target_tasks`; called for each emission.

        With an empty sequence the emission is dropped. Any result except a sequence of target tasks raises GroupingError.
        """
        raise SquallError(f"{type(self).__name__} has no choose(values): define it")
