"""The live table of a running topology, redrawn a few times a second at the bottom of the terminal.

Error reports, log lines and the components' output scroll above the table. The table is cut to the window in both directions,
because it would be impossible to erase a wrapped line, or a table higher than the window. Each drawing is one write (erase,
text, lines), so that nothing flickers. The scrolling text passes through unchanged. The terminal's line wrapping is off during
a drawing, so that each line takes one row. (rich's Live does not pass text through, and does not erase lines that a narrower
window has wrapped.)
Must not know: clusters.
"""

from __future__ import annotations

import math
import shutil
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO

from squall_cli.terminal import formats
from squall_cli.terminal.component_table import live_table, rows_of
from squall_cli.terminal.epoch_lines import commit_text, wait_sentences
from squall_cli.terminal.error_feed import troubles
from squall_cli.terminal.lines import Line, painted, plain
from squall_cli.terminal.user_output import Gathered
from squall_cli.terminal.views import Moment

HIDE_CURSOR, SHOW_CURSOR = "\x1b[?25l", "\x1b[?25h"
WRAP_OFF, WRAP_ON = "\x1b[?7l", "\x1b[?7h"
ERASE_BELOW = "\x1b[J"

#: Seconds before the first drawing. If a topology ends sooner, only its summary is shown.
FIRST = 0.3
#: Seconds between two drawings.
EVERY = 0.25
#: Seconds between two reads of the components' output.
OUTPUT_EVERY = 0.1
MOST_TROUBLES = 3
#: 1/SHARE_ABOVE of the window's height is left for scrolling text.
SHARE_ABOVE = 4


@dataclass(eq=False)
class Screen:
    """The bottom lines of one terminal."""

    terminal: IO[str]
    styles: Mapping[str, str]
    #: Lengths of the lines that are on the screen now.
    there: list[int] = field(default_factory=list)
    hidden: bool = False

    def size(self) -> tuple[int, int]:
        """Return the current numbers of columns and rows of the window."""
        return shutil.get_terminal_size()

    def draw(self, lines: Sequence[Line], above: str = "") -> None:
        """Replace the drawn lines with `lines`, and print the text `above` (whole lines) above them."""
        text = self.erasure() + above
        if lines:
            text += ("" if self.hidden else HIDE_CURSOR) + WRAP_OFF
            text += "\n".join(painted(line, self.styles) for line in lines) + WRAP_ON
        elif self.hidden:
            text += SHOW_CURSOR
        self.hidden = bool(lines)
        self.there = [formats.columns_of(plain(line)) for line in lines]
        self.terminal.write(text)
        self.terminal.flush()

    def erasure(self) -> str:
        """Return the sequence that erases the drawn lines. If the window became narrower, it has wrapped each long line into
        several rows."""
        if not self.there:
            return ""
        width = max(1, self.size()[0])
        rows = sum(max(1, math.ceil(length / width)) for length in self.there)
        up = f"\x1b[{rows - 1}A" if rows > 1 else ""
        return f"\r{up}{ERASE_BELOW}"


@dataclass(eq=False)
class LiveTable:
    """Draws on a terminal; `close` removes the table and keeps the scrolled text."""

    screen: Screen
    gathered: Gathered
    lines: list[Line] = field(default_factory=list)
    next_drawing: float = FIRST
    next_output: float = 0.0
    closed: bool = False
    #: Held during a drawing: a component that prints a lot of text draws from its own thread.
    drawing: threading.RLock = field(default_factory=threading.RLock)

    def show(self, moment: Moment) -> None:
        """Draw if a drawing is due."""
        if self.closed:
            return
        if moment.seconds >= self.next_drawing:
            self.next_drawing = moment.seconds + EVERY
            self.next_output = moment.seconds + OUTPUT_EVERY
            self.lines = picture(moment, *self.screen.size())
            self.gathered.show = self.show_output
            self.redraw(self.gathered.pop())
        elif moment.seconds >= self.next_output:
            self.next_output = moment.seconds + OUTPUT_EVERY
            self.show_output()

    def redraw(self, above: str) -> None:
        """Draw the last table again, with a text above the table."""
        with self.drawing:
            self.screen.draw(self.lines, above)

    def show_output(self) -> None:
        """Print the components' output above the table."""
        with self.drawing:
            text = self.gathered.pop()
            if text:
                self.redraw(text)

    def notice(self, text: str) -> None:
        """Print a text above the table, after earlier output."""
        with self.drawing:
            self.redraw(f"{self.gathered.pop()}{text}\n")

    def output(self, text: str) -> None:
        """Print lines of worker processes in their place among the output of this process."""
        if self.gathered.takes():
            self.gathered.add(text)
        else:
            with self.drawing:
                self.redraw(text)

    def close(self) -> None:
        """Remove the table and restore the terminal."""
        with self.drawing:
            self.closed = True
            self.gathered.show = None
            self.lines = []
            rest = self.gathered.pop(unfinished=True)
            self.redraw(rest if not rest or rest.endswith("\n") else rest + "\n")


def picture(moment: Moment, width: int, height: int) -> list[Line]:
    """Return all lines to draw, cut to the window."""
    foot = footer(moment, width)
    rows = rows_of(moment.status.components, moment.rates)
    room = height - 1 - 2 - len(foot) - height // SHARE_ABOVE  # 2: the title and the table's head
    lines = [title(moment, width), *live_table(rows, width, max(1, room)), *foot]
    if len(lines) > height - 1:  # idle reasons below the table, in a low window
        lines = [title(moment, width), *live_table(rows, width, max(1, room - 3)), *foot]
    return lines[: max(1, height - 1)]


def title(moment: Moment, width: int) -> Line:
    """Return the title: name, state and duration."""
    status = moment.status
    doing = moment.doing
    style = {"active": "good", "draining": "warn", "failed": "bad"}.get(doing, "")
    rest = f"  {formats.duration(moment.seconds)}"
    if status.workers > 1:
        rest += f"  {formats.plural(status.workers, 'worker')}"
    name = formats.cropped(status.name, max(8, width - len(doing) - len(rest) - 2))
    return ((name, "head"), ("  ", ""), (doing, style), (rest, "dim"))


def footer(moment: Moment, width: int) -> list[Line]:
    """Return lines with the newest errors, and a line that says what Ctrl-C does."""
    lines: list[Line] = []
    epoch = moment.status.epoch
    if epoch is not None:
        waits = [*wait_sentences(epoch).values()][:MOST_TROUBLES]
        lines += [((formats.cropped(commit_text(epoch), width), "dim"),)]
        lines += [((formats.cropped(text, width), "bad"),) for text in waits]
    found = troubles(moment.status)
    for trouble in found[:MOST_TROUBLES]:
        count = formats.plural(trouble.count, "error")
        where = formats.cropped_inside(f"in {trouble.line}", width - len(count) - 1)
        lines.append(((count, "bad"), (f" {where}", "")))
    if len(found) > MOST_TROUBLES:
        more = formats.plural(len(found) - MOST_TROUBLES, "more component")
        lines.append(((f"and errors in {more}", "bad"),))
    advice, style = "Ctrl-C drains and ends; a second Ctrl-C ends at once", "dim"
    if moment.left is not None:
        pending, left = formats.plural(moment.pending, "tree"), max(0, round(moment.left))
        advice = f"draining: {pending} pending, at most {left} s more; Ctrl-C ends at once"
        style = "warn"
    lines.append(((formats.cropped(advice, width), style),))
    return lines
