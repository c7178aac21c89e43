"""Dead letters as tests need them."""

from __future__ import annotations

from typing import Any

from squall.dead_letters.contents import KeptLetter, with_values
from squall.dead_letters.letter import DeadLetter, shown_values
from topology_api import Failure


def kept_letter(
    number: int, row: tuple[Any, ...] = (), expires_at: float | None = None, **others: Any
) -> KeptLetter:
    """Return a letter with its values. Its id is made from the number."""
    row = row or (number, "tea")
    values, as_text = shown_values(row)
    facts: dict[str, Any] = {
        "id": f"{number:012x}",
        "topology": "orders",
        "topology_id": "orders-1-0",
        "component": "lines",
        "task": 1,
        "stream": "default",
        "message_id": str(number),
        "fields": tuple(f"f{position}" for position in range(len(row))),
        "failure": Failure("failed", "store", 2, "ValueError: no", 3),
        "attempts": 3,
        "emitted_at": 1000.0 + number,
        "given_up_at": 2000.0 + number,
        "expires_at": expires_at,
    }
    letter = DeadLetter(**{**facts, "values": values, "as_text": as_text, **others})
    return with_values(letter, row)
