"""The names of the files of a Delta log, relative to the table: https://github.com/delta-io/delta/blob/master/PROTOCOL.md.

```
PATH/_delta_log/<version, 20 digits>.json                  what one version adds and removes
PATH/_delta_log/<version, 20 digits>.checkpoint.parquet    all that holds at this version
PATH/_delta_log/_last_checkpoint                           where readers begin
```
Must not know: what the files hold.
"""

from __future__ import annotations

import re
from typing import Final

FOLDER: Final = "_delta_log"
LAST_CHECKPOINT: Final = f"{FOLDER}/_last_checkpoint"
_VERSION: Final = re.compile(r"([0-9]{20})\.json")
_CHECKPOINT: Final = re.compile(r"([0-9]{20})\.checkpoint\.parquet")


def version_path(version: int) -> str:
    """Return the path of a version."""
    return f"{FOLDER}/{version:020d}.json"


def checkpoint_path(version: int) -> str:
    """Return the path of the checkpoint of a version."""
    return f"{FOLDER}/{version:020d}.checkpoint.parquet"


def version_of(name: str) -> int | None:
    """Return the version that a file of the log holds; None for any other file."""
    found = _VERSION.fullmatch(name)
    return found and int(found[1])


def checkpoint_of(name: str) -> int | None:
    """Return the version of a checkpoint, by the name of its file; None for any other file."""
    found = _CHECKPOINT.fullmatch(name)
    return found and int(found[1])


def number_in(name: str) -> int | None:
    """Return the version of a file of the log, whether it is a version or a checkpoint; None for any other file."""
    version = version_of(name)
    return checkpoint_of(name) if version is None else version
