"""Facts for transcripts: the messages between machines, without random values such as the ids of edges.

Must not know: how runs are made.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from tests.frozen.current_wire import read_message


def of_message(parts: Sequence[bytes], codec: str, fields: tuple[str, ...]) -> Any:
    """A message from one worker to another; `fields`: of every stream."""
    told = read_message(list(map(bytes, parts)), codec, ("", 0, "", fields))
    for name in ("edges", "codec", "source"):
        told.pop(name, None)
    if "rows" in told:
        told["rows"] = ascii(told["rows"])
        told["more"] = {at: [root for root, _ in pairs] for at, pairs in told["more"].items()}
    if "xors" in told:
        told["xors"] = {task: roots for task, (roots, _) in told["xors"].items()}
        told["failures"] = [
            [root, reason, component, task, error is None, attempts]
            for root, (reason, component, task, error, attempts) in told["failures"]
        ]
    return told


def line_of(moment: float, what: str, *facts: object) -> str:
    """A line of a transcript."""
    return f"{moment:.6f} {what} {json.dumps(facts, sort_keys=True, default=_plain, separators=(',', ':'))}"


def _plain(value: object) -> Any:
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    if isinstance(value, Mapping):
        return dict(value)
    return ascii(value)
