"""Manifest entries: the contents of committed batches.

Must not know: files, which entries count.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated, Any, Final

import msgspec

from squall_io.spark.manifest import envelopes
from squall_io.spark.manifest.envelopes import UnreadableRecord
from squall_io.spark.manifest.layout import BatchName, batch_of

KIND: Final = "commit"
#: The format number of records with entries whose files have `parts`, or that have dropped rows: an earlier Squall would take
#: rows for those of another batch, or read dropped ones.
WITH_PARTS: Final = 2

#: The files whose rows a merged file has, by their names in the table, and how many rows of each; in the order of the rows.
Parts = tuple[tuple[str, Annotated[int, msgspec.Meta(ge=0)]], ...]


class DataFile(msgspec.Struct, frozen=True, omit_defaults=True):
    """A file of rows."""

    #: Relative to the table, with its partition directories.
    path: str
    #: Bytes.
    size: int
    #: `sha256:<hex>` of the file's bytes.
    digest: str
    #: Of a file that a compaction wrote: the files that sinks had committed, whose names say which batches they are of. Their
    #: rows are in the order of the commits. Other files have no parts: all rows are of the batch that the file's name says.
    parts: Parts = ()

    @property
    def name(self) -> str:
        """The last part of the path, which no other data file of the table has."""
        return self.path.rpartition("/")[2]

    @property
    def directory(self) -> str:
        """The folder of the file, relative to the table."""
        return self.path.rpartition("/")[0]


@dataclass(frozen=True)
class BatchEntry:
    """One committed batch. The fields are those of its JSON, in order; in the JSON, `batch` is text."""

    batch: BatchName
    #: The topology's full name. This field and the next two are information for readers; the batch's
    #: name has short forms of the three values.
    topology: str
    topology_id: str
    component: str
    incarnation: tuple[int, int]
    #: The number of its rows' schema.
    schema: int
    rows: int
    files: tuple[DataFile, ...]
    #: Seconds since 1970, by the clock of the worker that wrote the entry.
    committed: float
    #: Names of batches whose rows are now in this batch's files: a compaction writes such entries.
    replaces: tuple[str, ...] = ()
    #: The files of the replaced batches whose rows were dropped, by the names under which sinks had committed them, with the
    #: number of their rows.
    dropped: Parts = ()

    @property
    def size(self) -> int:
        """Bytes of its files."""
        return sum(file.size for file in self.files)

    @property
    def paths(self) -> set[str]:
        """The paths of its files."""
        return {file.path for file in self.files}

    @property
    def format(self) -> int:
        """The format number of records that have this entry."""
        moved = self.dropped or any(file.parts for file in self.files)
        return WITH_PARTS if moved else envelopes.FORMAT

    @property
    def content(self) -> str:
        """A digest of everything except the commit time: it is the same for two tries of one batch."""
        fields = fields_of(self)
        del fields["committed"]
        return envelopes.digest_of(envelopes.canonical(fields))


def fields_of(entry: BatchEntry) -> dict[str, Any]:
    """Return an entry as JSON values."""
    fields = {**msgspec.to_builtins(entry), "batch": str(entry.batch)}
    if not entry.dropped:  # as earlier releases write it
        fields.pop("dropped", None)
    return fields


def entry_from(fields: object, path: str) -> BatchEntry:
    """Return the entry with these JSON values, which were read from `path`. Raises `UnreadableRecord`."""
    if isinstance(fields, dict):
        batch = batch_of(str(fields.get("batch")))
        fields = {"replaces": None, **fields, "batch": None if batch is None else asdict(batch)}
    entry = envelopes.convert("manifest entry", BatchEntry, fields, path)
    envelopes.require_below(entry.paths, "", path)
    return entry


def encode_entry(entry: BatchEntry) -> bytes:
    """Return the bytes of an entry's file."""
    return envelopes.seal(KIND, fields_of(entry), entry.format)


def decode_entry(data: bytes, path: str) -> BatchEntry:
    """Return the entry in a file's bytes. Raises `UnreadableRecord`, also if its batch is not the batch in the file's name."""
    entry = entry_from(envelopes.numbered_fields(KIND, data, path, WITH_PARTS)[1], path)
    if path.rpartition("/")[2] != f"{entry.batch}.json":
        raise UnreadableRecord(path, f"is damaged: it holds the entry of batch {entry.batch}")
    return entry


envelopes.build_type_info(BatchEntry)
