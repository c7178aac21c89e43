"""`build()` refuses a rewindable spout whose `position` and `rewind` cannot work; without their calls it runs as any spout."""

from __future__ import annotations

from typing import Any

import pytest

from local_cluster.testing import complete_topology
from topology_api import InvalidTopology, RewindableSpout, Spout, SquallError, TopologyBuilder


class Numbers(RewindableSpout):
    outputs = "number"
    next = 0

    def next_tuple(self) -> None:
        if self.next == 3:
            return self.finish()
        self.emit((self.next,), message_id=self.next)
        self.next += 1

    def position(self) -> Any:
        return self.next

    def rewind(self, position: Any) -> None:
        self.next = position or 0


def problems(spout: Spout) -> list[str]:
    builder = TopologyBuilder("t")
    builder.set_spout("numbers", spout)
    try:
        builder.build()
    except InvalidTopology as error:
        return [problem.removeprefix("spout 'numbers': ") for problem in error.problems]
    return []


def test_a_spout_with_both_methods_is_accepted_and_runs_without_their_calls() -> None:
    class Plain(Numbers):
        def position(self) -> Any:
            raise AssertionError("nothing keeps positions here")

        def rewind(self, position: Any) -> None:
            raise AssertionError("nothing keeps positions here")

    builder = TopologyBuilder("t")
    builder.set_spout("numbers", Plain())
    done = complete_topology(builder.build())
    assert done.emitted("numbers") == [(0,), (1,), (2,)]


def test_both_methods_must_be_overridden() -> None:
    class Half(RewindableSpout):
        outputs = "number"

    assert problems(Half()) == [
        "Half has no next_tuple(): it must have one",
        "Half has no position(): it must have one",
        "Half has no rewind(position): it must have one",
    ]
    with pytest.raises(SquallError, match=r"Half has no position\(\): define it"):
        Half().position()
    with pytest.raises(SquallError, match=r"Half has no rewind\(position\): define it"):
        Half().rewind(None)


def test_methods_that_cannot_be_called_are_refused() -> None:
    class Wrong(Numbers):
        async def position(self) -> Any:
            return self.next

        def rewind(self) -> Any:  # type: ignore[override]
            yield

    found = problems(Wrong())
    assert len(found) == 3
    assert "position is async" in found[0]
    assert "rewind contains yield" in found[1]
    assert "rewind(self)" not in found[2] and "cannot be called with (position)" in found[2]


def test_a_name_of_the_api_is_no_value() -> None:
    spout = Numbers()
    spout.position = 5  # type: ignore[method-assign,assignment]
    assert problems(spout) == [
        "its position is 5 (int), but that is the name of a method of the API: rename it"
    ]


def test_a_plain_spout_may_have_methods_of_these_names() -> None:
    class Own(Spout):
        outputs = "number"

        def next_tuple(self) -> None:
            self.finish()

        def position(self, where: str) -> str:
            return where

        def rewind(self) -> None:
            pass

    assert problems(Own()) == []
