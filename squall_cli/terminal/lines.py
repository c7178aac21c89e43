"""Lines made of styled pieces, and functions that write them to a stream: in colours, plain, or with rich.

Must not know: the content of the lines. rich is imported only for moving displays.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Mapping
from typing import IO, TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rich.console import Console

#: (text, style): the styles are "", "head", "dim", "bad", "warn" and "good".
Piece = tuple[str, str]
Line = tuple[Piece, ...]

#: Select Graphic Rendition, ECMA-48: 1 bold, 2 faint, 31 red, 32 green, 33 yellow.
COLOURS: Final[Mapping[str, str]] = {"head": "1", "dim": "2", "bad": "1;31", "warn": "33", "good": "1;32"}
NO_COLOURS: Final[Mapping[str, str]] = {"head": "1", "dim": "2", "bad": "1"}
#: The width of a file or a pipe: more than the width of any line.
NO_LIMIT: Final = sys.maxsize


def harmless(text: str) -> str:
    """Escape unprintable characters: names given by users may contain terminal sequences."""
    return "".join(c if c.isprintable() or c in "\n\t" else f"\\x{ord(c):02x}" for c in text)


def plain(line: Line) -> str:
    """Return a line without its styles."""
    return "".join(text for text, _ in line).rstrip()


def painted(line: Line, styles: Mapping[str, str]) -> str:
    """Return a line with its styles as escape sequences."""
    return "".join(
        f"\x1b[{styles[style]}m{text}\x1b[0m" if style in styles and text else text for text, style in line
    ).rstrip()


def is_terminal(stream: IO[str]) -> bool:
    """Return whether the stream is a terminal that understands escape sequences."""
    return stream.isatty() and os.environ.get("TERM", "dumb") != "dumb"


def styles_of(stream: IO[str]) -> Mapping[str, str]:
    """Return the styles that a stream shows. For the variable NO_COLOR see no-color.org."""
    if not is_terminal(stream):
        return {}
    return NO_COLOURS if os.environ.get("NO_COLOR") else COLOURS


def width_of(stream: IO[str]) -> int:
    """Return the maximum width of a line, in columns."""
    return shutil.get_terminal_size().columns if stream.isatty() else NO_LIMIT


def write(stream: IO[str], text: str) -> None:
    """Write a line and flush it; characters that the stream cannot encode are escaped."""
    encoding = getattr(stream, "encoding", None) or "utf-8"
    stream.write(text.encode(encoding, "backslashreplace").decode(encoding) + "\n")
    stream.flush()


def write_lines(stream: IO[str], lines: Iterable[Line]) -> None:
    """Write lines, with colours if the stream shows them."""
    styles = styles_of(stream)
    for line in lines:
        write(stream, painted(line, styles))


def console(out: IO[str]) -> Console:
    """Return rich's console for a terminal: as wide as the window, without markup."""
    from rich.console import Console

    size = shutil.get_terminal_size()
    return Console(
        file=out,
        width=size.columns,
        height=size.lines,
        force_terminal=True,
        no_color=bool(os.environ.get("NO_COLOR")),
        highlight=False,
        markup=False,
        emoji=False,
    )
