"""Makes the fixture of a table of layout 2: `python -m tests.frozen.make_layouts OLD`. OLD: the files of commit `REFUSES`, whose
code is asked what it says of that table. Must not know: tests.
"""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import suppress
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from squall.stores.local import LocalFiles
from squall_io.spark.delta.following import catch_up, enable
from tests.frozen import current_tables, frozen_data
from tests.frozen.frozen_data import LAYOUTS
from tests.frozen.plain_values import plain
from tests.spark.batches import SinkTask

REFUSES = "5c63fa84"
DDL = "word string, day string"
TOLD = ("table", "schema", "state", "summary", "claims", "verification")
#: Asks the code of `REFUSES`, in its folder.
OLD = """
import json, sys
from squall.stores.local import LocalFiles
from squall_io.spark.manifest.tables import ROWS, TableRecord, open_table, read_table
from squall_io.spark.delta.following import catch_up, enable
from squall_io.spark.reading.committed import choose
from squall_io.spark.reading.summary import table_summary, verify
from squall_cli.spark.table_sweep import sweep
from tests.spark.batches import SinkTask
files = LocalFiles(sys.argv[1])
calls = {
    "a sink": lambda: SinkTask(files, "word string, day string", partition_by=["day"]),
    "a sink of another format": lambda: SinkTask(files, "word string, day string", file_format="orc"),
    "read_committed": lambda: choose(files),
    "CommittedRows": lambda: read_table(files),
    "squall table": lambda: table_summary(files),
    "squall table --verify": lambda: verify(files),
    "squall table --sweep": lambda: sweep(files, 0.0, False),
    "squall table --enable-delta": lambda: enable(files, lambda: 1.0),
    "a follower of the Delta log": lambda: catch_up(files, lambda: 1.0),
}
said = {}
for name, call in calls.items():
    try:
        said[name] = f"no error: {call()}"
    except Exception as error:
        said[name] = f"{type(error).__name__}: {error}"
print(json.dumps(said))
"""


class Stopped(Exception):
    """A task was killed."""


def make(folder: Path) -> None:
    """A table with committed batches, one that was moved and given up, and one that is being written."""
    files = LocalFiles(str(folder))
    moments = count(1_800_000_000)
    first = SinkTask(files, DDL, partition_by=["day"])
    enable(files, lambda: float(next(moments)))
    first.put({"day=1/a.parquet": b"first of 1", "day=2/a.parquet": b"first of 2"}, 2, float(next(moments)))
    first.put({"day=a%3Ab/a.snappy.parquet": b"second"}, 1, float(next(moments)))
    name = first.next_name()
    files.put_if_absent(f"{name.attempt(1)}/day=1/a.parquet", b"given up")
    commit = first.commit_of(name, 1)

    def stop(step: str) -> None:
        if step == "publish":
            raise Stopped

    commit.at = stop
    with suppress(Stopped):
        commit.run()
    second = SinkTask(files, f"{DDL}, more bigint", partition_by=["day"], incarnation=(2, 0))
    second.put({"day=2/a.parquet": b"of the next owner"}, 5, float(next(moments)))
    catch_up(files, lambda: float(next(moments)))
    files.put_if_absent(f"{second.next_name().attempt(1)}/day=3/a.parquet", b"under way")


def main(old: str) -> None:
    """Write the fixture of this commit."""
    with TemporaryDirectory() as folder:
        make(Path(folder))
        found = sorted(Path(folder).rglob("*"))
        files = {
            str(each.relative_to(folder)): each.read_bytes().decode("latin-1")
            for each in found
            if each.is_file()
        }
        empty = [
            str(each.relative_to(folder)) for each in found if each.is_dir() and not list(each.iterdir())
        ]
        table: dict[str, Any] = {"files": files, "folders": empty, "told": {}}
        for what in TOLD:
            told = json.dumps(plain(current_tables.READ_TABLE[what](current_tables.files_at(Path(folder)))))
            table["told"][what] = json.loads(told.replace(folder, "PATH"))
        command = [sys.executable, "-c", OLD, folder]
        done = subprocess.run(
            command, cwd=old, env={"PYTHONPATH": old, "SQUALL_PURE": "1"}, capture_output=True, check=True
        )
        refused = json.loads(done.stdout.decode().replace(folder, "PATH"))
    print(frozen_data.save("layouts", {"table": table, "refused": refused}, LAYOUTS))


if __name__ == "__main__":
    main(sys.argv[1])
