"""A Spark Connect server for tests: a real process on the loopback, which can be killed and started again on its port."""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

from tests.killable import Killable
from tests.spark_classes import small_java
from tests.zookeeper_servers import eventually, free_ports

ROOT = Path(__file__).resolve().parents[2]
#: The longest start of a server on a machine under load; about 10 seconds on an idle one.
START_SECS = 180.0
_MAIN = "org.apache.spark.sql.connect.service.SparkConnectServer"


class ConnectServer(Killable):
    """A server with a driver of two threads. `url` is the same after every start."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / "connect.log")
        [self.port] = free_ports(1)
        self.url = f"sc://127.0.0.1:{self.port}"
        conf = {
            "spark.driver.memory": "768m",
            "spark.driver.extraJavaOptions": small_java(),
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
            "spark.local.dir": str(folder / "local"),
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": str(self.port),
        }
        spec = importlib.util.find_spec("pyspark")
        assert spec is not None and spec.origin is not None
        home = Path(spec.origin).parent
        environment = [
            f"SPARK_HOME={home}",
            "SPARK_CONNECT_MODE=0",
            "SPARK_LOCAL_IP=127.0.0.1",
            f"PYSPARK_PYTHON={sys.executable}",
            f"PYTHONPATH={ROOT}",  # as if Squall were installed there
            "LC_ALL=C.UTF-8",
        ]
        settings = [f"--conf={name}={value}" for name, value in conf.items()]
        self._command = [
            shutil.which("env") or "env",
            *environment,
            str(home / "bin" / "spark-submit"),
            f"--class={_MAIN}",
            "--master=local[2]",
            *settings,
            "spark-internal",
        ]

    def start(self) -> ConnectServer:
        """Start it and wait until it accepts connections."""
        self.launch(self._command)
        try:
            eventually(self._serves, START_SECS)
        except BaseException:
            self.kill()
            raise
        return self

    def _serves(self) -> bool:
        assert self.running, f"the server has ended:\n{self.log()[-2000:]}"
        try:
            socket.create_connection(("127.0.0.1", self.port), 1).close()
        except OSError:
            return False
        return True


def run_script(module: str, *arguments: object, seconds: float = 300) -> None:
    """Run a module of the tests in a Python of its own, since a process has only one kind of Spark session."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", module, *map(str, arguments)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr and done.stdout == "", done.stderr + done.stdout
