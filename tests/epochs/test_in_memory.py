"""A snapshot that is held in memory is the one that would be read, or it is read."""

from __future__ import annotations

from typing import Any

from worker.epochs.in_memory import InMemory, NothingToUndo
from worker.epochs.records import SnapshotFile
from worker.epochs.snapshot_files import ReadFile, SnapshotData, TaskSnapshot, link_to, read_chain


class Undo(NothingToUndo):
    """Can undo to some epochs."""

    def __init__(self, *epochs: int) -> None:
        self.epochs = epochs
        self.calls: list[Any] = []

    def can_return(self, epoch: int) -> bool:
        return epoch in self.epochs

    def forget_before(self, epoch: int) -> None:
        self.calls.append(epoch)

    def forget(self) -> None:
        self.calls.append("forget")


def write(memory: InMemory, files: dict[str, bytes], epoch: int, **content: Any) -> SnapshotFile:
    """A task writes a snapshot."""
    data = SnapshotData()
    data.finish(TaskSnapshot("count/0", epoch, 1, 0, **content))
    file = data.file()
    files[file.name] = bytes(data.data)
    memory.written("count/0", epoch, file, data.last, len(data.data))
    return file


def reader(files: dict[str, bytes]) -> ReadFile:
    """What reads files, or a piece of one."""

    def read(name: str, offset: int = 0, length: int | None = None, /) -> bytes:
        data = files[name][offset:]
        return data if length is None else data[:length]

    return read


def test_what_is_held_is_what_would_be_read() -> None:
    memory, files = InMemory(Undo(3)), dict[str, bytes]()
    whole = write(memory, files, 2, held=[("a", (1, 2))])
    link = link_to(whole, len(files[whole.name]))
    file = write(memory, files, 3, held=[("a", (1, 2))], chain=[link], position=b"7")
    assert memory.back_to(3, {"count/0": file}) == read_chain(file, reader(files))
    assert memory.back_to(3, {"count/0": file}) == read_chain(file, reader(files)), "and again"


def test_another_file_is_read() -> None:
    undo = Undo(3)
    memory, files = InMemory(undo), dict[str, bytes]()
    file = write(memory, files, 3)
    other = SnapshotFile(file.name, "another digest", 0)
    assert memory.back_to(3, {"count/0": other}) is None
    assert undo.calls == ["forget"] and not memory.held


def test_the_files_of_several_tasks_are_read() -> None:
    memory, files = InMemory(Undo(3)), dict[str, bytes]()
    file = write(memory, files, 3)
    assert memory.back_to(3, {"count/0": file, "count/1": file}) is None


def test_what_cannot_be_undone_is_read() -> None:
    memory, files = InMemory(Undo(2)), dict[str, bytes]()
    file = write(memory, files, 3)
    assert memory.back_to(3, {"count/0": file}) is None


def test_the_last_commit_is_held_until_a_later_one_is_known() -> None:
    undo = Undo(2, 3)
    memory, files = InMemory(undo), dict[str, bytes]()
    second = write(memory, files, 2)
    write(memory, files, 3)
    memory.commit(2)
    assert sorted(memory.held) == [2, 3]
    assert memory.back_to(2, {"count/0": second}) is not None
    third = write(memory, files, 4)
    memory.commit(4)
    assert sorted(memory.held) == [4] and undo.calls == [2, 4]
    assert memory.held[4].files == {"count/0": third}


def test_what_was_read_is_held_as_it_was_merged() -> None:
    memory = InMemory(Undo(5))
    files = {f"count/{index}": SnapshotFile(f"5-1-0-count.{index}", "digest", 0) for index in range(2)}
    merged = TaskSnapshot("count/0", 5, 1, 0, held=[["a"]], parts=[{"state": "times"}])
    memory.read(5, files, merged)
    found = memory.back_to(5, dict(files))
    assert found is not None and (found.held, found.parts) == ([["a"]], [])
