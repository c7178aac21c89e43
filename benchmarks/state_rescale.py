"""What tasks read and decode when a stateful bolt gets another number of tasks: by key groups, beside all snapshots.

Tasks count different words, each once, and a tenth of them again, as in the next epoch. Their snapshots are written to a
folder. Then each of the new tasks reads what it needs, and keeps the keys that are its own: by key groups; and as it had to
without them, all snapshots, key by key.

    python -m benchmarks state_rescale [--keys 1000000] [--before 2] [--now 3]
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from benchmarks import state_access
from benchmarks.child import core, machine
from worker.epochs.records import SnapshotFile
from worker.epochs.snapshot_chain import SnapshotChain
from worker.epochs.snapshot_files import SnapshotData, TaskSnapshot, link_to
from worker.loop.epoch_store import EpochFiles
from worker.loop.rescale import KeyShare, files_for, range_wanted
from worker.routing.key_groups import GroupRange, range_of, task_of
from worker.state import build
from worker.state.saving import StateSaving
from worker.state.table import MarkingTable, StateHandle
from worker.state.values import ValueHandle

GROUPS = 1024


class CountedFiles(EpochFiles):
    """A folder that counts what is read."""

    def __init__(self, path: str) -> None:
        super().__init__(path, "words")
        self.bytes = self.calls = 0

    def read_bytes(self, name: str, offset: int = 0, length: int | None = None, /) -> bytes:
        data = super().read_bytes(name, offset, length)
        self.bytes += len(data)
        self.calls += 1
        return data


def main() -> None:
    """Write the snapshots, read them both ways, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--before", type=int, default=2)
    parser.add_argument("--now", type=int, default=3)
    options = parser.parse_args()
    print(
        f"{machine()}; core: {core()}; {options.keys:,} keys, {options.before} -> {options.now} tasks",
        flush=True,
    )
    with tempfile.TemporaryDirectory() as folder:
        store = CountedFiles(f"file://{Path(folder).resolve()}/state")
        began = time.process_time()
        files = write(store, options.keys, options.before)
        print(f"written in {time.process_time() - began:.1f} s of processor time")
        for how in ("all snapshots", "key groups"):
            store.bytes = store.calls = 0
            began = time.process_time()
            keys = sum(read(store, files, index, options.now, how) for index in range(options.now))
            took = time.process_time() - began
            print(
                f"{how:>14}: {store.bytes / 1e6:7.1f} MB read in {store.calls} calls, {took:5.2f} s of processor time"
            )
            assert keys >= options.keys  # and those that are in both files of a task


def write(store: EpochFiles, keys: int, tasks: int) -> dict[str, SnapshotFile]:
    """Write a whole snapshot and one with changes for each task; return the second ones."""
    shares: list[list[str]] = [[] for _ in range(tasks)]
    for number in range(keys):
        word = f"word-{number}"
        shares[task_of(word, tasks, GROUPS)].append(word)
    files = {}
    for index, words in enumerate(shares):
        table = MarkingTable("component 'count'", time.monotonic)
        handle = build.handles(table, state_access.CountsInState)["times"]
        assert isinstance(handle, ValueHandle)
        chain, own = SnapshotChain(), range_of(index, tasks, GROUPS)
        for epoch, counted in enumerate((words, words[::10]), 1):
            for word in counted:
                table.begin(word)
                handle.value += 1
                table.commit()
            files[f"count/{index}"] = saved(store, f"count/{index}", epoch, handle, own, chain)
    return files


def saved(
    store: EpochFiles, task: str, epoch: int, handle: StateHandle, own: GroupRange, chain: SnapshotChain
) -> SnapshotFile:
    """Write the snapshot of a task."""
    data = SnapshotData(own)
    saving = StateSaving([handle], not chain.links, lambda moment: moment, data.add, own)
    while not saving.step():
        pass
    data.finish(TaskSnapshot(task, epoch, 1, 0, state={}, chain=list(chain.links)))
    file = store.keep_snapshot(data)
    chain.written(link_to(file, len(data.data)), saving.cells)
    return file


def read(store: EpochFiles, files: dict[str, SnapshotFile], index: int, tasks: int, how: str) -> int:
    """Read what one of the new tasks needs; return how many values it has."""
    share = KeyShare(index, tasks, GROUPS)
    if how == "all snapshots":
        snapshots = store.read_snapshots(files)
    else:
        name = f"count/{index}"
        chosen = files_for(name, files, tasks, share.range)
        snapshots = store.read_snapshots(chosen, range_wanted(name, chosen, share.range))
    return sum(len(part["values"]) for part in share.parts([each.parts for each in snapshots]))


if __name__ == "__main__":
    main()
