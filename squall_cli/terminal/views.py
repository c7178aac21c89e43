"""The views of a run (live table, plain lines) and the moments that they show.

Must not know: clusters, how a view draws.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from squall.status import TopologyStatus


@dataclass(frozen=True)
class Moment:
    """A running topology at one moment. `seconds`: since submission; `rates`: tuples per second by component; `left`: seconds
    left for the drain, None before it."""

    status: TopologyStatus
    seconds: float
    rates: Mapping[str, float | None]
    left: float | None = None

    @property
    def doing(self) -> str:
        """What the topology is doing, in one or two words."""
        state = self.status.state
        return "draining" if state == "KILLED" or self.left is not None else state.lower()

    @property
    def pending(self) -> int:
        """The number of open trees of all spouts."""
        return sum(component.pending for component in self.status.components.values())


class RunView(Protocol):
    """A view that shows a run."""

    def show(self, moment: Moment) -> None:
        """Show a moment. It is called many times a second, but draws less often."""

    def notice(self, text: str) -> None:
        """Show a notice, such as an error report, immediately and only once."""

    def output(self, text: str) -> None:
        """Show whole lines that components wrote in worker processes; works after `close` too."""

    def close(self) -> None:
        """Restore the terminal; may be called twice."""
