"""Deliberate differences of the current code from the commit's: entries of the frozen tables that do not hold any more.

Readers have become stricter: a value of another type than its field's is refused, with the error of such records, and so is a
name in a table's record that leads out of the table or names no format of Squall's. No writer ever wrote one. Before, a reader
took it as it was, made something else of it, or crashed. `DIFFERENCES` lists the fields, format 6 of a topology's record, and
format 2 of entries and checkpoints;
`check_mutations` fails if one of them changes no outcome of its table. Everything else must be as before.
Must not know: how anything is read.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from squall.stores.paths import leaves_table
from squall_io.spark.manifest.layout import RESULTS, is_part

#: The types of fields.
_TYPES: Final[Mapping[str, Callable[[Any], bool]]] = {
    "text": lambda value: isinstance(value, str),
    "text or null": lambda value: value is None or isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: type(value) is int,
    "integer or null": lambda value: value is None or type(value) is int,
    "number": lambda value: type(value) in (int, float),
    "number or null": lambda value: value is None or type(value) in (int, float),
    "list": lambda value: isinstance(value, list),
    "list or null": lambda value: value is None or isinstance(value, list),
    "list of three, or null": lambda value: value is None or (isinstance(value, list) and len(value) == 3),
    "object": lambda value: isinstance(value, dict),
    "finite": lambda value: type(value) is not float or math.isfinite(value),
    "kind of table": lambda value: value in ("rows", "versions"),
    "format": lambda value: value in ("parquet", "orc", "json", "csv"),
    "path": lambda value: isinstance(value, str) and not leaves_table(value),
    "path of results": lambda value: isinstance(value, str) and value.startswith(f"{RESULTS}/"),
    "part": lambda value: isinstance(value, str) and is_part(value),
    "attempt": lambda value: (
        isinstance(value, str) and re.fullmatch("[0-9a-f]{16}-[0-9a-f]{16}", value) is not None
    ),
    # Topologies' records of format 6 are read as well.
    "format of before": lambda value: type(value) is not int or value != 6,
    # Entries whose files have parts, and checkpoints with such entries, are of format 2.
    "format without parts": lambda value: type(value) is not int or value != 2,
    # No value at all: the JSON itself is nested too deeply for its parser.
    "readable": lambda value: True,
}


@dataclass(frozen=True)
class Difference:
    """A field whose values of other types are refused by now, or with another error."""

    of: str
    """The fixture, such as `orders`."""
    was: str
    """The outcome before: `read`, or an error's name."""
    now: str
    """The error now."""
    type: str
    """The field's type: one of `_TYPES`."""
    field: str
    """The path of the field, such as `placements.*.slot`; `*` is each element of a list or an object."""

    def explains(self, body: Any, was: str, now: str) -> bool:
        """Whether these outcomes differ because of a value in this field."""
        fits = _TYPES[self.type]
        return (
            self.was == was
            and self.now == now
            and any(not fits(value) for value in _values_at(body, self.field.split(".")))
        )


def _values_at(body: Any, path: list[str]) -> Iterator[Any]:
    """The values at a path, which need not exist."""
    if not path:
        yield body
        return
    elements: Mapping[str, Any] = body if isinstance(body, dict) else {}
    if isinstance(body, list):
        elements = {str(at): each for at, each in enumerate(body)}
    for name, each in elements.items():
        if path[0] in ("*", name):
            yield from _values_at(each, path[1:])


