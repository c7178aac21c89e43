"""What goes wrong with single topologies: each rests for a moment before it is tried again, and is told of once.

Must not know: what was tried.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from topology_api.errors import SquallError

_log = logging.getLogger(__name__)

#: Seconds until what went wrong is tried again.
REST_SECS: Final = 1.0


@dataclass(frozen=True)
class _Trouble:
    until: float
    text: str


class Troubles:
    """The topologies that something goes wrong with, by their id."""

    def __init__(self) -> None:
        self._resting: dict[str, _Trouble] = {}
        self._bad: dict[str, str] = {}

    def rests(self, topology_id: str, now: float) -> bool:
        """Whether the topology is left alone at this moment."""
        trouble = self._resting.get(topology_id)
        return trouble is not None and now < trouble.until

    def note(self, topology_id: str, name: str, error: Exception, now: float) -> None:
        """Something went wrong with a topology: it rests. The log says so when it is something else than before."""
        text = f"{type(error).__name__}: {error}"
        before = self._resting.get(topology_id)
        if before is None or before.text != text:
            known = isinstance(error, SquallError)
            _log.error(
                "%s: a step failed and is tried again: %s", name, text, exc_info=None if known else error
            )
        self._resting[topology_id] = _Trouble(now + REST_SECS, text)

    def settle(self, now: float) -> None:
        """Every topology that does not rest went through all its steps: what went wrong with it before is over."""
        self._resting = {each: trouble for each, trouble in self._resting.items() if now < trouble.until}

    def note_bad(self, bad: Mapping[str, str], ids: Collection[str]) -> None:
        """These topologies cannot be read; the log says so once. Nothing else is there but these ids."""
        for name, reason in bad.items():
            if self._bad.get(name) != reason:
                _log.error("%s: its record cannot be read, it is left alone: %s", name, reason)
        self._bad = dict(bad)
        self._resting = {each: self._resting[each] for each in self._resting if each in ids}

    @property
    def due(self) -> float | None:
        """When the next one has rested."""
        return min((trouble.until for trouble in self._resting.values()), default=None)
