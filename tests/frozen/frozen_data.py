"""The files of frozen fixtures, and how to read and write them: `data/<commit>/<name>.json`, a line for each case.

The code of commit 6407a8e made them, by programs that the history has: `git show 75128b7c:tests/frozen/make_fixtures.py`.
The code of commit `EPOCHS` made those of the state of topologies, by `git show 5f65495d:tests/frozen/make_epochs.py`.
Those of states with key groups are of commit `GROUPS`, by `git show 8c0ed31b:tests/frozen/make_groups.py`.
Those of records of format 6 are of commit `DIFFERENCES`, by `git show 2182553d:tests/frozen/make_records.py`.
Those of a table of layout 2 are of commit `LAYOUTS`, by `git show 9bae31c1:tests/frozen/make_layouts.py`.
Must not know: their contents.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

#: The commit whose code made them.
COMMIT: Final = "6407a8e"
EPOCHS: Final = "07ba972f"
GROUPS: Final = "3bccb53e"
DIFFERENCES: Final = "6db3ec3d"
LAYOUTS: Final = "9bae31c1"
DATA: Final = Path(__file__).parent / "data" / COMMIT


def load(name: str, commit: str = COMMIT) -> Any:
    """The JSON values of a file of fixtures."""
    return json.loads((DATA.with_name(commit) / f"{name}.json").read_text(encoding="utf-8"))


def save(name: str, values: Mapping[str, Any], commit: str = COMMIT) -> Path:
    """Write a file of fixtures: an object whose entries, and those of its objects, have a line each."""
    path = DATA.with_name(commit) / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(_written(values, depth=2) + "\n", encoding="utf-8")
    return path


def _written(value: Any, depth: int) -> str:
    if not depth or not isinstance(value, Mapping) or not value:
        return json.dumps(value, ensure_ascii=True, separators=(",", ":"))
    rows = [f"{json.dumps(name)}: {_written(each, depth - 1)}" for name, each in value.items()]
    return "{\n" + ",\n".join(rows) + "\n}"


def as_bytes(text: str) -> bytes:
    """The bytes of a text of one character each."""
    return text.encode("latin-1")
