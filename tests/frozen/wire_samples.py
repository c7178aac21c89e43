"""Messages between workers to freeze, as values: each kind, each codec, with many types of values.

The values are made here, since JSON cannot hold them; what is frozen is their bytes. Must not know: how messages are written.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

#: Of each message: sender, its incarnation, the receiver's, the assignment's version, its number on the channel.
HEADERS: Final[Mapping[str, tuple[Any, ...]]] = {
    "": ("w1", (3, 1), (4, 0), 5, 17),
    "least": ("", (0, 0), (0, 0), 0, 0),
    "most": ("ü" * 127, (2**32 - 1, 2**32 - 1), (2**32 - 1, 0), 2**32 - 1, 2**64 - 1),
}
#: A value from this size on travels as a part of its own.
LARGE: Final = 64 * 1024
ODD: Final = ("", "a", "wörter", "日本", "🙂", "\ud800", "\0", "a\0b", "x" * 300)


@dataclass
class Point:
    """A user's value."""

    x: int
    y: str


class Odd:
    """A user's value that says itself how it is pickled."""

    def __init__(self, value: object) -> None:
        self.value = value

    def __reduce__(self) -> Any:
        return Odd, (self.value,)

    def __repr__(self) -> str:
        return f"Odd({self.value!r})"


ZONE: Final = dt.timezone(dt.timedelta(hours=5, minutes=30))
PLAIN: Final[tuple[Any, ...]] = (
    None, True, False, 0, -1, 2**63 - 1, -(2**63), 2**64 - 1, 0.5, -0.0, float("inf"), 1e300, b"", b"\x00\xff",
    *(text for text in ODD if text != "\ud800"),
)  # fmt: skip
NESTED: Final[tuple[Any, ...]] = (
    [], [1, "a", None], (), (1, ("a", [2.5])), {}, {"a": 1, "b": [True]}, {1: "x", -2: {"y": (None,)}},
    dt.date(2024, 2, 29), dt.datetime(2024, 2, 29, 12, 30, 1, 5), dt.datetime(2024, 10, 27, 2, 30, fold=1),
    dt.datetime(2024, 2, 29, 12, tzinfo=dt.timezone.utc), dt.datetime(2024, 2, 29, 12, tzinfo=ZONE),
)  # fmt: skip
PICKLED: Final[tuple[Any, ...]] = (
    "\ud800", 10**30, 1 + 2j, Decimal("1.50"), dt.time(1, 2), dt.timedelta(1, 2, 3), frozenset([1]), {1}, range(3),
    {(1, 2): 3}, Point(1, "a"), Odd([1]), [Point(2, "b"), Odd(None)], int, len,
)  # fmt: skip


def batch(codec: str, rows: list[tuple[Any, ...]], header: str = "", **changes: Any) -> dict[str, Any]:
    """A batch of these rows, in trees of their own."""
    fields = tuple(f"f{number}" for number in range(len(rows[0]) if rows else 2))
    count = len(rows)
    return {
        "kind": "batch",
        "header": HEADERS[header],
        "codec": codec,
        "source": ("words", 7, "default", fields),
        "stream number": 3,
        "target": 9,
        "rows": rows,
        "roots": [number * 2**40 + 1 for number in range(count)],
        "edges": [-number * 3**30 - 1 for number in range(count)],
        "more": {},
        "frame": 12,
        "cycle": 2,
        **changes,
    }


def control(header: str = "", **changes: Any) -> dict[str, Any]:
    """A control frame with nothing in it but these."""
    nothing: dict[str, Any] = {
        "xors": {}, "failures": [], "grants": {}, "held": [], "hurry": False, "cycles": [], "missing": [],
    }  # fmt: skip
    return {"kind": "control", "header": HEADERS[header], "received": 16, **nothing, **changes}


def sign(
    numbers: tuple[int, ...], silence: float, flags: int, address: tuple[str, str], header: str = ""
) -> Any:
    """A sign of life."""
    return {"kind": "sign", "header": HEADERS[header], "sign": (numbers, silence, flags, address)}


