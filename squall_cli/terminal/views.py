"""What a run shows itself on: the moments it tells, and what every view (live table, plain lines) does with them.

Must not know: clusters, how a view draws.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from squall.status import TopologyStatus


@dataclass(frozen=True)
class Moment:
    """A topology that runs, as it is now. `seconds`: since it was submitted; `rates`: tuples a second by component;
    `left`: seconds that it may still drain, None while it does not."""

    status: TopologyStatus
    seconds: float
    rates: Mapping[str, float | None]
    left: float | None = None

    @property
    def doing(self) -> str:
        """What the topology does, in a word or two."""
        state = self.status.state
        return "draining" if state == "KILLED" or self.left is not None else state.lower()

    @property
    def pending(self) -> int:
        """Open trees of all spouts."""
        return sum(component.pending for component in self.status.components.values())


class View(Protocol):
    """Somewhere to show a run."""

    def show(self, moment: Moment) -> None:
        """Take note of a moment; called many times a second, draws as often as is good."""

    def say(self, text: str) -> None:
        """Show something that happened: an error report, what Squall does. Once, and at once."""

    def output(self, text: str) -> None:
        """Show whole lines that components have written in other processes; also when it is closed."""

    def close(self) -> None:
        """Leave the terminal as it was; may be called twice."""
