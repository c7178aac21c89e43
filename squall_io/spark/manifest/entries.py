"""Manifest entries: what a committed batch consists of.

Must not know: files, who counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from squall_io.spark.manifest.envelopes import UnreadableRecord, canonical, digest_of, seal, unseal
from squall_io.spark.manifest.layout import BatchName, batch_of

KIND: Final = "commit"


@dataclass(frozen=True)
class DataFile:
    """A file of rows."""

    path: str
    """Relative to the table, with its partition directories."""
    size: int
    """Bytes."""
    digest: str
    """`sha256:<hex>` of its bytes."""


@dataclass(frozen=True)
class Entry:
    """One committed batch."""

    batch: BatchName
    topology: str
    """The names in full, for people; the batch's name holds them shortened."""
    topology_id: str
    component: str
    incarnation: tuple[int, int]
    schema: int
    """The number of the schema that its rows have."""
    rows: int
    files: tuple[DataFile, ...]
    committed: float
    """When, in seconds since 1970, by the clock of the worker that wrote it."""
    replaces: tuple[str, ...] = ()
    """Batches, by name, whose rows are in this one's files instead: what a compaction writes."""

    @property
    def size(self) -> int:
        """Bytes of its files."""
        return sum(file.size for file in self.files)

    @property
    def content(self) -> str:
        """A digest of what the batch is, but for when it was committed: two tries of one batch have the same."""
        fields = fields_of(self)
        del fields["committed"]
        return digest_of(canonical(fields))


def fields_of(entry: Entry) -> dict[str, Any]:
    """An entry as JSON values."""
    return {
        "batch": str(entry.batch),
        "topology": entry.topology,
        "topology_id": entry.topology_id,
        "component": entry.component,
        "incarnation": list(entry.incarnation),
        "schema": entry.schema,
        "rows": entry.rows,
        "files": [{"path": file.path, "size": file.size, "digest": file.digest} for file in entry.files],
        "committed": entry.committed,
        "replaces": list(entry.replaces),
    }


def entry_from(fields: Mapping[str, Any], path: str) -> Entry:
    """An entry out of JSON values that were read from `path`; `UnreadableRecord`."""
    try:
        batch = batch_of(fields["batch"])
        if batch is None:
            raise ValueError(f"batch is {fields['batch']!r}")
        version, restart = fields["incarnation"]
        return Entry(
            batch=batch,
            topology=fields["topology"],
            topology_id=fields["topology_id"],
            component=fields["component"],
            incarnation=(int(version), int(restart)),
            schema=int(fields["schema"]),
            rows=int(fields["rows"]),
            files=tuple(
                DataFile(file["path"], int(file["size"]), file["digest"]) for file in fields["files"]
            ),
            committed=float(fields["committed"]),
            replaces=tuple(fields["replaces"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise UnreadableRecord(
            path, f"is no manifest entry of a Squall table: {type(error).__name__}: {error}"
        ) from None


def encode_entry(entry: Entry) -> bytes:
    """The bytes of an entry's file."""
    return seal(KIND, fields_of(entry))


def decode_entry(data: bytes, path: str) -> Entry:
    """The entry in a file's bytes; `UnreadableRecord`, also when it is another batch's than the file's name says."""
    entry = entry_from(unseal(KIND, data, path), path)
    if path.rpartition("/")[2] != f"{entry.batch}.json":
        raise UnreadableRecord(path, f"is damaged: it holds the entry of batch {entry.batch}")
    return entry
