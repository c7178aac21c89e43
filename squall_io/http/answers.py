"""What the answer of a receiver means for a row: it is there, it will be taken later, or it never will.

Must not know: clients, rows. The wall clock is an argument.
"""

from __future__ import annotations

from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Final, NamedTuple

#: Answers after which the same request may be taken later: all of 5xx, and these.
LATER: Final = frozenset((408, 425, 429))
#: 5xx that no later try changes.
NEVER: Final = frozenset((501, 505))
#: Answers that concern the sink's credentials, and not the row.
CREDENTIALS: Final = frozenset((401, 407))
#: The characters of an answer that an error shows.
SHOWN: Final = 200
#: The longest wait that a receiver may ask for; a longer one is shortened.
LONGEST_ASKED: Final = 300.0


class Answer(NamedTuple):
    """What an answer means.

    verdict: "done", "later", "never", or "login", if credentials are refused. after: the seconds for which the
    receiver asks to wait.
    """

    verdict: str
    why: str = ""
    after: float | None = None


def meaning(status: int, headers: Mapping[str, str], body: str, wall: float) -> Answer:
    """Return what an answer means. headers: names in small letters. wall: seconds since 1970."""
    if 200 <= status < 300:
        return Answer("done")
    if 300 <= status < 400:
        where = headers.get("location", "")
        return Answer(
            "never",
            f"it answers {status} and names {where or 'no place'}: redirects are not followed; give the URL that it names",
        )
    said = " ".join(body.split())[:SHOWN]
    why = f"it answers {status}{': ' if said else ''}{said}"
    if status in LATER or (status >= 500 and status not in NEVER):
        return Answer("later", why, retry_after(headers.get("retry-after"), wall))
    if status in CREDENTIALS:
        return Answer("login", f"{why}; give other credentials in headers")
    return Answer("never", why)


def retry_after(value: str | None, wall: float) -> float | None:
    """Return the seconds that a header Retry-After asks to wait: it is a number of seconds or a date; None: it says nothing.
    At most `LONGEST_ASKED`."""
    if value is None:
        return None
    text = value.strip()
    if text.isascii() and text.isdigit():
        seconds = float(text)
    else:
        try:
            seconds = parsedate_to_datetime(text).timestamp() - wall
        except (ValueError, TypeError, OverflowError):
            return None
    return min(max(0.0, seconds), LONGEST_ASKED)
