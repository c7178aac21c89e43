"""Whatever a component raises, returns or consists of: the error is reported, the other tuples flow, the cluster lives on."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.local_cluster.gathering import Gather, Gathered, Rows, gathered, run
from topology_api import (
    BatchBolt,
    Bolt,
    Context,
    FailTuple,
    Fields,
    Grouping,
    Hook,
    Replay,
    Spout,
    TopologyBuilder,
    Tuple,
)

__all__ = ["gathered"]

ROWS = [(number,) for number in range(10)]


class Odd(BaseException):
    """Not derived from Exception."""


class SayNothing(Exception):
    def __str__(self) -> str:
        raise Odd

    __repr__ = __str__


class ShowNothing:
    def __repr__(self) -> str:
        raise Odd


class ReasonOfItsOwn(FailTuple):
    def __init__(self, code: int) -> None:
        self.code = code


ODD_ERRORS: dict[str, Callable[[], BaseException]] = {
    "base": lambda: Odd("x"),
    "exit": lambda: SystemExit(3),
    "no text": SayNothing,
    "own constructor": lambda: ReasonOfItsOwn(4),
    "reason without text": lambda: FailTuple(ShowNothing()),  # type: ignore[arg-type]
}


class Raises(Bolt):
    def __init__(self, kind: str) -> None:
        self.kind = kind

    def execute(self, tup: Tuple) -> None:
        if tup["value"] == 3:
            raise ODD_ERRORS[self.kind]()


class RaisesThreaded(Raises):
    threaded = True


class RaisesAsync(Raises):
    async def execute(self, tup: Tuple) -> None:  # type: ignore[override]
        super().execute(tup)


class RaisesBatch(BatchBolt):
    batch_size = 1

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def execute_batch(self, tups: Sequence[Tuple]) -> None:
        if tups[0]["value"] == 3:
            raise ODD_ERRORS[self.kind]()


def through(bolt: Bolt, spout: Spout | None = None, conf: Any = None) -> Any:
    """Run rows through one bolt to the end; return the status."""
    builder = TopologyBuilder("odd", conf or {})
    builder.set_spout("rows", spout or Rows(ROWS))
    builder.set_bolt("bolt", bolt).shuffle_grouping("rows")
    return run(builder.build())


@pytest.mark.parametrize("bolt", [Raises, RaisesThreaded, RaisesAsync, RaisesBatch])
@pytest.mark.parametrize("kind", ODD_ERRORS)
def test_an_odd_error_fails_its_tuple_alone(bolt: Any, kind: str, gathered: Gathered) -> None:
    status = through(bolt(kind))
    assert (status.components["bolt"].acked, status.components["bolt"].failed) == (9, 1)
    assert [message_id for message_id, _ in gathered["rows failed"]] == [3]


def test_a_value_that_cannot_be_shown_does_not_harm_a_report(gathered: Gathered) -> None:
    status = through(Raises("base"), Rows([(ShowNothing(),)]))
    assert status.components["rows"].acked == 1
    status = through(FailsAll(), Rows([(ShowNothing(),)]))
    assert "whose repr raises Odd" in status.errors[-1].render()


class FailsAll(Bolt):
    def execute(self, tup: Tuple) -> None:
        raise ValueError("all")


class PopsAll(BatchBolt):
    batch_size = 3

    def __init__(self, fails: bool) -> None:
        self.fails = fails

    def execute_batch(self, tups: Sequence[Tuple]) -> None:
        tups.clear()  # type: ignore[attr-defined]
        if self.fails:
            raise ValueError("after that")


@pytest.mark.parametrize("fails", [False, True])
def test_a_batch_may_be_emptied_by_its_bolt(fails: bool, gathered: Gathered) -> None:
    status = through(PopsAll(fails))
    assert status.components["rows"].acked == (0 if fails else 10)
    assert status.components["rows"].failed == (10 if fails else 0)


class PropertiesBreak(Bolt):
    broken = False

    def prepare(self, context: Context) -> None:
        self.broken = True

    @property
    def end_of_input(self) -> Any:
        if self.broken:
            raise Odd("late")
        return list

    def execute(self, tup: Tuple) -> None:
        pass


def test_a_method_whose_lookup_raises_is_an_error_of_its_call(gathered: Gathered) -> None:
    status = through(PropertiesBreak())
    assert status.components["rows"].acked == 10
    assert "end_of_input() raised Odd: late" in status.errors[-1].render()


class Waits(Rows):
    def __init__(self, wait: Any) -> None:
        super().__init__(ROWS[:2], per_call=1)
        self.wait = wait

    def next_tuple(self) -> Any:
        super().next_tuple()
        return None if not self.left else self.wait


class OddFloat(float):
    def __le__(self, other: object) -> bool:
        raise Odd

    __ge__ = __lt__ = __gt__ = __le__


@pytest.mark.parametrize("wait", [10**400, float("nan"), True, ShowNothing()])
def test_an_invalid_wait_is_an_error_and_the_spout_goes_on(wait: Any, gathered: Gathered) -> None:
    status = through(Gather(), Waits(wait))
    assert (status.components["rows"].acked, status.components["rows"].errors) == (2, 1)
    assert "it returns None or the seconds (>= 0) until its next call" in status.errors[-1].render()


def test_any_real_number_is_a_valid_wait(gathered: Gathered) -> None:
    status = through(Gather(), Waits(OddFloat(0.01)))
    assert (status.components["rows"].acked, status.components["rows"].errors) == (2, 0)


class OddHook(Hook):
    def executing(self, tup: Tuple) -> None:
        raise Odd


def test_a_hook_that_raises_anything_harms_no_tuple(gathered: Gathered) -> None:
    hooks = [f"{OddHook.__module__}:{OddHook.__name__}"]
    status = through(Gather(), conf={"topology.auto.task.hooks": hooks})
    assert (status.components["rows"].acked, status.components["bolt"].errors) == (10, 10)


class ChoosesOnce(Grouping):
    """Chooses the first time only; raises `error` at the replay."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.seen: set[object] = set()

    def prepare(self, context: Context, source: str, stream: str, target_tasks: Sequence[int]) -> None:
        self.tasks = target_tasks

    def choose(self, values: tuple[object, ...]) -> Sequence[int]:
        if values in self.seen:
            raise ODD_ERRORS[self.kind]()
        self.seen.add(values)
        return self.tasks


