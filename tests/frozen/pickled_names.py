"""The names that a pickle refers to, found without loading it, whatever Python has written it.

Must not know: what is pickled.
"""

from __future__ import annotations

import importlib
import pickletools
from typing import Any


def names_in(data: bytes) -> list[str]:
    """`module:name` of every global that a pickle refers to, sorted."""
    found: set[str] = set()
    texts: list[Any] = []  # the last text pushed, if there is one; and the contents of the memo
    memo: dict[int, Any] = {}
    argument: Any
    for opcode, argument, _ in pickletools.genops(data):
        if opcode.name == "GLOBAL":
            found.add(str(argument).replace(" ", ":", 1))
            texts.append(None)
        elif opcode.name == "STACK_GLOBAL":
            found.add(f"{texts[-2]}:{texts[-1]}")
            texts.append(None)
        elif opcode.name == "MEMOIZE":
            memo[len(memo)] = texts[-1] if texts else None
        elif opcode.name in ("BINPUT", "LONG_BINPUT", "PUT"):
            memo[int(argument)] = texts[-1] if texts else None
        elif opcode.name in ("BINGET", "LONG_BINGET", "GET"):
            texts.append(memo.get(int(argument)))
        elif opcode.name not in ("FRAME", "PROTO", "MARK"):
            texts.append(argument if isinstance(argument, str) else None)
    return sorted(found)


def resolved(name: str) -> Any:
    """The present object of a name in a pickle; ImportError or AttributeError without one."""
    module, _, path = name.partition(":")
    value: Any = importlib.import_module(module)
    for step in path.split("."):
        value = getattr(value, step)
    return value
