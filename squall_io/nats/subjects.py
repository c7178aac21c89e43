"""Names and subjects of NATS: which are valid, and what servers' addresses look like.

Must not know: clients, connections.
"""

from __future__ import annotations

import re
from typing import Final

from squall_io.kit.server_address import UrlForm
from topology_api.wording import typed

FORM: Final = UrlForm({"nats": 4222, "tls": 4222}, "tls")
#: Streams and consumers: no separators of subjects, no wildcards, no white space.
_NAME: Final = re.compile(r"[^\s.*>/\\]+")
_TOKEN: Final = re.compile(r"[^\s.*>]+")


def name_problem(what: str, name: object) -> str | None:
    """Return why a stream or a consumer cannot have this name; None if it can."""
    if isinstance(name, str) and _NAME.fullmatch(name):
        return None
    return f"{what} is {typed(name)}: give a name without spaces, '.', '*', '>' and slashes"


def subject_problem(subject: object) -> str | None:
    """Return why messages cannot be sent to a subject; None if they can."""
    if isinstance(subject, str) and all(map(_TOKEN.fullmatch, subject.split("."))):
        return None
    return f"{typed(subject)} is no subject to write to: it is words with '.' between them, without spaces and wildcards"


def filter_problem(subject: object) -> str | None:
    """Return why a subject cannot choose messages of a stream; None if it can."""
    if isinstance(subject, str):
        words = subject.split(".")
        if all(
            word == "*" or _TOKEN.fullmatch(word) or (word == ">" and word is words[-1]) for word in words
        ):
            return None
    return f"{typed(subject)} is no subject: give words with '.' between them, where '*' is any word and '>' the rest"
