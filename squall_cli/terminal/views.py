"""The interface of the views of a run, the moments that views show, and the view for a file, a pipe or the log of a CI job: a
progress line every few seconds.

Must not know: clusters, colours, how the live table is drawn.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import IO, Protocol

import msgspec

from squall.status import ComponentStatus, TopologyStatus
from squall_cli.terminal import formats
from squall_cli.terminal.component_table import why_idle, with_left
from squall_cli.terminal.epoch_lines import short_commit, wait_sentences
from squall_cli.terminal.error_feed import troubles
from squall_cli.terminal.lines import write


class Moment(msgspec.Struct, frozen=True):
    """A running topology at one moment. `seconds`: since submission; `rates`: tuples per second by component; `left`: the
    seconds that are left for the drain, None before the drain."""

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
        """Show a moment. This method may be called many times a second, and shows only some of the moments."""

    def notice(self, text: str) -> None:
        """Show a notice, such as an error report, immediately and only once."""

    def output(self, text: str) -> None:
        """Show whole lines that components wrote in worker processes. May be called after `close` too."""

    def close(self) -> None:
        """Restore the terminal. May be called twice."""


#: Seconds between two lines.
EVERY = 3.0
#: The most components in one line.
MOST = 12
#: The most characters that are shown of an error beside its count; the error's report was printed in full before.
MOST_TROUBLE = 300


@dataclass(eq=False)
class PlainLines:
    """Writes progress to one stream and notices to another."""

    progress: IO[str]
    notices: IO[str]
    next_line: float = EVERY
    errors_told: int = 0

    def show(self, moment: Moment) -> None:
        """Write a progress line if it is due."""
        if moment.seconds < self.next_line:
            return
        self.next_line = moment.seconds + EVERY
        write(self.progress, progress_line(moment))
        errors = sum(component.errors for component in moment.status.components.values())
        if errors > self.errors_told:
            for trouble in troubles(moment.status):
                where = formats.cropped_inside(trouble.line, MOST_TROUBLE)
                write(self.notices, f"{formats.plural(trouble.count, 'error')} in {where}")
            self.errors_told = errors

    def notice(self, text: str) -> None:
        """Write a notice of one or more lines now."""
        write(self.notices, text)

    def output(self, text: str) -> None:
        """Write lines of the components among the progress lines."""
        write(self.progress, text.removesuffix("\n"))

    def close(self) -> None:
        """Do nothing: there is nothing to restore."""


def progress_line(moment: Moment) -> str:
    """Return the progress of all components in one line."""
    parts = [
        component_text(name, component, moment.rates.get(name))
        for name, component in list(moment.status.components.items())[:MOST]
    ]
    more = len(moment.status.components) - MOST
    if more > 0:
        parts.append(f"and {more} more")
    if moment.status.epoch is not None:
        parts.append(short_commit(moment.status.epoch))
        parts += wait_sentences(moment.status.epoch).values()
    state = "" if moment.doing == "active" else f" ({moment.doing})"
    return f"{formats.duration(moment.seconds)}{state}  " + "; ".join(parts)


def component_text(name: str, component: ComponentStatus, rate: float | None) -> str:
    """Return one component's part of the line."""
    component = with_left(component)
    spout = component.kind == "spout"
    number, what = (component.emitted, "emitted") if spout else (component.executed, "executed")
    facts = [f"{number:,} {what}"]
    if rate is not None:
        facts.append(f"{formats.rate(rate)}/s")
    if component.failed:
        facts.append(f"{component.failed:,} failed")
    if spout:
        facts.append(f"{component.acked:,} acked")
        if component.pending:
            facts.append(f"{component.pending:,} pending")
        if component.p50 is not None:
            facts.append(f"p50 {formats.latency(component.p50)}, p99 {formats.latency(component.p99)}")
    if why := why_idle(component):
        facts.append(f"idle: {why}" if spout else why)
    return f"{name} " + ", ".join(facts)
