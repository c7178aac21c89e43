"""`--timeout` ends a wait in time also while no Nimbus answers."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest

from squall.http.client import Refused, Unreachable
from squall_cli.cluster import waiting


class WaitClock:
    """Simulated time: a pause moves it on."""

    def __init__(self) -> None:
        self.now = 0.0

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> WaitClock:
    """Return the clock that waits go by."""
    made = WaitClock()
    monkeypatch.setattr(waiting, "time", SimpleNamespace(monotonic=lambda: made.now, sleep=made.sleep))
    return made


def dies_after(answers: int, error: Exception) -> Callable[[], tuple[None, str]]:
    """Return a look that is never done, and fails with `error` after some answers."""
    looks = 0

    def look() -> tuple[None, str]:
        nonlocal looks
        looks += 1
        if looks > answers:
            raise error
        return None, "30 trees pending"

    return look


@pytest.mark.parametrize("error", [Unreachable("no route"), Refused(503, "NoLeader", "no route")])
@pytest.mark.parametrize("answers", [0, 1])
def test_a_timeout_ends_a_wait_while_no_nimbus_answers(
    clock: WaitClock, answers: int, error: Exception
) -> None:
    with pytest.raises(waiting.Overdue, match=r"after 2\.5 s: Nimbus does not say how far it is: .*no route"):
        waiting.wait(dies_after(answers, error), 2.5)
    assert clock.now == pytest.approx(2.5)


def test_without_a_timeout_a_wait_is_patient_with_nimbus(clock: WaitClock) -> None:
    with pytest.raises(Unreachable, match="no route"):
        waiting.wait(dies_after(1, Unreachable("no route")))
    assert clock.now == pytest.approx(waiting.PATIENCE, abs=1.0)


def test_a_refusal_that_will_not_pass_is_raised_at_once(clock: WaitClock) -> None:
    with pytest.raises(Refused, match="unknown"):
        waiting.wait(dies_after(0, Refused(404, "NoSuchTopology", "unknown")), 2.5)
    assert clock.now == 0.0


def test_a_change_is_tried_again_for_as_long_as_another_nimbus_may_take_to_lead(clock: WaitClock) -> None:
    def command() -> None:
        raise Refused(503, waiting.NO_LEADER, "no Nimbus leads")

    with pytest.raises(Refused, match="no Nimbus leads"):
        waiting.obeyed(command)
    assert clock.now == pytest.approx(waiting.TAKEOVER_SECS, abs=1.0)
