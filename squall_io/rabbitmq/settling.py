"""Which acknowledgements settle some messages: one for all before a number, and single ones for the others.

Must not know: channels, clients.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple


class Acknowledgement(NamedTuple):
    """What the server is sent. tag: the number of a message. multiple: whether all before it are meant as well."""

    tag: int
    multiple: bool


def acknowledgements(open_tags: Iterable[int], done: Sequence[int]) -> list[Acknowledgement]:
    """Return what acknowledges messages. open_tags: those that are not settled, in the order in which they came."""
    left = dict.fromkeys(done)
    last, count = 0, 0
    for tag in open_tags:
        if tag not in left:
            break
        del left[tag]
        last, count = tag, count + 1
    found = [Acknowledgement(last, count > 1)] if count else []
    return found + [Acknowledgement(tag, False) for tag in left]
