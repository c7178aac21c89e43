"""The plans of random stories: components, their streams and groupings, and values of many types.

Plain values drawn from a `Random`. Must not know: components, clusters.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

TEXTS = ("", "a", "word", "wörter", "日本", "🙂 emoji", "\ud800lone", "x" * 300)


@dataclass(frozen=True)
class StreamPlan:
    """One output stream."""

    name: str
    fields: tuple[str, ...]
    direct: bool = False


@dataclass(frozen=True)
class InputPlan:
    """One input of a bolt, with its grouping."""

    source: str
    stream: StreamPlan
    kind: str


@dataclass(frozen=True)
class Plan:
    """One component."""

    name: str
    seed: int
    kind: str
    parallelism: int
    streams: tuple[StreamPlan, ...]
    inputs: tuple[InputPlan, ...] = ()
    count: int = 0
    wild: float = 0.05
    readers: dict[str, str] = field(default_factory=dict)


def random_streams(random: Random) -> tuple[StreamPlan, ...]:
    """The output streams of a component: usually `default`, sometimes others, sometimes a direct one."""
    names = random.sample(["default", "other", "third"], random.choice([1, 1, 2, 3]))
    streams = [
        StreamPlan(name, tuple("abcd"[: random.choice([0, 1, 1, 1, 2, 2, 3, 4])]), direct=False)
        for name in names
    ]
    if random.random() < 0.4:
        streams.append(StreamPlan("straight", ("a", "b")[: random.choice([1, 2])], direct=True))
    return tuple(streams)


def random_plans(random: Random) -> list[Plan]:
    """Spouts, and bolts that read earlier components."""
    wild = random.choice([0.0, 0.02, 0.1])
    plans = [
        Plan(
            f"spout{number}",
            random.getrandbits(32),
            random.choice(["replaying", "replaying", "own"]),
            random.choice([1, 1, 2, 3]),
            random_streams(random),
            count=random.choice([5, 20, 60, 150]),
            wild=wild,
        )
        for number in range(random.choice([1, 1, 2]))
    ]
    there = [(plan, stream) for plan in plans for stream in plan.streams]
    for number in range(random.choice([1, 2, 3, 5])):
        kind = random.choice(["basic", "basic", "rich", "unanchored", "batch", "async"])
        name = f"bolt{number}"
        inputs = []
        for plan, stream in random.sample(there, min(len(there), random.choice([1, 2, 3]))):
            kinds = ["shuffle", "all", "global", "none", "local_or_shuffle", "custom"]
            kinds += ["fields", "fields", "partial_key"] if stream.fields else []
            chosen = "direct" if stream.direct else random.choice(kinds)
            inputs.append(InputPlan(plan.name, stream, chosen))
            if stream.direct:
                plan.readers[stream.name] = name
        streams = random_streams(random)
        plan = Plan(
            name, random.getrandbits(32), kind, random.choice([1, 2, 3]), streams, tuple(inputs), wild=wild
        )
        plans.append(plan)
        there += [(plan, stream) for stream in streams]
    return plans


# Values


def random_value(random: Random, wild: float) -> Any:
    """A value of one of many types; rarely one that cannot be the key of a fields grouping."""
    if random.random() < wild / 2:
        return {"a": random.randrange(3)}
    makers: list[Callable[[], Any]] = [
        lambda: random.choice(TEXTS),
        lambda: random.choice("abcdefgh"),
        lambda: random.randrange(-5, 5),
        lambda: random.choice([2**63 - 1, -(2**63), 2**64, 10**30]),
        lambda: random.choice([0.5, -0.0, 1e300, float("inf")]),
        lambda: random.choice([None, True, False]),
        lambda: random.choice([b"", b"\x00\xff", b"abc"]),
        lambda: (random.randrange(3), random.choice("ab")),
        lambda: [random.randrange(3), "in a list"],
    ]
    return random.choice(makers)()


def random_row(random: Random, stream: StreamPlan, wild: float) -> Any:
    """Values for a stream: a tuple, a list, or an iterator."""
    row = tuple(random_value(random, wild) for _ in stream.fields)
    kinds: list[Any] = [tuple, tuple, tuple, list, iter]
    return random.choice(kinds)(row)
