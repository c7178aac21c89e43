"""The world of `commit_world` with a Delta log: owners add their batches, and others catch up.

`check_log` is a reader of its own: it knows the protocol of Delta, and nothing of the code that follows the manifest.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field

from squall.stores.files import Files
from squall_io.spark.delta.following import catch_up, enable, newest_version
from squall_io.spark.delta.own_batches import OwnBatches
from squall_io.spark.manifest.entries import BatchEntry
from squall_io.spark.manifest.state import read_state
from squall_io.spark.manifest.tables import ROWS, TableRecord, agree_on_schema, open_table
from squall_io.spark.rows.schema import parse_schema
from tests.squall_io.commit_world import DIRECTORIES, OTHERS, Broken, World, again
from tests.squall_io.memory_files import Gate, straight
from tests.squall_io.toy_compaction import rows_in


@dataclass
class DeltaWorld(World):
    """A table that has a Delta log."""

    #: Files of entries that were ever in the log.
    _shown: set[str] = field(default_factory=set)
    _own: dict[tuple[int, int], OwnBatches] = field(default_factory=dict)

    def furnish(self) -> None:
        """A table, and what is there before any actor."""
        files = self.files()
        open_table(files, TableRecord(ROWS, "parquet", ("day",)))
        agree_on_schema(files, parse_schema("n bigint, day int"))
        assert enable(files, self.wall)
        super().furnish()

    def commit(
        self, files: Files, index: int, epoch: int, number: int, *how: object, **named: object
    ) -> BatchEntry:
        """A batch of an owner, which adds each to the log."""
        if number == 1:
            version = again(lambda: newest_version(files))
            self._own[index, epoch] = OwnBatches(self.wall, ("day",), version)
        entry = super().commit(files, index, epoch, number, *how, **named)  # type: ignore[arg-type]
        own = self._own[index, epoch]
        own.waiting.append(entry)
        again(lambda: own.add(files))
        return entry

    def follower(self, gate: Gate, times: int = 1) -> None:
        """A process that brings the log up to the manifest."""
        files = self.files(gate)
        for _ in range(times):
            again(lambda: catch_up(files, self.wall))

    def read_log(self, gate: Gate) -> None:
        """A reader of the log."""
        self.check_log(gate)

    def check_log(self, gate: Gate = straight) -> set[str]:
        """Read the log as a reader of Delta does; return the files that are in its newest version."""
        files = self.files(gate)
        live: set[str] = set()
        streamed: Counter[tuple[str, str]] = Counter()
        version = 0
        while again(lambda at=version: files.exists(_path(at))):  # type: ignore[misc]
            data = again(lambda at=version: files.read(_path(at)))  # type: ignore[misc]
            lines = [json.loads(line) for line in data.splitlines()]
            removed = {line["remove"]["path"] for line in lines if "remove" in line}
            added = [line["add"]["path"] for line in lines if "add" in line]
            if len(set(added)) != len(added) or set(added) & live:
                raise Broken(f"version {version} adds a file that is there: {added}")
            if removed - live:
                raise Broken(f"version {version} removes files that are not there: {removed - live}")
            live = (live - removed) | set(added)
            new = {line["add"]["path"] for line in lines if "add" in line and line["add"]["dataChange"]}
            # What a reader gets that follows the changes: each row once, and before it is moved.
            streamed.update(self._rows(new))
            if streamed != self._rows(live):
                raise Broken(f"after version {version}, a stream has {streamed}")
            self._check_version(version, live)
            version += 1
        return live

    def _check_version(self, version: int, live: set[str]) -> None:
        """Each batch is there as a whole, and no row twice."""
        counts = self._rows(live)
        if twice := {row for row in counts if counts[row] > 1}:
            raise Broken(f"version {version} has rows twice: {twice}")
        batches = Counter(batch for batch, _ in counts)
        if halves := {name for name in batches if batches[name] != len(DIRECTORIES)}:
            raise Broken(f"version {version} has a part of batches: {halves}")
        self._shown |= live

    def _rows(self, paths: set[str]) -> Counter[tuple[str, str]]:
        rows = [row for path in paths for row in rows_in(self.store.files.get(path) or self._deleted(path))]
        return Counter((row["batch"], row["directory"]) for row in rows)

    def _deleted(self, path: str) -> bytes:
        raise Broken(f"the log has {path}, which is not in the store")

    def settle(self, writer_ids: int) -> None:
        """As in `World`; and then the log has exactly the files of the table, and never had another one."""
        super().settle(writer_ids)
        files = self.files()
        catch_up(files, self.wall)
        live = self.check_log()
        state = read_state(files)
        wanted = {file.path for entry in state.entries for file in entry.files}
        if live != wanted:
            raise Broken(f"the log lacks {wanted - live}, and has {live - wanted}")
        counted = {file.path for entry in state.counted.values() for file in entry.files}
        if self._shown - counted:
            raise Broken(f"the log had files that do not count: {self._shown - counted}")
        if set(OTHERS) & live:
            raise Broken("the log has files of others")
        if catch_up(files, self.wall).added:
            raise Broken("a log that has everything gets more")


def _path(version: int) -> str:
    return f"_delta_log/{version:020d}.json"
