"""A dead letter as a value: a tuple that a spout gave up, why, and when; or a tuple that was pending at a rollback.

Its values are shown as JSON where JSON carries them exactly, else as texts, so that a daemon or a command can show a letter
without running the code of any class. The values themselves, which are needed to emit the tuple again, are kept beside it.
Must not know: files, spouts, commands.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from topology_api import Failure
from topology_api.tuples import BOUNDED
from topology_api.wording import class_name

#: The most characters of a value that is shown as JSON; a longer one is shown as a shortened text.
MOST_SHOWN: Final = 64 * 1024
#: The most characters of a value that is shown as a text, and of the message id.
MOST_TEXT: Final = 2000
#: How deep a value may be nested that is shown as JSON.
_DEEPEST: Final = 20
#: The reason of trees that were pending when a version on trial was rolled back.
HANDED_OVER: Final = "handed over"
#: The reasons of trees that ended with their task, and that are still to be processed.
UNDONE: Final = ("stopped", HANDED_OVER)
_INTEGERS: Final = range(-(2**63), 2**64)


@dataclass(frozen=True, kw_only=True)
class DeadLetter:
    """A tuple that a spout gave up.

    id: unique in the cluster. topology_id: the submission whose spout gave it up. message_id: its text. values: for each field
    the value, or its text if the position is in `as_text`. failure: the last one; its `attempts` are those since the tuple was
    emitted or sent again. attempts: all of them. emitted_at, given_up_at: of the first emission, and of the last time that the
    tuple was given up, in seconds since 1970 (simulated: of the cluster's clock). expires_at: when it is removed (None: never).
    acked: whether a dead-letter bolt acked it. resent: how often it was sent again. target: the task of a direct emission, else
    0. source: the component that emitted the tuple, of a letter of a bolt; "" for a timer, and for a letter of a spout.
    note: why it could not be sent again.
    heir: if it was pending when its version was rolled back: the version (id) that has the name again, and sends it; "" once it
    could not, and for any other letter.
    codec: how its values are encoded; "": they are not kept, for the reason in `why_no_values`.
    """

    id: str
    topology: str
    topology_id: str
    component: str
    task: int
    stream: str
    message_id: str
    fields: tuple[str, ...]
    values: tuple[Any, ...]
    failure: Failure
    attempts: int
    emitted_at: float
    given_up_at: float
    as_text: tuple[int, ...] = ()
    expires_at: float | None = None
    acked: bool = False
    resent: int = 0
    target: int = 0
    source: str = ""
    note: str = ""
    heir: str = ""
    codec: str = ""
    why_no_values: str = ""

    @property
    def order(self) -> tuple[float, str]:
        """The place of the letter in a list: the oldest come first."""
        return self.given_up_at, self.id


def undone(failures: Mapping[str, int]) -> int:
    """Return how many of a spout's failed trees, by reason, only ended with their task."""
    return sum(failures.get(reason, 0) for reason in UNDONE)


def shown_values(row: Sequence[Any]) -> tuple[tuple[Any, ...], tuple[int, ...]]:
    """Return the values of a tuple as JSON or texts, and the positions of the texts."""
    shown: list[Any] = []
    texts: list[int] = []
    for position, value in enumerate(row):
        if _size(value, MOST_SHOWN, _DEEPEST) <= MOST_SHOWN:
            shown.append(value)
        else:
            texts.append(position)
            shown.append(text_of(value))
    return tuple(shown), tuple(texts)


def text_of(value: object) -> str:
    """Return a value's text. Never raises, whatever the value's class does."""
    try:
        text = BOUNDED.repr(value)
    except BaseException as error:
        text = f"<{class_name(value)} whose repr raises {class_name(error)}>"
    return clean(text if len(text) <= MOST_TEXT else text[: MOST_TEXT - 1] + "…")


def clean(text: str) -> str:
    """Return a text that can be written as UTF-8: a lone surrogate becomes its escape."""
    return text.encode("utf-8", "backslashreplace").decode()


def _size(value: Any, most: int, deepest: int) -> float:
    """Return about how many characters a value has as JSON; infinity if JSON does not carry exactly this value."""
    kind = type(value)
    if value is None or kind is bool:
        return 5
    if kind is int:
        return 20 if value in _INTEGERS else math.inf
    if kind is float:
        return 20 if math.isfinite(value) else math.inf
    if kind is str:
        return len(value) + 2 if len(value) <= most and clean(value) == value else math.inf
    if kind not in (list, dict) or deepest == 0 or len(value) > most:
        return math.inf
    total: float = 2
    for each in value if kind is list else (item for pair in value.items() for item in pair):
        total += _size(each, most, deepest - 1)
        if total > most:
            return math.inf
    return math.inf if kind is dict and not all(type(key) is str for key in value) else total
