"""The paths and names of a table's files. No other module contains these names, except `_squall` and `_squall/tmp`, which are
those of every store.

```
PATH/                                            the table; every path below is relative to it
  data/<partition directories>/squall-<batch>-<attempt>-<n>.parquet   rows, in Hive's layout; <batch> says who wrote them
  _squall/                                       hidden from Hive, Impala and Spark by its first character
    table.json                                   what the table is: file format, partition columns
    schemas/<n>.json                             its schemas, each with more columns than the one before
    commits/<batch>.json                         a manifest entry: a batch that was committed
    claims/<writer>.<epoch>.claim.json             the owner of a writer id in this epoch
    claims/<writer>.<epoch>.fence.json             which batches of the previous epoch count
    checkpoints/<n>.json, part-*.json.gz         many entries in one file
    staging/<batch>/<attempt>/                   what Spark writes before it is moved into place
    staging/<batch>/<part>/, <index>.json        of a batch of an epoch: what Spark writes for a task, and its record
    results/<run>-<random>/, versions/<n>.json   of a table of results: what a run wrote, and the published versions
    results/<run>-<random>.seal.json             whether the run's files are published or swept: see results/versions.py
    leases/<random>.json                         a reader, and what it may still read: see `leases`
    vacuums/<n>.json                             which batches have no files any more: see `vacuums`
    tmp/<file>.<random>                          a file that is being written, before its rename
```
The Delta log, `PATH/_delta_log`, has names of its own (`delta/log_names.py`).
This is layout 2. In a table of layout 1, the partition directories are in PATH itself, where readers that know no Squall also
meet `_squall`. `table.json` says which layout a table has; that never changes.
A *writer id* is one task of one submitted topology: `<topology id>.<component>.<index>`. A *batch* is
`<writer>.<epoch>.<number>`. An *attempt* is one Spark job that writes a batch, counted from 1. Each attempt has its own folder,
so files that tasks of a failed attempt still write are never among the files of a later attempt.
The batch of an *epoch* of a topology with state is `state~~<lineage>.<component>.0.1.<epoch>`: no task claims its writer id. A
*part* of it is `<index>~<random>`, which has a folder as an attempt has (see `epochs`).
Must not know: file systems, what the files hold.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import Final

from squall.stores import paths

FOLDER: Final = paths.FOLDER
TABLE: Final = f"{FOLDER}/table.json"
SCHEMAS: Final = f"{FOLDER}/schemas"
COMMITS: Final = f"{FOLDER}/commits"
CLAIMS: Final = f"{FOLDER}/claims"
CHECKPOINTS: Final = f"{FOLDER}/checkpoints"
STAGING: Final = f"{FOLDER}/staging"
RESULTS: Final = f"{FOLDER}/results"
VERSIONS: Final = f"{FOLDER}/versions"
LEASES: Final = f"{FOLDER}/leases"
VACUUMS: Final = f"{FOLDER}/vacuums"
TMP: Final = paths.TMP
DATA: Final = "data"
#: The layouts of new tables: of rows, and of those that have none of their own.
LAYOUT: Final = 2
FIRST_LAYOUT: Final = 1

#: Prefix of the names of data files: a name that begins with "_" or "." would be hidden from readers.
DATA_PREFIX: Final = "squall-"

#: The longest topology or component name that is used in file names unchanged: HDFS and local file systems allow 255
#: bytes, and two names, three numbers and a random token must fit.
_LONGEST: Final = 72
#: Begins the writer ids of batches of epochs. No result of `safe` begins so: "~~" follows 48 characters there.
_STATE: Final = "state~~"
#: How many characters of a longer name are kept, before its digest.
_KEPT: Final = 48
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_-]")
#: A number of at most 18 digits without leading zeros: "007" would be read as 7, which names another file.
_NUMBER: Final = "(0|[1-9][0-9]{0,17})"
#: A name as `safe` makes it: it holds neither "/" nor ".".
_SAFE: Final = "([A-Za-z0-9_~-]*)"
_IN_EPOCH: Final = rf"{_SAFE}\.{_SAFE}\.{_NUMBER}\.{_NUMBER}"
_BATCH: Final = re.compile(rf"{_IN_EPOCH}\.{_NUMBER}(?:\.json)?")
_DATA_FILE: Final = re.compile(rf"{DATA_PREFIX}{_IN_EPOCH}\.{_NUMBER}-[^-]*-[^-]*")
_CLAIM: Final = re.compile(rf"{_IN_EPOCH}\.(claim|fence)\.json")
_PART: Final = re.compile(rf"{CHECKPOINTS}/part-{_NUMBER}-[0-9a-f]+\.json\.gz")
_OF_PART: Final = re.compile(rf"{_NUMBER}(?:~[0-9a-f]+|\.json)")
_NUMBERED: Final = re.compile(rf"{_NUMBER}\.json")


def safe(name: str) -> str:
    """Return a form of a name that is safe in file names: only letters, digits, "_", "-" and "~", and at most 72 characters.

    Different names have different forms. Each UTF-8 byte of any other character becomes "~" and two hexadecimal digits; the end
    of a long name becomes a digest.
    """
    text = _UNSAFE.sub(lambda found: "".join(f"~{byte:02x}" for byte in found.group().encode()), name)
    if len(text) <= _LONGEST:
        return text
    return f"{text[:_KEPT]}~~{hashlib.sha256(name.encode()).hexdigest()[:20]}"


@dataclass(frozen=True, order=True)
class WriterId:
    """One task of one submitted topology, in parts that are safe in file names. The task's files are stored under this key."""

    topology_id: str
    component: str
    index: int

    @classmethod
    def of(cls, topology_id: str, component: str, index: int) -> WriterId:
        """Return the writer id of a task, made from its names."""
        return cls(safe(topology_id), safe(component), index)

    def __str__(self) -> str:
        return f"{self.topology_id}.{self.component}.{self.index}"


