"""Why a topology has fewer workers than it wants, or none, or none that run: which slots are free, and why not for it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from squall.api.cluster_answers import SupervisorEntry
from squall_cli.cluster.placed import fewer_workers, free_slots
from tests.squall_cli.fake_nimbus import FakeNimbus, Squall, status_of, supervisor, topology, worker


def full(host: str, free: int = 0, **values: Any) -> dict[str, Any]:
    return supervisor(host, slots=2 + free, used=2, **values)


def entries(supervisors: list[dict[str, Any]]) -> list[SupervisorEntry]:
    return msgspec.convert(supervisors, list[SupervisorEntry])


PLACES: dict[str, tuple[list[dict[str, Any]], str, str]] = {
    "none": ([full("a"), full("b")], "", ""),
    "one": ([full("a"), full("b", 1)], "1 slot is free on b", ""),
    "on several": ([full("b", 2), full("a", 1)], "3 slots are free on a, b", ""),
    "two supervisors of a host": ([full("a", 1), full("a", 1)], "2 slots are free on a", ""),
    "on many": ([full(name, 1) for name in "edcba"], "5 slots are free on a, b, c and 2 others", ""),
    "drained": ([full("a"), full("b", 3, drained=True)], "", "slots are free only on the drained host b"),
    "failing": (
        [full("a", 1, drained=True), full("b", 3, cannot_start="[Errno 30] Read-only file system: '/state'")],
        "",
        "slots are free only on the drained host a and on the host that cannot start workers: b",
    ),
    "both drained": (
        [full("a", 1, drained=True), full("b", 1, drained=True)], "", "slots are free only on drained hosts: a, b",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", PLACES)
def test_free_slots_are_named_by_their_hosts(case: str) -> None:
    supervisors, free, drained = PLACES[case]
    assert free_slots(entries(supervisors)) == (free, drained)


def test_fewer_workers_than_wanted_are_explained_by_the_free_slots() -> None:
    status = topology("words", workers_wanted=3)
    again = "its tasks are spread over more workers"
    for supervisors, why in (
        ([full("a")], f"no slot is free for more; {again} when a slot is free"),
        (
            [full("a", 1)],
            f"1 slot is free on a; {again} as soon as no other topology is being moved",
        ),
        (
            [full("a"), full("b", 1, drained=True)],
            f"slots are free only on the drained host b, where nothing new is placed; {again} when another slot is free",
        ),
    ):
        assert fewer_workers(status_of(status), entries(supervisors)) == f"2 of 3 workers: {why}"
    assert fewer_workers(status_of({**status, "workers_wanted": 2}), entries([full("a")])) == ""


@pytest.mark.parametrize(
    ("supervisors", "said"),
    [
        ([full("a")], "it has no workers: no slot is free"),
        ([full("a", 1)], "it has no workers, although 1 slot is free on a: see the log of the leading Nimbus"),
        (
            [full("a", 1, drained=True)],
            "it has no workers: slots are free only on the drained host a, where nothing new is placed",
        ),
    ],
)  # fmt: skip
def test_list_and_status_show_why_a_topology_has_no_workers(
    supervisors: list[dict[str, Any]], said: str, nimbus: FakeNimbus, run: Squall
) -> None:
    nimbus.supervisors = supervisors
    nimbus.put(topology("waits", workers=[]))
    assert run("list").stdout.splitlines()[-1] == f"waits: {said}"
    assert run("status waits").stdout.splitlines()[-1] == (
        f"{said}; `squall supervisors` shows what there is."
    )


def test_list_shows_why_an_active_topology_does_not_run(nimbus: FakeNimbus, run: Squall) -> None:
    why = "worker w1 (pid 7) of topology 'loop' died: it exited with status 3; it is started again in 16 s"
    nimbus.put(topology("loop", held_up={"workers": 1, "why": why}))
    nimbus.put(topology("env", held_up={"workers": 2, "why": "its environment cannot be built"}))
    nimbus.put(topology("well", held_up=None))
    assert [line for line in run("list").stdout.splitlines() if ": " in line] == [
        "env: 2 of 2 workers do not run: its environment cannot be built",
        f"loop: 1 of 2 workers does not run: {why}",
    ]


def test_list_shows_for_a_version_on_trial_what_holds_it_up_and_the_previous_version(
    nimbus: FakeNimbus, run: Squall
) -> None:
    nimbus.put(
        topology("two", held_up={"workers": 1, "why": "it died"}, stands_by={"id": "two-0", "secs": 9.0})
    )
    first, second = (line for line in run("list").stdout.splitlines() if line.startswith("two: "))
    assert first == "two: 1 of 2 workers does not run: it died"
    assert second.startswith("two: the previous version (two-0) runs again unless")


@pytest.mark.parametrize(
    ("standby", "said"),
    [
        (
            {"secs": 9.0},
            "the previous version (two-0) runs again unless the workers of this one start within 9.00 s",
        ),
        (
            {"secs": 0.0, "suspended": True},
            "on trial, which begins at `squall activate two`; the previous version (two-0) is on standby",
        ),
    ],
)
def test_list_and_status_say_when_the_trial_of_an_inactive_version_begins(
    standby: dict[str, Any], said: str, nimbus: FakeNimbus, run: Squall
) -> None:
    waits = worker("two-w1", opened=False)
    nimbus.put(topology("two", "INACTIVE", stands_by={"id": "two-0", **standby}, workers=[waits]))
    assert f"two: {said}" in run("list").stdout.splitlines()
    assert said in run("status two").stdout.splitlines()


def test_list_and_status_query_supervisors_only_when_workers_are_missing(
    nimbus: FakeNimbus, run: Squall
) -> None:
    for line in ("list", "status word_count"):
        assert run(line).exit_code == 0
    assert "supervisors" not in [path for _, path, _, _ in nimbus.asked]
