"""The text of a log entry: one line that begins with its time, then continuation lines that are indented.

Values that components log may come from anyone. So neither a line break in a value makes a line that looks like an entry of its
own, nor does a control character command the terminal on which the file is read. Daemons, workers and `squall run` use this
formatter. Must not know: who logs what, files.
"""

from __future__ import annotations

import logging
from typing import Final

#: The beginning of each further line of an entry.
CONTINUED: Final = "    "
#: C0 and C1 control characters, except tab and line feed, and the separators at which Unicode breaks lines.
_ESCAPES: Final = {
    code: f"\\x{code:02x}"
    for code in (*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029)
    if chr(code) not in "\t\n"
}


def one_entry(text: str) -> str:
    """Return the text with control characters escaped, and with all lines but the first indented."""
    return text.replace("\r\n", "\n").translate(_ESCAPES).replace("\n", f"\n{CONTINUED}")


class EntryFormatter(logging.Formatter):
    """Formats records as entries."""

    def format(self, record: logging.LogRecord) -> str:
        return one_entry(super().format(record))