@pytest.mark.parametrize("kind", ODD_ERRORS)
def test_a_grouping_that_raises_at_a_replay_ends_that_tree(kind: str, gathered: Gathered) -> None:
    builder = TopologyBuilder("odd")
    builder.set_spout("rows", Rows(ROWS, replay=Replay(max_attempts=3, first_delay=0.01)))
    builder.set_bolt("bolt", FailsAll()).custom_grouping("rows", ChoosesOnce(kind))
    status = run(builder.build())
    assert status.components["rows"].failed == 10
    assert {failure.component for _, failure in gathered["rows failed"]} == {"rows"}


class LosesItsFolder(Bolt):
    def __init__(self, folder: str) -> None:
        self.folder = folder

    def execute(self, tup: Tuple) -> None:
        os.chdir(self.folder)
        os.rmdir(self.folder)
        exec(compile("1 / 0", "a relative name", "exec"))


def test_an_error_is_reported_where_the_working_folder_is_gone(
    gathered: Gathered, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # and back at the end
    (tmp_path / "gone").mkdir()
    status = through(LosesItsFolder(str(tmp_path / "gone")), Rows(ROWS[:1]))
    assert "ZeroDivisionError" in status.errors[-1].render()


class Forks(Bolt):
    """Its child process exits with an error."""

    def execute(self, tup: Tuple) -> None:
        child = os.fork()
        if child == 0:
            raise SystemExit(7)
        _, status = os.waitpid(child, 0)
        if os.waitstatus_to_exitcode(status) != 7:
            raise ValueError(f"exit status {status}")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Python's advice on forks of threaded processes
def test_a_forked_child_that_exits_is_gone(gathered: Gathered) -> None:
    status = through(Forks(), Rows(ROWS[:2]))
    assert (status.components["rows"].acked, status.components["bolt"].errors) == (2, 0)


class ForksAndReturns(Bolt):
    """Its child process returns from `execute` as if nothing had happened."""

    def prepare(self, context: Context) -> None:
        self.children: list[int] = []

    def execute(self, tup: Tuple) -> None:
        child = os.fork()
        if child:
            self.children.append(child)

    def end_of_input(self) -> None:
        for child in self.children:
            _, status = os.waitpid(child, 0)
            if os.waitstatus_to_exitcode(status) != 0:
                raise ValueError(f"exit status {status}")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("threaded", [False, True])
def test_a_forked_child_that_returns_does_not_go_on_as_a_second_cluster(
    gathered: Gathered, threaded: bool
) -> None:
    bolt = ForksAndReturns()
    bolt.threaded = threaded
    status = through(bolt, Rows(ROWS[:2]))
    assert (status.components["rows"].acked, status.components["bolt"].errors) == (2, 0)


class OddGauge(Bolt):
    outputs = Fields("value")

    def prepare(self, context: Context) -> None:
        context.gauge("odd", self.ask)

    def ask(self) -> float:
        raise SayNothing

    def execute(self, tup: Tuple) -> None:
        pass


def test_a_gauge_whose_error_has_no_text_is_still_reported(gathered: Gathered) -> None:
    status = through(OddGauge())
    assert status.components["bolt"].metrics == {"odd": "SayNothing: (its str() raises Odd)"}


class OddMeta(type):
    def __eq__(cls, other: object) -> bool:
        raise Odd

    __hash__ = type.__hash__


class OfOddClass(Bolt, metaclass=OddMeta):
    def execute(self, tup: Tuple) -> None:
        pass


def test_a_class_that_cannot_be_compared_works_as_a_bolt(gathered: Gathered) -> None:
    assert through(OfOddClass()).components["rows"].acked == 10
