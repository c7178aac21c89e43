"""A file that is put once has one content for all who put it, also if answers are lost."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest

from squall.stores.files import FilesUnavailable
from squall.stores.local import LocalFiles
from squall.stores.settled import put_once
from tests.files_contract import at_once
from tests.squall_io.lost_answers import LosingFiles, nth
from tests.squall_io.memory_files import MemoryFiles, Step

T = TypeVar("T")

PATH = "snapshots/7.json"


@pytest.fixture
def files(tmp_path: Path) -> LocalFiles:
    return LocalFiles(str(tmp_path))


def test_all_who_put_a_file_get_the_content_of_the_one_that_won(files: LocalFiles) -> None:
    contents = at_once([partial(put_once, files, PATH, b"%d" % n) for n in range(6)])
    assert set(contents) == {files.read(PATH)}


def test_a_put_whose_answer_was_lost_is_recognized_by_its_content(files: LocalFiles) -> None:
    losing = LosingFiles(files, nth(1))
    assert put_once(losing, PATH, b"mine") == b"mine"
    assert losing.lost == ["put_if_absent"]


def test_anothers_file_is_recognized_when_the_answer_was_lost(files: LocalFiles) -> None:
    files.put_if_absent(PATH, b"theirs")
    losing = LosingFiles(files, nth(1))
    assert put_once(losing, PATH, b"mine") == b"theirs"
    assert losing.lost == ["put_if_absent"]


@pytest.mark.parametrize("then", ["exists", "read"])
def test_while_the_file_cannot_be_looked_at_nothing_is_settled_and_the_next_try_settles_it(
    files: LocalFiles, then: str
) -> None:
    losing = LosingFiles(files, lambda call, path, number: call in ("put_if_absent", then))
    with pytest.raises(FilesUnavailable, match=f"cannot {then} .*: the answer was lost"):
        put_once(losing, PATH, b"mine")
    assert put_once(files, PATH, b"mine") == b"mine"
    assert put_once(files, PATH, b"another") == b"mine"


def test_a_put_without_an_answer_that_takes_effect_later_is_not_taken_for_failed() -> None:
    waiting: list[Callable[[], object]] = []

    def frozen(step: Step, effect: Callable[[], T]) -> T:
        if step.call == "put_if_absent: rename" and not waiting:
            waiting.append(effect)
            raise FilesUnavailable("the server has not answered in time")
        return effect()

    files = MemoryFiles(gate=frozen)
    with pytest.raises(FilesUnavailable, match="has not answered in time"):
        put_once(files, PATH, b"mine")
    assert not files.exists(PATH)
    waiting[0]()  # the server wakes up
    assert put_once(files, PATH, b"mine") == b"mine"
