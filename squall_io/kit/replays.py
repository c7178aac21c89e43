"""The argument `replay` of spouts. Must not know: spouts."""

from __future__ import annotations

from collections.abc import Iterator

from topology_api import Replay
from topology_api.wording import typed


def replay_problems(replay: object) -> Iterator[str]:
    """Yield what is wrong with the argument."""
    if replay is not None and not isinstance(replay, Replay):
        yield f"replay is {typed(replay)}: give a Replay, or None (what failed once is not emitted again)"
