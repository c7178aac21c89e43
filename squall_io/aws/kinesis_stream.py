"""A stream of Kinesis: what its name is, and what its records may be. Must not know: clients, tuples."""

from __future__ import annotations

import re
from typing import Final

from topology_api.wording import typed

#: The most records of a call, the most bytes of all of them, and of one: data and key together.
MOST_RECORDS: Final = 500
MOST_BYTES_OF_A_CALL: Final = 5 * 1024 * 1024
MOST_BYTES: Final = 1024 * 1024
#: The most characters of a partition key.
MOST_KEY: Final = 256
_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,128}")


def stream_problem(stream: object) -> str | None:
    """Return why an argument names no stream; None if it does."""
    if isinstance(stream, str) and _NAME.fullmatch(stream):
        return None
    return f"stream is {typed(stream)}: give the name of a stream, of letters, digits, '_', '.' and '-'"
