"""The live table: a topology while it runs, drawn again a few times a second at the foot of the terminal.

What happens once (error reports, the log, the components' own output) scrolls by above it. Everything is cut to the
window, in both directions: a line that wraps or a table that is too high would leave its remains behind.
Must not know: clusters, how a terminal is written to.
"""

from __future__ import annotations

import threading

from squall_cli import figures
from squall_cli.component_table import Line, live_table, rows_of
from squall_cli.error_feed import troubles
from squall_cli.screen import Screen
from squall_cli.user_output import Gathered
from squall_cli.views import Moment

#: A topology that ends sooner is told of by its summary alone.
FIRST = 0.3
#: Seconds between two drawings; and between two looks at what the components have written.
EVERY = 0.25
OUTPUT_EVERY = 0.1
MOST_TROUBLES = 3
#: This part of a window's height is left for what scrolls by.
SHARE_ABOVE = 4


class LiveTable:
    """Draws on a terminal; `close` takes the table away and leaves what scrolled by."""

    def __init__(self, screen: Screen, gathered: Gathered) -> None:
        self.screen = screen
        self.gathered = gathered
        self.lines: list[Line] = []
        self.next_drawing = FIRST
        self.next_output = 0.0
        self.closed = False
        #: A component that writes very much draws too, from its own thread.
        self.drawing = threading.RLock()

    def show(self, moment: Moment) -> None:
        """Draw, if it is time."""
        if self.closed:
            return
        if moment.seconds >= self.next_drawing:
            self.next_drawing = moment.seconds + EVERY
            self.next_output = moment.seconds + OUTPUT_EVERY
            self.lines = picture(moment, *self.screen.size())
            self.gathered.show = self.show_output
            self.redraw(self.gathered.take())
        elif moment.seconds >= self.next_output:
            self.next_output = moment.seconds + OUTPUT_EVERY
            self.show_output()

    def redraw(self, above: str) -> None:
        """The table as it was made last, with a text above it."""
        with self.drawing:
            self.screen.draw(self.lines, above)

    def show_output(self) -> None:
        """Let what the components have written scroll by."""
        with self.drawing:
            text = self.gathered.take()
            if text:
                self.redraw(text)

    def say(self, text: str) -> None:
        """Let a text scroll by, after what was written before it."""
        with self.drawing:
            self.redraw(f"{self.gathered.take()}{text}\n")

    def output(self, text: str) -> None:
        """Have lines of the components scroll by with what is written in this process."""
        if self.gathered.takes():
            self.gathered.add(text)
        else:
            with self.drawing:
                self.redraw(text)

    def close(self) -> None:
        """Give the terminal back, without the table."""
        with self.drawing:
            self.closed = True
            self.gathered.show = None
            self.lines = []
            rest = self.gathered.take(unfinished=True)
            self.redraw(rest if not rest or rest.endswith("\n") else rest + "\n")


def picture(moment: Moment, width: int, height: int) -> list[Line]:
    """Everything that is drawn, no wider and no higher than the window."""
    foot = footer(moment, width)
    rows = rows_of(moment.status.components, moment.rates)
    room = height - 1 - 2 - len(foot) - height // SHARE_ABOVE  # 2: the title and the table's head
    body = live_table(rows, width, max(1, room))
    lines = [title(moment, width), *body, *foot]
    if len(lines) > height - 1:  # idle reasons below the table, in a low window
        lines = [title(moment, width), *live_table(rows, width, max(1, room - 3)), *foot]
    return lines[: max(1, height - 1)]


def title(moment: Moment, width: int) -> Line:
    """Which topology, what it does, and for how long."""
    status = moment.status
    doing = moment.doing
    style = {"active": "good", "draining": "warn", "failed": "bad"}.get(doing, "")
    rest = f"  {figures.duration(moment.seconds)}"
    if status.workers > 1:
        rest += f"  {figures.plural(status.workers, 'worker')}"
    name = figures.cropped(status.name, max(8, width - len(doing) - len(rest) - 2))
    return ((name, "head"), ("  ", ""), (doing, style), (rest, "dim"))


def footer(moment: Moment, width: int) -> list[Line]:
    """The newest errors, and what Ctrl-C does."""
    lines: list[Line] = []
    found = troubles(moment.status)
    for trouble in found[:MOST_TROUBLES]:
        count = figures.plural(trouble.count, "error")
        lines.append(
            ((count, "bad"), (" " + figures.cropped_inside(f"in {trouble.line}", width - len(count) - 1), ""))
        )
    if len(found) > MOST_TROUBLES:
        lines.append(((f"and errors in {len(found) - MOST_TROUBLES} more", "bad"),))
    if moment.left is None:
        advice = "Ctrl-C drains and ends; twice ends at once"
    else:
        left = (
            f"{figures.plural(moment.pending, 'tree')} pending, at most {max(0, round(moment.left))} s more"
        )
        advice = f"draining: {left}; Ctrl-C ends at once"
    lines.append(((figures.cropped(advice, width), "dim" if moment.left is None else "warn"),))
    return lines
