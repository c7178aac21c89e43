"""The checkpoints of a Delta log: all that holds at a version, in one Parquet file, where readers begin.

Source: https://github.com/delta-io/delta/blob/master/PROTOCOL.md, "V1 Spec", "Checkpoint Schema". Needs PyArrow.
Must not know: the manifest, when checkpoints are made.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from squall.stores.files import Files
from squall_io.spark.delta import log_names
from squall_io.spark.delta.actions import DeltaAction, ForeignLog, encode_actions

if TYPE_CHECKING:
    import pyarrow

#: The fields of `DeltaAction` that a checkpoint has as columns.
_COLUMNS: Final = ("txn", "add", "remove", "metaData", "protocol")
#: The fields of actions that are maps.
_MAPS: Final = frozenset({"partitionValues", "configuration", "options"})


def write_checkpoint(files: Files, version: int, actions: Sequence[DeltaAction]) -> None:
    """Write the checkpoint of a version, which holds `actions`, and tell readers to begin there.

    Two processes that write the checkpoint of the same version write the same. The hint is replaced, not put: where two writers
    replace it in the wrong order, readers begin a little earlier.
    """
    files.put_if_absent(log_names.checkpoint_path(version), encode_checkpoint(actions))
    hint = {"version": version, "size": len(actions)}
    files.replace(log_names.LAST_CHECKPOINT, json.dumps(hint).encode())


def encode_checkpoint(actions: Iterable[DeltaAction]) -> bytes:
    """Return the bytes of a checkpoint."""
    import pyarrow
    import pyarrow.parquet

    rows = [msgspec.json.decode(line) for line in encode_actions(actions).splitlines()]
    table = pyarrow.Table.from_pylist([_with_pairs(row) for row in rows], schema=_schema())
    target = io.BytesIO()
    pyarrow.parquet.write_table(table, target)
    return target.getvalue()


def decode_checkpoint(data: bytes, path: str) -> list[DeltaAction]:
    """Return the actions of a checkpoint. Raises `ForeignLog`."""
    import pyarrow
    import pyarrow.parquet

    try:
        rows = pyarrow.parquet.read_table(io.BytesIO(data)).to_pylist()
        return [msgspec.convert(_without_nulls(row), DeltaAction) for row in rows]
    except (pyarrow.ArrowException, msgspec.ValidationError, ValueError, TypeError) as error:
        raise ForeignLog(f"{path} is damaged, or was not written by Squall: {error}") from None


def _with_pairs(value: Any) -> Any:
    """Return an action whose maps are lists of pairs, as PyArrow takes them."""
    if not isinstance(value, dict):
        return value
    return {name: list(each.items()) if name in _MAPS else _with_pairs(each) for name, each in value.items()}


def _without_nulls(value: Any) -> Any:
    """Return the action of a row; PyArrow gives null for each field that is not set, and maps as lists of pairs."""
    if not isinstance(value, dict):
        return value
    kept = {name: each for name, each in value.items() if each is not None}
    return {name: dict(each) if name in _MAPS else _without_nulls(each) for name, each in kept.items()}


def _schema() -> pyarrow.Schema:
    import pyarrow

    text, whole, flag = pyarrow.string(), pyarrow.int64(), pyarrow.bool_()
    texts = pyarrow.map_(text, text)
    kinds: dict[str, dict[str, pyarrow.DataType]] = {
        "txn": {"appId": text, "version": whole, "lastUpdated": whole},
        "add": {
            "path": text,
            "partitionValues": texts,
            "size": whole,
            "modificationTime": whole,
            "dataChange": flag,
            "stats": text,
        },
        "remove": {"path": text, "deletionTimestamp": whole, "dataChange": flag, "size": whole},
        "metaData": {
            "id": text,
            "name": text,
            "description": text,
            "format": pyarrow.struct({"provider": text, "options": texts}),
            "schemaString": text,
            "partitionColumns": pyarrow.list_(text),
            "createdTime": whole,
            "configuration": texts,
        },
        "protocol": {
            "minReaderVersion": pyarrow.int32(),
            "minWriterVersion": pyarrow.int32(),
            "readerFeatures": pyarrow.list_(text),
            "writerFeatures": pyarrow.list_(text),
        },
    }
    return pyarrow.schema([(kind, pyarrow.struct(kinds[kind])) for kind in _COLUMNS])
