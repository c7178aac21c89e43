"""The actions of a Delta log: what a version holds, a line of JSON each.

Only the actions that Squall writes are known. A log with any other action comes from another program, and is left alone.
Source: https://github.com/delta-io/delta/blob/master/PROTOCOL.md, "Actions".
Must not know: files, when actions are written.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final
from urllib.parse import quote, unquote

import msgspec

from squall_io.spark.manifest.envelopes import build_type_info
from squall_io.spark.manifest.layout import batch_of
from topology_api import SquallError

#: Characters of a path that Delta's URIs keep as they are.
_KEPT: Final = "/=:@!$&'()*+,;~"


class ForeignLog(SquallError):
    """A Delta log that Squall has not written, or not alone. Squall leaves it as it is."""


class Protocol(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What a reader and a writer of the log must know."""

    min_reader_version: int
    min_writer_version: int
    reader_features: tuple[str, ...] | None = None
    writer_features: tuple[str, ...] | None = None


class Format(msgspec.Struct, frozen=True):
    """The format of the data files."""

    provider: str = "parquet"
    options: dict[str, str] = {}


class Metadata(msgspec.Struct, frozen=True, rename="camel"):
    """The table: its schema and its partition columns."""

    id: str
    schema_string: str
    partition_columns: tuple[str, ...]
    configuration: dict[str, str]
    #: Milliseconds since 1970.
    created_time: int | None = None
    format: Format = Format()
    name: str | None = None
    description: str | None = None


class AddedFile(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A data file that belongs to the table from this version on."""

    #: Relative to the table, as a URI: `day=1/squall-....parquet`.
    path: str
    partition_values: dict[str, str | None]
    #: Bytes.
    size: int
    #: Milliseconds since 1970.
    modification_time: int
    data_change: bool
    stats: str | None = None
    tags: dict[str, str | None] | None = None


class RemovedFile(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A data file that does not belong to the table any more."""

    path: str
    data_change: bool
    #: Milliseconds since 1970.
    deletion_timestamp: int | None = None
    extended_file_metadata: bool | None = None
    partition_values: dict[str, str | None] | None = None
    size: int | None = None


class Txn(msgspec.Struct, frozen=True, rename="camel"):
    """The last batch of an owner of a writer id that is in the log."""

    app_id: str
    version: int
    last_updated: int | None = None


class CommitInfo(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What a version is, for people and for Squall. Readers ignore it."""

    timestamp: int | None = None
    operation: str = "WRITE"
    engine_info: str = "squall"
    #: The batches whose files the version adds, and those whose rows it holds in files of other batches.
    batches: tuple[str, ...] = ()
    replaces: tuple[str, ...] = ()


class DeltaAction(
    msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True
):
    """A line of a version: one of its fields is set."""

    protocol: Protocol | None = None
    meta_data: Metadata | None = None
    add: AddedFile | None = None
    remove: RemovedFile | None = None
    txn: Txn | None = None
    commit_info: CommitInfo | None = None


def encode_actions(actions: Iterable[DeltaAction]) -> bytes:
    """Return the bytes of a version."""
    return b"".join(msgspec.json.encode(action) + b"\n" for action in actions)


def decode_actions(data: bytes, path: str) -> list[DeltaAction]:
    """Return the actions of a version. Raises `ForeignLog` for what Squall does not write, and for what is damaged."""
    try:
        return [msgspec.json.decode(line, type=DeltaAction) for line in data.splitlines() if line.strip()]
    except (msgspec.DecodeError, UnicodeDecodeError) as error:  # ValidationError is a DecodeError
        raise ForeignLog(f"{path} is damaged, or was not written by Squall: {error}") from None


def uri_of(path: str) -> str:
    """Return the path of a data file as a Delta log has it."""
    return quote(path, safe=_KEPT)


def path_of(uri: str, where: str) -> str:
    """Return the path of a data file that an action names. Raises `ForeignLog` unless it is a data file of a Squall table.
    `where`: the path of the version, for the error."""
    path = unquote(uri)
    if batch_of(path.rpartition("/")[2]) is None:
        raise ForeignLog(
            f"{where} names {uri!r:.200}, which no sink of Squall has written: another program writes to this Delta table"
        )
    return path


build_type_info(DeltaAction)
