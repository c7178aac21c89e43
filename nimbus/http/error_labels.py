"""Errors as labels of metrics: short, and the same for each tuple that fails alike, since each new text is a new time series.

Must not know: metrics, HTTP.
"""

from __future__ import annotations

import re
from typing import Final

#: The most characters of a label without the place.
MOST_LABEL: Final = 120
#: The user's own line, at the end of an error: "(/folder/file.py:7, in execute)".
_PLACE: Final = re.compile(r" \((?:[^()]*/)?([^()/]+:\d+, in [^()]+)\)$")
#: What names a single tuple, message or moment, as a rule: texts in quotes, and words with a digit.
_OWN: Final = re.compile(r"'[^']*'|\"[^\"]*\"|[\w.:/-]*\d(?:[\w.:/-]*\w)?")


def error_label(error: str) -> str:
    """Return an error as a label: its values as `#`, at most `MOST_LABEL` characters, then file and line without folders."""
    found = _PLACE.search(error)
    text = error if found is None else error[: found.start()]
    text = " ".join(_OWN.sub("#", text).split())
    text = "".join(each if each.isprintable() else "?" for each in text)
    if len(text) > MOST_LABEL:
        text = f"{text[: MOST_LABEL - 1]}…"
    return text if found is None else f"{text} ({found[1][:MOST_LABEL]})"