def messages() -> dict[str, dict[str, Any]]:
    """All messages, by name."""
    return {**batches(), **controls(), **signs()}


def batches() -> dict[str, dict[str, Any]]:
    """Batches, and what else goes where tuples go."""
    found: dict[str, dict[str, Any]] = {}
    for codec in ("pickle", "msgpack"):
        values = (*PLAIN, *NESTED, *(PICKLED if codec == "pickle" else ()))
        made = {
            "one word": batch(codec, [("word",)]),
            "words": batch(codec, [(text, number) for number, text in enumerate(["to", "be", "or", "", "ü"])]),
            "words with a NUL": batch(codec, [("a\0b",), ("c",)]),
            "rows without values": batch(codec, [(), (), ()]),
            "every kind of value": batch(codec, [(value, number) for number, value in enumerate(values)]),
            "a value in each column": batch(codec, [tuple(values)]),
            "equal values": batch(codec, [("a", [1], {"x": 1})] * 3),
            "large bytes": batch(codec, [(b"\x01" * LARGE, 1), (b"small", 2), (b"\x02" * (LARGE + 1), 3)]),
            "no tree": batch(codec, [("a",)], roots=[0], edges=[0], frame=0, cycle=-1),
            "several trees": batch(codec, [("a",), ("b",)], more={1: ((9, -10), (11, 12)), 0: ((2**63 - 1, -(2**63)),)}),
            "extremes": batch(
                codec, [("a", 1)], "most", roots=[2**63 - 1], edges=[-(2**63)], frame=2**48, cycle=65_534, target=65_535,
                source=("ü", 65_535, "s", ("a", "b")), **{"stream number": 65_535},
            ),
        }  # fmt: skip
        found |= {f"{codec}: {name}": each for name, each in made.items()}
    found["an end"] = batch("pickle", [], kind="end", frame=0)
    found["an end that takes credit"] = batch("pickle", [], "least", kind="end")
    found["a ping"] = {"kind": "ping", "header": HEADERS[""]}
    return found


def controls() -> dict[str, dict[str, Any]]:
    """Control frames: with each thing alone, and with all."""
    parts: dict[str, Any] = {
        "xors": {3: ([1, 2], [-(2**63), 2**63 - 1]), 65_535: ([5], [0]), 4: ([], [])},
        "failures": [
            (4, ("failed", "count", 6, "ValueError: no", 2)),
            (2**62, ("timeout", None, None, None, 1)),
            (-5, ("lost", "ü", 0, "日本 \\ud800", 2**31 - 1)),
        ],
        "grants": {5: 17, 65_535: 2**40},
        "held": [("count", 6, (1, 2)), ("ü", 0, ())],
        "hurry": True,
        "cycles": [("probe", (0, 4)), ("reply", (1, 5, "w2", True, 10, 2**40, 3)), ("phase", (2, 6))],
        "missing": [(1, 1), (5, 2**40)],
    }
    found = {f"control: {name}": control(**{name: value}) for name, value in parts.items()}
    found["control: nothing"] = control("least", received=0)
    found["control: all"] = control("most", received=2**64 - 1, **parts)
    return found


def signs() -> dict[str, dict[str, Any]]:
    """Signs of life."""
    address = ("tcp://10.0.0.1:6701", "tcp://10.0.0.1:6702")
    found = {
        "sign: least": sign((0, 0, 0, 0), 0.0, 0, ("", ""), "least"),
        "sign: most": sign((2**64 - 1,) * 4, 6553.5, 255, address, "most"),
        "sign: of a same host": sign((1, 2, 3, 4), 1.2, 0, ("ipc://@squall/ü", "ipc://x")),
    }
    for flags in (1, 2, 4, 8, 16):
        found[f"sign: flag {flags}"] = sign((1, 2, 3, 4), 0.1, flags, address)
    return found
