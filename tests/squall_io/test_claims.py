"""The owner of a writer id, and the contents of a fence about the epoch before it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TypeVar

import pytest

from squall.stores.files import Files, FilesUnavailable
from squall_io.spark.manifest.claims import (
    Superseded,
    list_claims,
    publish_fence,
    read_claim,
    read_fence,
    require_owner,
    take_over,
)
from squall_io.spark.manifest.envelopes import FORMAT, UnreadableRecord, seal
from squall_io.spark.manifest.layout import TMP, BatchName, WriterId, claim_path, fence_path
from tests.squall_io.commit_world import World, writer_id
from tests.squall_io.memory_files import MemoryFiles, Step

T = TypeVar("T")

WRITER_ID = writer_id()


def own(files: Files, incarnation: tuple[int, int] = (1, 0), of: WriterId = WRITER_ID) -> int:
    """Take a writer id over."""
    return take_over(files, of, incarnation, "host:1", 1_700_000_000.0)


def put_entry(files: Files, epoch: int, number: int) -> None:
    """An entry; a fence reads only names."""
    files.put_if_absent(BatchName(WRITER_ID, epoch, number).commit, b"")


def test_epochs_are_numbered_consecutively_for_each_writer_id() -> None:
    files = MemoryFiles()
    assert [own(files), own(files), own(files, of=writer_id(1)), own(files)] == [1, 2, 1, 3]
    assert list_claims(files).newest(WRITER_ID) == 3
    assert list_claims(files).writer_ids == {WRITER_ID, writer_id(1)}
    assert read_claim(files, WRITER_ID, 3).owner == "host:1"


def test_each_epoch_but_the_first_has_a_fence_that_names_the_earlier_entries() -> None:
    files = MemoryFiles()
    own(files)
    put_entry(files, 1, 1)
    put_entry(files, 1, 2)
    own(files)
    put_entry(files, 1, 3)
    put_entry(files, 2, 1)
    own(files)
    assert read_fence(files, WRITER_ID, 2) == {1, 2}
    assert read_fence(files, WRITER_ID, 3) == {1}


def test_a_fence_that_a_dead_owner_did_not_make_is_made_by_the_next_one() -> None:
    files = MemoryFiles()
    own(files)
    put_entry(files, 1, 1)
    files.put_if_absent(
        claim_path(WRITER_ID, 2), seal("claim", {"incarnation": [1, 1], "owner": "h", "since": 0})
    )
    assert own(files, (1, 2)) == 3
    assert read_fence(files, WRITER_ID, 2) == {1}


def test_the_first_fence_that_is_put_counts() -> None:
    files = MemoryFiles()
    own(files)
    own(files)
    put_entry(files, 1, 1)
    assert publish_fence(files, WRITER_ID, 2) == frozenset()


def test_a_helper_whose_fence_is_swept_by_the_owner_finds_the_owners_fence() -> None:
    world = World()
    files = world.files()
    own(files)
    put_entry(files, 1, 1)
    files.put_if_absent(
        claim_path(WRITER_ID, 2), seal("claim", {"incarnation": [2, 0], "owner": "h", "since": 0})
    )

    def swept(step: Step, effect: Callable[[], T]) -> T:
        if step.call == "put_if_absent: rename" and not files.exists(fence_path(WRITER_ID, 3)):
            own(files, (3, 0))
            files.delete(TMP)
        return effect()

    put_entry(files, 1, 2)
    assert publish_fence(world.files(swept), WRITER_ID, 2) == {1, 2}
    assert read_fence(files, WRITER_ID, 2) == {1, 2}

    def away(step: Step, effect: Callable[[], T]) -> T:
        if step.writes:
            raise FilesUnavailable("no answer")
        return effect()

    with pytest.raises(FilesUnavailable):  # no task has made this one
        publish_fence(world.files(away), WRITER_ID, 4)


def test_an_older_incarnation_is_refused_and_the_error_names_the_owner() -> None:
    files = MemoryFiles()
    take_over(files, WRITER_ID, (3, 1), "host-b:4711", 0.0)
    with pytest.raises(Superseded, match=r"taken over by host-b:4711, incarnation 3\.1"):
        own(files, (3, 0))
    assert list_claims(files).newest(WRITER_ID) == 1


def test_of_two_of_the_same_incarnation_the_later_one_owns_the_writer_id() -> None:
    files = MemoryFiles()
    assert (own(files), own(files)) == (1, 2)
    with pytest.raises(Superseded):
        require_owner(files, WRITER_ID, 1)
    require_owner(files, WRITER_ID, 2)


def test_the_second_task_to_put_a_claim_takes_the_next_epoch() -> None:
    world = World()
    files = world.files()

    def faster(step: Step, effect: Callable[[], T]) -> T:
        if step == Step("put_if_absent: rename", claim_path(WRITER_ID, 1), writes=True) and not others:
            others.append(own(files))
        return effect()

    others: list[int] = []
    assert own(world.files(faster)) == 2
    assert others == [1]


def test_a_damaged_claim_stops_no_task_since_the_order_of_epochs_decides() -> None:
    files = MemoryFiles()
    own(files, (9, 0))
    files.replace(claim_path(WRITER_ID, 1), b"{")
    assert own(files, (1, 0)) == 2
    files.replace(claim_path(WRITER_ID, 2), b"{")
    with pytest.raises(Superseded, match=r"2\.claim\.json is truncated"):
        require_owner(files, WRITER_ID, 1)


def test_a_claim_of_a_newer_squall_is_left_alone() -> None:
    files = MemoryFiles()
    own(files)
    record = {**json.loads(files.read(claim_path(WRITER_ID, 1))), "format": FORMAT + 1}
    files.replace(claim_path(WRITER_ID, 1), json.dumps(record).encode())
    with pytest.raises(UnreadableRecord, match="newer Squall"):
        own(files, (2, 0))
    assert not files.exists(claim_path(WRITER_ID, 2))


@pytest.mark.parametrize("path", [claim_path(WRITER_ID, 1), fence_path(WRITER_ID, 1)])
def test_an_incomplete_record_is_named(path: str) -> None:
    files = MemoryFiles()
    kind = path.split(".")[-2]
    files.replace(path, seal(kind, {}))
    with pytest.raises(UnreadableRecord, match=f"{path} is not a valid Squall record of a {kind}"):
        read_claim(files, WRITER_ID, 1) if kind == "claim" else read_fence(files, WRITER_ID, 1)


def test_an_owner_whose_claim_got_no_answer_owns_the_next_epoch() -> None:
    world = World()

    def deaf(step: Step, effect: Callable[[], T]) -> T:
        done = effect()
        if step.call == "put_if_absent: rename":
            raise FilesUnavailable("no answer")
        return done

    with pytest.raises(FilesUnavailable):
        own(world.files(deaf))
    assert own(world.files()) == 2
