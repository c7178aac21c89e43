"""The present code of the product, by the names of the fixtures: tables that Spark reads, their manifests, positions of
readers.

See `current_code.py`. Must not know: the contents of the fixtures.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import structs

from squall.stores.files import Files
from squall.stores.local import LocalFiles
from squall_io.spark.manifest import claims, tables
from squall_io.spark.manifest.checkpoints import read_newest
from squall_io.spark.manifest.entries import decode_entry, encode_entry
from squall_io.spark.manifest.envelopes import UnreadableRecord
from squall_io.spark.manifest.layout import BatchName, WriterId, batch_of, claim_of, number_of, safe
from squall_io.spark.manifest.state import read_state
from squall_io.spark.reading.summary import table_summary, verify
from squall_io.spark.results import versions
from squall_io.spark.spouts.discovery import FileList
from squall_io.spark.spouts.positions import (
    PositionRecords,
    Positions,
    ReaderIdentity,
    Unit,
    agree,
    owner_name,
    owner_of,
    require_reader,
)

#: The writer id, the batch and the owners of single records.
SEAT: Final = WriterId("words-1-0", "store", 0)
BATCH: Final = BatchName(SEAT, 1, 2)
READER: Final = ReaderIdentity("words", "lines", "/logs/*.gz")


def files_at(folder: Path) -> Files:
    """The table in a folder of this machine."""
    return LocalFiles(str(folder))


def is_newer(error: BaseException) -> bool:
    """Whether a record is refused because a newer release has written it."""
    return isinstance(error, UnreadableRecord) and error.newer


# Whole tables


def _summary(files: Files) -> object:
    found = table_summary(files)
    schema = None if found.schema is None else str(found.schema)
    told = ("table", "rows", "files", "size", "partitions", "first_commit", "last_commit", "stream")
    return {
        **{name: getattr(found, name) for name in told}, "schema": schema, "versions": [each.number for each in found.versions],
        "unreadable": sorted(each.path for each in found.unreadable),
    }  # fmt: skip


def _state(files: Files) -> object:
    found = read_state(files)
    return {
        "entries": found.entries,
        "replaced": found.replaced,
        "abandoned": [str(batch) for batch in found.abandoned],
        "unreadable": sorted(each.path for each in found.unreadable),
        "checkpoint": found.checkpoint.number,
        "in the checkpoint": [str(entry.batch) for entry in found.checkpoint.entries],
        "uncovered": [str(entry.batch) for entry in found.uncovered],
        "needless": [str(batch) for batch in found.needless],
        "uncertain": [str(batch) for batch in found.uncertain],
        "files": [file.path for entry in found.entries for file in entry.files],
        "written again": {
            str(entry.batch): encode_entry(entry) for entry in (*found.entries, *found.replaced)
        },
        "content": {str(entry.batch): entry.content for entry in found.entries},
    }


@dataclass(frozen=True)
class PlacedClaim:
    """A claim with the values in its path: a claim of the commit had both."""

    writer_id: WriterId
    epoch: int
    incarnation: tuple[int, int]
    owner: str
    since: float
    retired: bool
    token: str
    holder: object = None


def _placed(files: Files, writer_id: WriterId, epoch: int) -> PlacedClaim | None:
    claim = claims.read_claim(files, writer_id, epoch)
    return None if claim is None else PlacedClaim(writer_id, epoch, **structs.asdict(claim))


def _claims(files: Files) -> object:
    found = claims.list_claims(files)
    return {
        "claims": {f"{seat}.{epoch}": _placed(files, seat, epoch) for seat, epoch in sorted(found.claims)},
        "fences": {
            f"{seat}.{epoch}": claims.read_fence(files, seat, epoch) for seat, epoch in sorted(found.fences)
        },
    }


def _verified(files: Files) -> object:
    found = verify(files)
    return [found.files, found.size, sorted(each.path for each in found.problems), found.strays]


def _versions(files: Files) -> object:
    newest = versions.newest_number(files)
    return {
        "newest": newest,
        "kept": versions.kept_versions(files),
        "all": [versions.read_version(files, number) for number in range(1, newest + 1)],
    }


def _settled(files: Files) -> object:
    versions.settle(files)
    return _versions(files)


READ_TABLE: Final[Mapping[str, Callable[[Files], object]]] = {
    "table": tables.read_table,
    "schema": lambda files: (latest := tables.latest_schema(files)) and [latest.number, str(latest.schema)],
    "state": _state,
    "summary": _summary,
    "claims": _claims,
    "verification": _verified,
    "versions": _versions,
    "settled": _settled,
}

# Single records: by their path, with their reader


def _checkpoint(files: Files) -> object:
    found = read_newest(files)
    if found.unreadable:
        raise found.unreadable[0]
    return {"number": found.number, "parts": found.parts}


def _positions(files: Files) -> object:
    task = Positions(0, 2)
    PositionRecords(files, task, owner_name("words-2-0", (2, 0))).load()
    return msgspec.to_builtins(task.record())


def _file_list(files: Files) -> object:
    found = FileList(files)
    found.read()
    return [found.records, found.files]


#: Kind -> the path of such a record, and its reader.
READ_RECORD_OF: Final[Mapping[str, tuple[str, Callable[[Files], object]]]] = {
    "table": ("_squall/table.json", tables.read_table),
    "schema": ("_squall/schemas/1.json", lambda files: str(tables.read_schema(files, 1).schema)),
    "commit": (BATCH.commit, lambda files: decode_entry(files.read(BATCH.commit), BATCH.commit)),
    "claim": (f"_squall/claims/{SEAT}.1.claim.json", lambda files: claims.read_claim(files, SEAT, 1)),
    "fence": (f"_squall/claims/{SEAT}.2.fence.json", lambda files: claims.read_fence(files, SEAT, 2)),
    "checkpoint": ("_squall/checkpoints/1.json", _checkpoint),
    "version": ("_squall/versions/1.json", lambda files: versions.read_version(files, 1)),
    "reader": ("reader.json", lambda files: require_reader(files, READER)),
    "reader's snapshot": (
        f"snapshots/{safe('words-1-0')}.json",
        lambda files: agree(files, "words-1-0", dict),
    ),
    "reader's position": ("tasks/0of2.words-1-0.1.0.json", _positions),
    "reader's files": ("files/1.json", _file_list),
}

# Positions and names


def read_positions(files: Files, index: int, parallelism: int, units: list[tuple[str, int]]) -> object:
    """A task's knowledge from the records of all earlier owners."""
    task = Positions(index, parallelism)
    PositionRecords(files, task, owner_name("words-9-0", (9, 0))).load()
    mine = [unit for unit in (Unit(series, number) for series, number in units) if task.mine(unit)]
    return {
        "record": msgspec.to_builtins(task.record()),
        "done": [list(unit) for unit in mine if task.is_done(unit)],
        "begins": {
            f"{unit.series} {unit.number}": task.begin(unit).next for unit in mine if not task.is_done(unit)
        },
    }


def read_files_found(files: Files) -> object:
    """The files that a reader of lines has found."""
    return _file_list(files)


def owner_of_unit(series: str, number: int, parallelism: int) -> int:
    """The task that reads a unit."""
    return owner_of(Unit(series, number), parallelism)


def names_of(text: str) -> list[object]:
    """The meaning of a file's name, by each rule."""
    claim, batch = claim_of(text), batch_of(text)
    return [safe(text), None if batch is None else str(batch), None if claim is None else [str(claim[0]), *claim[1:]],
            number_of(text)]  # fmt: skip


def run_id(run: Mapping[str, Any]) -> str:
    """The id of a run: the same for the same result."""
    inputs = tuple(versions.RunInput(**each) for each in run["inputs"])
    table = tables.TableRecord(tables.RESULTS, run["file_format"], tuple(run["partition_by"]))
    return versions.Run(run["command"], run["job"], run["code"], inputs, run["settings"], table).id
