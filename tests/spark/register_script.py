"""A process whose Spark has a Hive metastore in a folder of its own, for test_table_register: `squall table --register`, and
queries by name. It writes its findings as JSON to the file that its second argument names; the first is a folder.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
from click.testing import CliRunner
from pyspark.sql import SparkSession

from squall.stores.files import Files
from squall.stores.local import LocalFiles
from squall_cli.main import squall
from squall_io.spark.reading.catalog import METASTORE
from squall_io.spark.session.sessions import shared_session
from tests.spark.batches import SinkTask
from tests.spark_classes import small_java


def parquet(**columns: Any) -> bytes:
    """A file with these columns."""
    target = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table(columns), target)
    return target.getvalue()


def main(folder: Path) -> dict[str, Any]:
    """Register tables, again and under taken names; return what was said and read."""
    files = LocalFiles(str(folder / "it's a table"))
    conf = {
        "spark.driver.memory": "512m",
        "spark.driver.extraJavaOptions": f"{small_java()} -Dderby.system.home={folder}",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.hadoop.javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={folder}/metastore;create=true",
    }
    settings = [part for each in conf.items() for part in ("--conf", "=".join(each))]

    def run(path: str, *more: str) -> list[Any]:
        options = ["table", path, "--register", *more, "--master", "local[1]"]
        done = CliRunner().invoke(squall, [*options, *settings], prog_name="squall")
        return [done.exit_code, done.stdout, done.stderr.splitlines()[-1:]]

    found: dict[str, Any] = {}
    with shared_session("local[1]", {**dict([METASTORE]), **conf}) as lease:  # the commands share it
        asked(lease.session, files, folder, run, found)
    return found


def asked(
    session: SparkSession, files: Files, folder: Path, run: Callable[..., list[Any]], found: dict[str, Any]
) -> None:
    """Register, and read by name."""

    def rows(query: str) -> list[Any]:
        return sorted(map(list, session.sql(query).collect()), key=repr)

    task = SinkTask(files, "word string NOT NULL, day string", partition_by=["day"])
    task.put({"day=x/a.parquet": parquet(word=["a", "b"])}, 2)
    session.sql("CREATE DATABASE shop")
    found["made"] = run(files.root, "shop.counts")
    found["rows"] = rows("SELECT word, day FROM shop.counts")
    task.put({"day=y/a.parquet": parquet(word=["c"])}, 1)
    wider = SinkTask(files, "word string NOT NULL, day string, more bigint", partition_by=["day"], index=1)
    wider.put({"day=__HIVE_DEFAULT_PARTITION__/a.parquet": parquet(word=["d"], more=[4])}, 1)
    found["again"] = run(files.root, "shop.counts", "--json")
    found["more rows"] = rows("SELECT word, more, day FROM shop.counts")
    found["pruned"] = rows("SELECT word FROM shop.counts WHERE day = 'y'")
    session.sql("CREATE VIEW shop.seen AS SELECT 1 AS n")
    session.sql(f"CREATE TABLE shop.other (n int) USING parquet LOCATION '{folder}/elsewhere'")
    for taken in ("seen", "other"):
        found[taken] = run(files.root, f"shop.{taken}")
    found["no database"] = run(files.root, "nowhere.counts")
    first = LocalFiles(str(folder / "first"))
    SinkTask(first, "word string", layout=1).put({"a.parquet": parquet(word=["of layout 1"])}, 1)
    found["layout 1"] = [run(first.root, "first"), rows("SELECT * FROM first")]


if __name__ == "__main__":
    Path(sys.argv[2]).write_text(json.dumps(main(Path(sys.argv[1]))))
