"""The bottom lines of a terminal, redrawn in place, with text that scrolls above them.

Each drawing is one write (erase, text, lines), so that nothing flickers. Text passes through unchanged. The terminal's
line wrapping is off during a drawing, so that each line takes one row.
Must not know: what the lines say, when they are drawn.
"""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Mapping, Sequence
from typing import IO, Final

from squall_cli.terminal.component_table import Line, plain

HIDE_CURSOR, SHOW_CURSOR = "\x1b[?25l", "\x1b[?25h"
WRAP_OFF, WRAP_ON = "\x1b[?7l", "\x1b[?7h"
ERASE_BELOW = "\x1b[J"

#: Select Graphic Rendition, ECMA-48: 1 bold, 2 faint, 31 red, 32 green, 33 yellow.
COLOURS: Final[Mapping[str, str]] = {"head": "1", "dim": "2", "bad": "1;31", "warn": "33", "good": "1;32"}
NO_COLOURS: Final[Mapping[str, str]] = {"head": "1", "dim": "2", "bad": "1"}


def painted(line: Line, styles: Mapping[str, str]) -> str:
    """Return a line with its styles as escape sequences."""
    return "".join(
        f"\x1b[{styles[style]}m{text}\x1b[0m" if style in styles and text else text for text, style in line
    ).rstrip()


def is_terminal(stream: IO[str]) -> bool:
    """Return whether the stream is a terminal that understands escape sequences."""
    return stream.isatty() and os.environ.get("TERM", "dumb") != "dumb"


def styles_of(stream: IO[str]) -> Mapping[str, str]:
    """Return the styles that a stream shows; for NO_COLOR see no-color.org."""
    if not is_terminal(stream):
        return {}
    return NO_COLOURS if os.environ.get("NO_COLOR") else COLOURS


class Screen:
    """The bottom lines of one terminal."""

    def __init__(self, terminal: IO[str], styles: Mapping[str, str]) -> None:
        self.terminal = terminal
        self.styles = styles
        #: The lengths of the lines on the screen.
        self.there: list[int] = []
        self.hidden = False

    def size(self) -> tuple[int, int]:
        """Return the current columns and rows of the window."""
        size = shutil.get_terminal_size()
        return size.columns, size.lines

    def draw(self, lines: Sequence[Line], above: str = "") -> None:
        """Replace the drawn lines by these, with a text (whole lines) above them."""
        text = self.erasure() + above
        if lines:
            text += ("" if self.hidden else HIDE_CURSOR) + WRAP_OFF
            text += "\n".join(painted(line, self.styles) for line in lines) + WRAP_ON
        elif self.hidden:
            text += SHOW_CURSOR
        self.hidden = bool(lines)
        self.there = [len(plain(line)) for line in lines]
        self.terminal.write(text)
        self.terminal.flush()

    def erasure(self) -> str:
        """Return the sequence that erases the drawn lines. A window that became narrower has wrapped them into several rows."""
        if not self.there:
            return ""
        width = max(1, self.size()[0])
        rows = sum(max(1, math.ceil(length / width)) for length in self.there)
        up = f"\x1b[{rows - 1}A" if rows > 1 else ""
        return f"\r{up}{ERASE_BELOW}"
