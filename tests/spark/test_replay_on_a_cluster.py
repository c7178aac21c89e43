"""A replay on a standalone Spark cluster: master, worker and executors are processes of their own, without the user's files."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import IO, TYPE_CHECKING

import pytest

from tests.spark.connect_servers import run_script
from tests.spark.replays_anywhere import replayed
from tests.spark.test_replay_command_spark import BOLTS, TOPOLOGY
from tests.spark_classes import small_java
from tests.zookeeper_servers import free_ports

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
#: Longest start of a Java server in seconds, on a busy machine.
PATIENCE = 120.0


class Cluster:
    """A master and a worker, which has room for two executors."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.processes: list[subprocess.Popen[bytes]] = []
        self.files: list[IO[bytes]] = []
        [self.port] = free_ports(1)
        self.url = f"spark://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start all of it, and wait until the worker is registered with the master."""
        self.run("master", "master.Master", "--port", str(self.port), "--webui-port", "0")
        self.wait_for("master", r"I have been elected leader")
        room = ("--cores", "2", "--memory", "2g", "--work-dir", str(self.folder / "work"))
        self.run("worker", "worker.Worker", *room, self.url)
        self.wait_for("master", r"Registering worker")

    def run(self, name: str, main: str, *arguments: str) -> None:
        import pyspark

        program = str(Path(pyspark.__file__).parent / "bin" / "spark-class")
        environment = {
            **os.environ,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYTHONPATH": str(ROOT),  # as if Squall were installed there
            "SPARK_DAEMON_JAVA_OPTS": small_java(),
            "SPARK_DAEMON_MEMORY": "128m",
            "SPARK_NO_DAEMONIZE": "1",
        }
        log = open(self.folder / f"{name}.log", "wb")  # noqa: SIM115 - closed in stop()
        self.files.append(log)
        command = [program, f"org.apache.spark.deploy.{main}", "--host", "127.0.0.1", *arguments]
        self.processes.append(
            subprocess.Popen(
                command,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
                cwd="/",
                start_new_session=True,
            )
        )

    def wait_for(self, name: str, pattern: str) -> None:
        """Wait until a process has logged a text."""
        until = time.monotonic() + PATIENCE
        log = self.folder / f"{name}.log"
        while re.search(pattern, log.read_text()) is None:
            assert all(process.poll() is None for process in self.processes), log.read_text()
            assert time.monotonic() < until, log.read_text()
            time.sleep(0.1)

    def stop(self) -> None:
        """End every process and its children."""
        for process in reversed(self.processes):
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
        for process in self.processes:
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        for file in self.files:
            file.close()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    made = Cluster(tmp_path_factory.mktemp("cluster"))
    with ExitStack() as stack:
        stack.callback(made.stop)
        made.start()
        yield made


#: What makes executors small, and keeps everything on the loopback.
SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.driver.extraJavaOptions": small_java(),
    "spark.executor.extraJavaOptions": small_java(),
    "spark.sql.shuffle.partitions": "2",
    "spark.locality.wait": "0",
}


#: The first task to count a word ends its Python worker, so that Spark tries it again; each reports where it ran.
DIES_ONCE = """
import os

class DiesOnce(Count):
    def prepare(self, context):
        super().prepare(context)
        self.emit((os.getcwd(), 0))
    def execute(self, tup):
        super().execute(tup)
        try:
            os.close(os.open({mark!r}, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return
        os._exit(1)
"""


@pytest.mark.timeout(700)
def test_a_replay_ships_its_modules_and_a_retried_task_counts_once(cluster: Cluster, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    mark = tmp_path / "died"
    (home / "replayed.py").write_text(TOPOLOGY.replace("Count", "DiesOnce"))
    (home / "replayed_bolts.py").write_text(BOLTS + DIES_ONCE.format(mark=str(mark)))
    (home / "lines.txt").write_text("a b\na c a\n" * 50)
    settings = {**SETTINGS, "spark.speculation": "true"}
    command = [
        *(sys.executable, "-m", "squall_cli", "replay", "replayed.py", "--master", cluster.url),
        *("--source", "lines=lines.txt", "--output", "count=counts"),
        *(text for name, value in settings.items() for text in ("--conf", f"{name}={value}")),
    ]
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
    }
    done = subprocess.run(command, cwd=home, env=environment, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stdout + done.stderr
    import pyarrow.parquet

    assert mark.exists()
    [rows] = (home / "counts" / "_squall" / "results").glob("*/rows")
    found = [tuple(row.values()) for row in pyarrow.parquet.read_table(rows).to_pylist()]
    assert sorted(row for row in found if row[1]) == [("a", 150), ("b", 50), ("c", 50)]
    places = [Path(word) for word, count in found if not count]
    assert len(places) == 2
    assert all(place.is_relative_to(cluster.folder / "work") for place in places)


@pytest.mark.timeout(700)
def test_a_replay_gives_what_a_session_of_one_process_gives(
    cluster: Cluster, spark: SparkSession, tmp_path: Path
) -> None:
    run_script("tests.spark.replays_anywhere", cluster.url, tmp_path, json.dumps(SETTINGS), seconds=500)
    found = json.loads((tmp_path / "found.json").read_text())
    assert found == json.loads(json.dumps(replayed(spark)))
    assert len(found["points"]["errors"]) == 1
