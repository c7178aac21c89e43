"""What a process can do by Spark Connect with local files, also if the server is killed while a batch is written.

A part of tests/hdfs/connect_hdfs_script.py, which starts the server.
"""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from local_cluster.testing import run_bolt
from squall_cli.main import squall
from squall_io.spark import SparkSink, read_committed
from squall_io.spark.rows.schema import parse_schema
from squall_io.spark.session.request import NoConnectServer, NoSession, SessionRequest
from squall_io.spark.session.sessions import SessionMismatch, shared_session
from squall_io.spark.sink.writing import WriteAs
from tests.spark.connect_servers import ConnectServer
from tests.spark.random_rows import rows_of
from tests.spark.sessions_script import store_numbers
from tests.spark.test_formats import SCHEMAS, numbered, round_trip

#: Rows of a batch that Spark Connect would send before the call that writes them, and keep.
MANY = 20_000


def refusals(url: str) -> dict[str, str]:
    """The message when there is no session."""
    said = {}
    wrong = {
        "address": SessionRequest.of("sc://", {}),
        "setting": SessionRequest.of(url, {"spark.driver.memory": "1g"}),
        "server": SessionRequest.of("sc://127.0.0.1:1/;token=hidden", {}),
    }
    for name, request in wrong.items():
        try:
            shared_session(request.master, request.conf)
        except (NoConnectServer, NoSession) as error:
            said[name] = f"{type(error).__name__}: {error}"
    return said


def formats(session: Any, folder: Path) -> list[str]:
    """Values that changed on their way through a session. (tests/spark/test_formats.py has all formats, without a server.)"""
    found = []
    for file_format in ("parquet", "json"):
        schema = parse_schema(SCHEMAS[file_format])
        rows = numbered(rows_of(schema, 60, seed=3))
        found += round_trip(session, folder / file_format, WriteAs(file_format, (), None), schema, rows)
    return found


def store_many(url: str, table: Path, session: Any) -> tuple[int, int, int]:
    """Store a batch of some megabytes; return the numbers of acked tuples, stored rows, and files."""
    given = [(number, f"word {number}" * 8) for number in range(MANY)]
    bolt = SparkSink(str(table), "number int, word string", batch_size=MANY, batch_interval=60, master=url)
    acked = len(run_bolt(bolt, given, source_fields=("number", "word")).acked())
    return acked, read_committed(session, str(table)).count(), len(list((table / "data").glob("*.parquet")))


def reprocess(url: str, folder: Path) -> dict[str, Any]:
    """Have the command reprocess the numbers with the existing session; return its output."""
    tables = ["--input", str(folder / "numbers"), "--output", str(folder / "places")]
    query = "select place, count(*) as numbers from rows group by place"
    arguments = ["reprocess", "--sql", query, *tables, "--master", url, "--json"]
    done = CliRunner().invoke(squall, arguments, prog_name="squall")
    assert done.exit_code == 0, done.output
    outcome: dict[str, Any] = json.loads(done.stdout)
    return outcome


def examine(server: ConnectServer, folder: Path) -> dict[str, Any]:
    """Have sinks store rows by a server, kill it, and start it again; return the findings."""
    found: dict[str, Any] = {"refused": refusals(server.url)}
    with shared_session(server.url) as lease:
        try:
            shared_session("local[1]")
        except SessionMismatch as error:
            found["mismatch"] = str(error)
        found["differences"] = formats(lease.session, folder)
        found["many"] = store_many(server.url, folder / "many", lease.session)
        first = lease.session
        back = threading.Thread(target=server.start)

        def trouble() -> None:
            server.kill()
            back.start()

        found["settled"] = store_numbers(folder / "numbers", server.url, {}, trouble)
        back.join()
        lease.renew(first)
        found["renewed"] = lease.session is not first
        rows = read_committed(lease.session, str(folder / "numbers"), key="number").collect()
        found["numbers"] = sorted(row["number"] for row in rows)
        found["reprocessed"] = reprocess(server.url, folder)
        found["counted"] = read_committed(lease.session, str(folder / "numbers")).count()
    return found