#: The writer id of those that replace batches of a table, as a compaction does: one at a time. No result of `safe` begins so.
REWRITER: Final = WriterId("rewrite~~", "table", 0)


@dataclass(frozen=True, order=True)
class BatchName:
    """The name of a batch that an owner of a writer id has written or will write. `number` counts from 1 in each epoch."""

    writer_id: WriterId
    epoch: int
    number: int

    def __str__(self) -> str:
        return f"{self.writer_id}.{self.epoch}.{self.number}"

    @property
    def commit(self) -> str:
        """The path of the batch's manifest entry."""
        return f"{COMMITS}/{self}.json"

    @property
    def staging(self) -> str:
        """The folder of the batch's attempts."""
        return f"{STAGING}/{self}"

    def attempt(self, number: int | str) -> str:
        """Return the folder for Spark's `number`-th attempt to write the batch, or for a part."""
        return f"{self.staging}/{number}"

    def part_record(self, index: int) -> str:
        """Return the path of the record of the part of a task, in a batch of an epoch."""
        return f"{self.staging}/{index}.json"

    @property
    def data_prefix(self) -> str:
        """The prefix of the names of the batch's data files; no other batch has this prefix."""
        return f"{DATA_PREFIX}{self}-"

    def data_file(self, attempt: int | str, number: int, suffix: str) -> str:
        """Return the name of the data file of this number of an attempt or a part; `suffix` includes its dot:
        ".snappy.parquet"."""
        return f"{self.data_prefix}{attempt}-{number:05d}{suffix}"


def epoch_batch(lineage: str, component: str, epoch: int) -> BatchName:
    """Return the batch of all rows that the tasks of a sink get in an epoch."""
    return BatchName(WriterId(_STATE + safe(lineage), safe(component), 0), 1, epoch)


def part_index(name: str) -> int | None:
    """Return the index of the task whose part or part's record has this name; None for any other name."""
    found = _OF_PART.fullmatch(name)
    return found and int(found[1])


def data_folder(layout: int) -> str:
    """Return the folder of the data files and their partition directories; "" is the table's own folder."""
    return "" if layout == FIRST_LAYOUT else DATA


def place_in(folder: str, path: str) -> str:
    """Return the path of what is at `path` below a folder; both may be ""."""
    return f"{folder}/{path}".strip("/")


def claim_path(writer_id: WriterId, epoch: int) -> str:
    """Return the path of the claim of an epoch."""
    return f"{CLAIMS}/{writer_id}.{epoch}.claim.json"


def fence_path(writer_id: WriterId, epoch: int) -> str:
    """Return the path of the fence of an epoch, which decides on the batches of the previous epoch."""
    return f"{CLAIMS}/{writer_id}.{epoch}.fence.json"


def numbered(folder: str, number: int) -> str:
    """Return the path of a numbered record, such as a schema, in the folder of its kind."""
    return f"{folder}/{number}.json"


def batch_of(name: str) -> BatchName | None:
    """Return the batch that `<batch>`, `<batch>.json` or `squall-<batch>-1-00000.parquet` names; None for any other name."""
    # The pattern of batches comes first, since a topology may be called "squall-something".
    if (found := _BATCH.fullmatch(name) or _DATA_FILE.fullmatch(name)) is None:
        return None
    topology_id, component, *numbers = found.groups()
    index, epoch, number = map(int, numbers)
    return BatchName(WriterId(topology_id, component, index), epoch, number)


def claim_of(name: str) -> tuple[WriterId, int, str] | None:
    """Return writer id, epoch and "claim" or "fence" from the name of a file in the claims folder; None for any other name."""
    found = _CLAIM.fullmatch(name)
    return found and (WriterId(found[1], found[2], int(found[3])), int(found[4]), found[5])


def is_part(path: str) -> bool:
    """Return whether a path is that of a part of a checkpoint."""
    return _PART.fullmatch(path) is not None


def number_of(name: str) -> int | None:
    """Return the number that `<n>.json` names; None for any other name."""
    found = _NUMBERED.fullmatch(name)
    return found and int(found[1])


def is_hidden(name: str) -> bool:
    """Return whether Spark's readers ignore a file or folder of this name: `_temporary`, `.part-0.crc`, but not `_day=1`."""
    return name.startswith(".") or (name.startswith("_") and "=" not in name)
