"""How a line's bytes become the values of a tuple, and which lines become none.

Must not know: file systems, spouts.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from typing import Final

from squall_io.lines.cutting import LONGEST, Line
from topology_api.wording import listed, shown, typed

#: Fields of a tuple: the line's text, the full path of its file, the byte offset at which the line begins in the file.
FIELDS: Final = ("line", "file", "offset")
#: How a line that cannot be decoded is treated: left out and reported ("strict"), or decoded by an error handler of Python.
ERRORS: Final = ("strict", "replace", "ignore", "backslashreplace", "surrogateescape")


class TextReader:
    """Makes the values of tuples from lines."""

    def __init__(self, fields: tuple[str, ...], encoding: str, errors: str) -> None:
        self._fields = fields
        self._only_line = fields == ("line",)
        self._encoding = encoding
        self._errors = errors
        self._utf8 = codecs.lookup(encoding).name == "utf-8"

    def values(self, line: Line, path: str) -> tuple[object, ...] | str:
        """Return the values of a line's tuple, or why the line is left out."""
        place, _, data = line
        if data is None:
            return f"it has more than {LONGEST} bytes"
        if self._utf8 and place == 0 and data.startswith(codecs.BOM_UTF8):
            data = data[len(codecs.BOM_UTF8) :]
        try:
            text = data.decode(self._encoding, self._errors)
        except UnicodeError as error:
            return f"it is not text in {self._encoding}: {error}"
        if self._only_line:
            return (text,)
        values = {"line": text, "file": path, "offset": place}
        return tuple(values[name] for name in self._fields)


def text_problems(names: tuple[object, ...], encoding: object, errors: object) -> Iterator[str]:
    """Yield what is wrong with these arguments of a spout of lines."""
    if not names or len(set(names)) < len(names) or not set(names) <= set(FIELDS):
        yield f"fields are {shown(names)}: give some of {listed(FIELDS)}, each once"
    try:
        end = "\n".encode(encoding)  # type: ignore[arg-type]
    except (LookupError, TypeError) as error:
        yield f"encoding is {typed(encoding)}: {error}; give the name of one of Python's encodings, such as 'utf-8'"
    else:
        if end != b"\n":
            yield (
                f"encoding is {encoding!r}, in which the end of a line is {end!r}: lines are found by the byte \\n, so files in"
                " this encoding cannot be cut into lines"
            )
    if errors not in ERRORS:
        yield f"errors is {typed(errors)}: give one of {listed(ERRORS)}"
