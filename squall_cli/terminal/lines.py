"""What a command prints: texts, and lines made of styled pieces, written to a stream in colours, plain, or with rich.

A server, and code that users submitted, choose parts of what is printed. This is the one place that keeps them from sending
commands to the terminal: every character that does not print is written as an escape, such as `\\x1b`. Spaces of all widths
are kept.
Must not know: the content of the lines. rich is imported only for moving displays.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import unicodedata
from collections.abc import Iterable, Mapping
from typing import IO, TYPE_CHECKING, Final

import click

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
    """Escape unprintable characters: names, and texts of servers, may contain sequences that a terminal obeys."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in "\n\t" or is_space(c) else f"\\x{ord(c):02x}" for c in text)


def is_space(char: str) -> bool:
    """Return whether this is a space of any width, such as U+00A0; for Python, only U+0020 is printable."""
    return unicodedata.category(char) == "Zs"


def plain(line: Line) -> str:
    """Return a line without its styles."""
    return harmless("".join(text for text, _ in line)).rstrip()


def painted(line: Line, styles: Mapping[str, str]) -> str:
    """Return a line with its styles as escape sequences."""
    return "".join(
        f"\x1b[{styles[style]}m{harmless(text)}\x1b[0m" if style in styles and text else harmless(text)
        for text, style in line
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


def echo(text: str = "", err: bool = False) -> None:
    """Print a text to stdout, or to stderr."""
    click.echo(harmless(text), err=err)


def in_json(value: object) -> str:
    """Return a value as JSON that no terminal obeys: everything but printable ASCII is escaped."""
    return json.dumps(value, indent=2)


def write_json(stream: IO[str], value: object) -> None:
    """Write a value as JSON."""
    _write(stream, in_json(value))


def write(stream: IO[str], text: str) -> None:
    """Write a line and flush it; characters that the stream cannot encode are escaped."""
    _write(stream, harmless(text))


def _write(stream: IO[str], text: str) -> None:
    encoding = getattr(stream, "encoding", None) or "utf-8"
    stream.write(text.encode(encoding, "backslashreplace").decode(encoding) + "\n")
    stream.flush()


def write_lines(stream: IO[str], lines: Iterable[Line]) -> None:
    """Write lines, with colours if the stream shows them."""
    styles = styles_of(stream)
    for line in lines:
        _write(stream, painted(line, styles))


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
