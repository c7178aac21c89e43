"""Messages between workers to freeze, and the targets of keys.

Must not know: which values there are.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Sequence
from typing import Any

from tests.frozen import current_wire
from tests.frozen.routing_keys import KEYS, ROOTS, TASKS, no_keys
from tests.frozen.routing_runs import routed
from tests.frozen.wire_mutations import outcomes, run_lengths, shown
from tests.frozen.wire_samples import messages


def frozen_messages() -> dict[str, Any]:
    """Each message: its parts, the values read from them, and the outcomes of damage."""
    found = {}
    for name, message in messages().items():
        parts = current_wire.write_message(message)
        read = current_wire.reader_of(message)
        codec = message.get("codec", "")
        damaged = outcomes(read, parts, codec == "pickle") if "large" not in name else []
        found[name] = {"parts": packed(parts), "told": shown(read(parts)), "damaged": run_lengths(damaged)}
    return found


def packed(parts: Sequence[bytes]) -> list[str]:
    """Parts as texts."""
    return [base64.b64encode(zlib.compress(part, 9)).decode() for part in parts]


def frozen_routes() -> dict[str, Any]:
    """The hash and the task of each key; the ids of trees; the target of each tuple."""
    return {
        "keys": {
            name: [
                current_wire.hash_of_key(key),
                *([*current_wire.two_choices(key, tasks)] for tasks in TASKS),
            ]
            for name, key in KEYS.items()
        },
        "no keys": {name: refusal(key) for name, key in no_keys().items()},
        "texts": {
            name: [
                current_wire.hash_of_text(key),
                *(current_wire.choice_of_text(key, tasks) for tasks in TASKS),
            ]
            for name, key in KEYS.items()
            if type(key) is str
        },
        "roots": {
            str(root): [
                current_wire.first_root(*root),
                current_wire.next_root(current_wire.first_root(*root)),
            ]
            for root in ROOTS
        },
        "runs": routed(),
    }


def refusal(key: object) -> str:
    """The name of the error by which a key is refused."""
    try:
        current_wire.hash_of_key(key)
    except Exception as error:
        return type(error).__name__
    return ""
