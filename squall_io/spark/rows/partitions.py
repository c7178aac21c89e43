"""The partition values in the path of a data file, which are not among the columns of the file.

Must not know: files, tables.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import date
from typing import Any, Final
from urllib.parse import unquote

from squall_io.spark.rows.formats import NULL_PARTITION
from squall_io.spark.rows.types import WHOLE, Column, Simple, same_name


def partition_of(path: str) -> dict[str, str]:
    """Return the partition values in a data file's path as text, by lower-case column name."""
    folders = (folder.partition("=") for folder in path.split("/")[:-1])
    return {same_name(unquote(name)): unquote(text) for name, equal, text in folders if equal}


def partition_values(path: str, partition_by: Sequence[str]) -> dict[str, str | None]:
    """Return the values of the partition columns as text; None is null."""
    found = partition_of(path)
    texts = {name: found[same_name(name)] for name in partition_by}
    return {name: None if text == NULL_PARTITION else text for name, text in texts.items()}


def partition_value(text: str, column: Column) -> object:
    """Return a column's value from the name of a partition's folder."""
    if text in (NULL_PARTITION, ""):
        return None
    kind = column.type
    assert isinstance(kind, Simple)
    return _VALUES[kind.name](text)


_VALUES: Final[Mapping[str, Callable[[str], Any]]] = {
    **dict.fromkeys(WHOLE, int),
    "boolean": lambda text: text.lower() == "true",
    "string": str,
    "date": date.fromisoformat,
}
