"""The checks of connectors' contracts: right connectors pass, and each wrong one is found, with what it breaks."""

from __future__ import annotations

import pickle
import uuid
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from local_cluster.testing import (
    ContractBroken,
    check_rewindable_spout,
    check_staged_sink,
    check_token_sink,
)
from tests.connectors_in_memory import (
    ROWS,
    SPOUT_MUTANTS,
    STAGED,
    STAGED_MUTANTS,
    TOKEN_MUTANTS,
    Numbers,
    StagedInMemory,
    TokenInMemory,
    VisibleAtStage,
    shown_rows,
)
from tests.whole_epoch_contract import PARTS, TOGETHER_MUTANTS, TogetherInMemory
from topology_api import Context, SquallError
from topology_api.epoch_rules import STATE_PATH


def check_spout(kind: type[Numbers], parallelism: int = 1) -> None:
    check_rewindable_spout(lambda: kind(30), [(number,) for number in range(30)], parallelism=parallelism)


def check_staged(kind: type[StagedInMemory]) -> None:
    place = uuid.uuid4().hex
    check_staged_sink(
        lambda: kind(place),
        lambda number: {"id": number, "word": f"w{number}"},
        lambda: shown_rows(place),
        staged=lambda: len(STAGED[place]),
    )


def check_together(kind: type[TogetherInMemory]) -> None:
    place = uuid.uuid4().hex
    check_staged_sink(
        lambda: kind(place),
        lambda number: {"id": number, "word": f"w{number}"},
        lambda: shown_rows(place),
        staged=lambda: len(PARTS[place]),
        whole_epochs=True,
    )


def check_token(kind: type[TokenInMemory]) -> None:
    place = uuid.uuid4().hex
    check_token_sink(
        lambda: kind(place),
        lambda number: {"id": number},
        lambda: ROWS[place],
        refused=lambda number: {"id": -1 - number},
    )


@pytest.mark.parametrize("parallelism", [1, 3])
def test_a_right_spout_passes(parallelism: int) -> None:
    check_spout(Numbers, parallelism)


def test_right_sinks_pass() -> None:
    check_staged(StagedInMemory)
    check_together(TogetherInMemory)
    check_token(TokenInMemory)


@pytest.mark.parametrize(
    ("check", "kind", "promise"),
    [
        *((check_spout, kind, promise) for kind, promise in SPOUT_MUTANTS.items()),
        *((check_staged, kind, promise) for kind, promise in STAGED_MUTANTS.items()),
        *((check_together, kind, promise) for kind, promise in TOGETHER_MUTANTS.items()),
        *((check_token, kind, promise) for kind, promise in TOKEN_MUTANTS.items()),
    ],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_each_wrong_connector_is_found(check: Callable[[Any], None], kind: type, promise: str) -> None:
    with pytest.raises(ContractBroken) as caught:
        check(kind)
    assert promise in [text.partition(":")[0] for text in caught.value.broken]


def test_an_error_says_what_is_broken_and_after_which_calls() -> None:
    with pytest.raises(ContractBroken) as caught:
        check_staged(VisibleAtStage)
    assert isinstance(caught.value, AssertionError) and isinstance(caught.value, SquallError)
    error: ContractBroken = pickle.loads(pickle.dumps(caught.value))
    assert error.name == "VisibleAtStage"
    assert error.broken[0].startswith(
        "rows are hidden until their commit: after stage and before commit, visible is ("
    )
    assert "after: prepare (task 0 of a new process); stage(3)" in str(error)


def test_what_the_checks_are_given_is_checked() -> None:
    with pytest.raises(SquallError, match=r"make\(\) returned 5 \(int\): return a new StagedSink"):
        check_staged_sink(lambda: 5, lambda number: {}, list)  # type: ignore[arg-type, return-value]
    with pytest.raises(SquallError, match=r"values\(0\) is \(0,\) \(tuple\): return a dict"):
        check_staged_sink(lambda: StagedInMemory("odd"), lambda number: (number,), list)  # type: ignore[arg-type, return-value]
    odd: list[tuple[list[Any], str]] = [([5], "a visible row is 5"), ([[[]]], "cannot be hashed")]
    for rows, said in odd:
        with pytest.raises(SquallError, match=said):
            check_token_sink(lambda: TokenInMemory("odd"), lambda number: {"id": number}, partial(list, rows))
    with pytest.raises(SquallError, match="return a new RewindableSpout"):
        check_rewindable_spout(lambda: None, [])  # type: ignore[arg-type, return-value]


def test_a_source_that_loses_what_was_read_without_a_word_is_found() -> None:
    with pytest.raises(ContractBroken, match="a position that the source has lost is refused"):
        check_rewindable_spout(lambda: Numbers(9), [(number,) for number in range(9)], lose=lambda: None)


class AsksForEpochs(StagedInMemory):
    """Has two ways to write, as a sink that is also used without epochs."""

    def prepare(self, context: Context) -> None:
        super().prepare(context)
        self.with_epochs = context.conf[STATE_PATH] is not None

    def stage(self, epoch: int | None, rows: list[Any]) -> Any:
        assert self.with_epochs == (epoch is not None)
        return super().stage(epoch, rows)


class AsksForPath(Numbers):
    def open(self, context: Context) -> None:
        assert context.conf[STATE_PATH] is not None and context.conf["topology.acking"]
        super().open(context)


def test_connectors_see_a_configuration_as_in_a_worker() -> None:
    check_staged(AsksForEpochs)
    check_spout(AsksForPath)