#: (Fixture, outcome before, outcome now) -> type -> fields.
_OTHERS: Final[Mapping[tuple[str, str, str], Mapping[str, str]]] = {
    ("TopologyRecord", "BadRecord", "read"): {"format of before": "format"},
    ("orders", "read", "BadFile"): {
        "text": "topology_id topology worker supervisor asked placements.*.worker placements.*.supervisor addresses.*.*"
        " tasks.*.1 bundle bind host",
        "integer": "number incarnation.* version placements.*.slot placements.*.incarnation.* placements.*.tasks.*"
        " tasks.*.0 finished.* ports.* seed",
        "number": "lease_secs",
        "list": "placements placements.*.tasks tasks finished",
        "object": "conf component_confs component_confs.*",
    },
    ("pulse", "read", "BadFile"): {
        "text": "asked address.* executing.0",
        "text or null": "crash",
        "boolean": "opened ended drained stopped",
        "integer": "pid started incarnation.* number orders version finished.* counters executing.1",
        "list": "finished",
        "list of three, or null": "executing",
    },
    ("end", "read", "BadFile"): {"text": "reason", "integer": "pid incarnation.* status"},
    **{
        (file, "crash RecursionError", now): {"readable": "file"}
        for file, now in {
            **dict.fromkeys(("orders", "pulse", "end", "keys"), "BadFile"),
            **dict.fromkeys(("lease", "process", "needs"), "read"),  # as if there were no file
        }.items()
    },
    ("lease", "crash OverflowError", "read"): {"finite": "number"},
    ("counters", "read", "BadCounters"): {"list": "reports.*.frames"},
    ("counters of a topology", "read", "BadCounters"): {"list": "base.reports.*.frames"},
    ("error report", "read", "crash ValueError"): {"list": "frames"},  # the error that its reader promises
    ("table", "read", "UnreadableRecord"): {
        "text": "holds file_format partition_by.*",
        "list": "partition_by",
        "kind of table": "holds",
        "format": "file_format",
    },
    ("commit", "read", "UnreadableRecord"): {
        "text": "topology topology_id component files.*.path files.*.digest replaces.*",
        "integer": "incarnation.* schema rows files.*.size",
        "number": "committed",
        "list": "files replaces",
        "path": "files.*.path",
    },
    ("commit", "UnreadableRecord", "read"): {"format without parts": "format"},
    ("checkpoint", "UnreadableRecord", "read"): {"format without parts": "format"},
    ("commit", "crash AttributeError", "UnreadableRecord"): {"text": "batch"},
    ("commit", "crash OverflowError", "UnreadableRecord"): {
        "integer": "incarnation.* schema rows files.*.size"
    },
    ("claim", "read", "UnreadableRecord"): {
        "text": "owner",
        "integer": "incarnation.*",
        "number": "since",
    },
    ("claim", "crash OverflowError", "UnreadableRecord"): {"integer": "incarnation.*"},
    ("fence", "read", "UnreadableRecord"): {"integer": "counts.*", "list": "counts"},
    ("fence", "crash OverflowError", "UnreadableRecord"): {"integer": "counts.*"},
    ("checkpoint", "read", "UnreadableRecord"): {"integer": "parts.*.entries", "list": "parts"},
    ("checkpoint", "crash OverflowError", "UnreadableRecord"): {"integer": "parts.*.entries"},
    ("checkpoint", "FilesRefused", "UnreadableRecord"): {
        "text": "parts.*.path",
        "part": "parts.*.path",
    },  # no file is asked for
    ("checkpoint", "crash UnicodeEncodeError", "UnreadableRecord"): {"part": "parts.*.path"},
    ("version", "read", "UnreadableRecord"): {
        "text": "run attempt command job code inputs.*.path inputs.*.snapshot table.file_format table.partition_by.* schema"
        " files.*.path files.*.digest",
        "boolean": "pruned",
        "integer": "number rows files.*.size counts.*",
        "integer or null": "inputs.*.rows",
        "number": "published",
        "number or null": "inputs.*.since inputs.*.until",
        "list": "inputs table.partition_by files",
        "object": "settings counts",
        "attempt": "attempt",
        "format": "table.file_format",
        "path of results": "files.*.path",
    },
    ("reader", "ReaderMismatch", "UnreadableRecord"): {"text": "topology component reads"},
    ("reader's files", "read", "UnreadableRecord"): {
        "text": "files.*.0",
        "integer": "before files.*.1",
        "list": "files",
    },
    ("reader's files", "crash OverflowError", "UnreadableRecord"): {"integer": "before files.*.1"},
    ("reader's position", "read", "UnreadableRecord"): {
        "text": "begun.*.0",
        "integer": "index parallelism done.*.*.0 done.*.*.1 begun.*.1",
        "list": "done.* begun",
    },
    ("reader's position", "crash OverflowError", "UnreadableRecord"): {
        "integer": "index parallelism done.*.*.0 done.*.*.1 begun.*.1"
    },
}

DIFFERENCES: Final = tuple(
    Difference(*outcomes, kind, field)
    for outcomes, fields in _OTHERS.items()
    for kind, names in fields.items()
    for field in names.split()
)

_DETAILS: Final = (
    "/body/paths//api/v1/topologies/{name}/get/responses/200/content/application/json/schema/properties"
)
_COUNTERS: Final = _DETAILS.replace("{name}/get", "{name}/counters/get")
#: HTTP answers that have changed: all places where they lack something, as `http_normal.missing` shows them. The OpenAPI
#: document is made from the structs of the answers, which say `str` for a kind, and `float | None` for a time that an answer of
#: an earlier release may lack. All problems of a request are named, not only the first one.
ANSWERS: Final[Mapping[str, list[str]]] = {
    "openapi": [
        f"{_DETAILS}/state_secs/type is gone",
        f"{_DETAILS}/components/additionalProperties/properties/kind/enum is gone",
        f"{_COUNTERS}/components/additionalProperties/properties/kind/enum is gone",
    ],
    "reported: reports that are none": [
        "/body/error/problems was ['<text>'] and is ['<text>', '<text>', '<text>', '<text>']"
    ],
}
#: Pickles with names that have moved.
PICKLES: Final = {
    "local_cluster:WorkerView": "what `LocalCluster.workers` shows of a moment; nothing of Squall's stores one",
}
#: Errors that are not part of the user's API and have been renamed: their names and base classes now. (Two classes were
#: called `FileMissing`; the fixture of each has the base classes of both.)
RENAMED_ERRORS: Final[Mapping[str, list[str]]] = {
    "nimbus.files:FileMissing": ["NoSuchFile", "SquallError"],
    "nimbus.state:BadState": ["BadStateDirectory", "SquallError"],
    "squall_io.spark.manifest.files:FileMissing": ["AbsentFile", "FilesError", "SquallError"],
    "supervisor.identity:BadState": ["BadStateDirectory", "SquallError"],
}


def completed(record: bytes) -> bytes:
    """A record of a store in which each component has all settings of its topology. No submission made others."""
    body = json.loads(record)
    for component, own in body.get("component_confs", {}).items():
        body["component_confs"][component] = {**body["conf"], **own}
    return json.dumps(body).encode()


def reasons(of: str, data: bytes, was: Any, now: Any) -> list[Difference]:
    """The deliberate differences that explain another outcome of reading these bytes; none if it is a mistake."""
    kinds = _kind_of(was), _kind_of(now)
    try:
        body = json.loads(data)
    except ValueError:
        return []
    except RecursionError:
        deep = (each for each in DIFFERENCES if each.of == of and each.type == "readable")
        return [each for each in deep if (each.was, each.now) == kinds]
    return [each for each in DIFFERENCES if each.of == of and each.explains(body, *kinds)]


def _kind_of(outcome: Any) -> str:
    """One word for an outcome: `read`, or the error's name."""
    return outcome if isinstance(outcome, str) and outcome != "same" else "read"
