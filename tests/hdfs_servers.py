"""HDFS for tests: a NameNode and DataNodes as real processes on the loopback, which can be killed, frozen and restarted.

The programs are PySpark's own jars and one more, which Maven fetches once into a folder of this machine
(`$SQUALL_TEST_CACHE`, else `~/.cache/squall-tests`). Where there is no Java, no Maven or no PySpark, such tests are skipped,
and fail where CI=true.
"""

from __future__ import annotations

import fcntl
import importlib.util
import json
import os
import shutil
import subprocess
import urllib.request
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn
from xml.sax.saxutils import escape

import pytest

from tests.killable import Killable
from tests.zookeeper_servers import eventually, free_ports

HADOOP = "3.5.0"
JAR = f"hadoop-client-minicluster-{HADOOP}.jar"
NAME_NODE = "org.apache.hadoop.hdfs.server.namenode.NameNode"
DATA_NODE = "org.apache.hadoop.hdfs.server.datanode.DataNode"
#: Longest time for Maven to fetch 56 MB.
DOWNLOAD_SECS = 300.0
#: Longest start of the daemons on a machine under load; about 10 seconds on an idle one.
START_SECS = 180.0


def missing(what: str) -> NoReturn:
    """Skip the test; in CI it fails."""
    if os.environ.get("CI") == "true":
        pytest.fail(what)
    pytest.skip(what)


@contextmanager
def cache_folder() -> Iterator[Path]:
    """The folder that is kept between runs, locked while it is used."""
    folder = Path(os.environ.get("SQUALL_TEST_CACHE") or Path.home() / ".cache" / "squall-tests")
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder


def class_path() -> str:
    """The jars for the daemons' JVMs; fetched if necessary."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        missing("PySpark is not installed: pip install '.[spark]'")
    if shutil.which("java") is None:
        missing("there is no Java on PATH")
    with cache_folder() as cache:
        jar = cache / JAR
        if not jar.exists():
            _fetch(cache)
        web = cache / f"web-{HADOOP}"
        if not web.exists():  # the NameNode needs it as a folder, not in the jar
            fresh = cache / "web.tmp"
            with zipfile.ZipFile(jar) as archive:
                archive.extractall(fresh, [n for n in archive.namelist() if n.startswith("webapps/")])
            fresh.rename(web)
    return f"{web}:{jar}:{Path(spec.origin).parent / 'jars'}/*"


def _fetch(cache: Path) -> None:
    """Have Maven fetch the jar."""
    maven = shutil.which("mvn")
    if maven is None:
        missing(f"there is no Maven on PATH to fetch {JAR}")
    artifact = f"org.apache.hadoop:hadoop-client-minicluster:{HADOOP}"
    fresh = cache / "fetched.tmp"
    done = subprocess.run(
        [maven, "-q", "-B", "dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={fresh}"],
        cwd=cache,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=DOWNLOAD_SECS,
        check=False,
    )
    if done.returncode != 0:
        missing(f"Maven could not fetch {artifact}: {done.stdout.decode(errors='replace')[-500:]}")
    (fresh / JAR).rename(cache / JAR)


class Daemon(Killable):
    """One process of HDFS. `settings` are those of its next start."""

    def __init__(self, server: HdfsServer, name: str, main: str, settings: Mapping[str, str]) -> None:
        super().__init__(server.folder / f"{name}.log")
        self.settings = dict(settings)
        self._command = [*server.java, main]

    def start(self) -> None:
        """Start it; it serves a while later."""
        self.launch([*self._command, *(f"-D{name}={value}" for name, value in self.settings.items())])

    def restart(self) -> None:
        """Kill it and start it; it serves a while later."""
        self.kill()
        self.start()


class HdfsServer:
    """A NameNode with its DataNodes. `url` and `webhdfs` are the same after every start. `settings` go into hdfs-site.xml over
    those below. The user who starts it may do everything in it; others need permission.
    """

    def __init__(
        self, folder: Path, *, datanodes: int = 2, settings: Mapping[str, str] | None = None
    ) -> None:
        self.folder = folder
        rpc, web, *ports = free_ports(2 + 3 * datanodes)
        self.url = f"hdfs://127.0.0.1:{rpc}"
        self.webhdfs = f"127.0.0.1:{web}"
        flags = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-Xmx256m"]
        self.java = [shutil.which("java") or "java", *flags, "-cp", f"{folder / 'conf'}:{class_path()}"]
        self._write_conf({**self._defaults(datanodes), **(settings or {})})
        self.namenode = Daemon(self, "namenode", NAME_NODE, {})
        self.datanodes = [
            Daemon(self, f"datanode{n}", DATA_NODE, self._of_datanode(n, ports[3 * n : 3 * n + 3]))
            for n in range(datanodes)
        ]

    def _defaults(self, datanodes: int) -> dict[str, str]:
        return {
            "dfs.replication": str(min(2, datanodes)),
            "dfs.namenode.replication.min": "1",
            # Two copies and this one: otherwise closing a file waits for a DataNode's next report.
            "dfs.namenode.file.close.num-committed-allowed": "1",
            "dfs.namenode.name.dir": str(self.folder / "name"),
            "dfs.namenode.rpc-bind-host": "127.0.0.1",
            "dfs.namenode.http-address": self.webhdfs,
            "dfs.datanode.hostname": "127.0.0.1",
            "dfs.permissions.enabled": "true",
            "dfs.namenode.safemode.extension": "0",
            # A lost DataNode counts as dead after 12 seconds, and is not asked any more after 3.
            "dfs.heartbeat.interval": "1",
            "dfs.namenode.heartbeat.recheck-interval": "1000",
            "dfs.namenode.stale.datanode.interval": "3000",
            "dfs.namenode.avoid.write.stale.datanode": "true",
            "dfs.namenode.avoid.read.stale.datanode": "true",
        }

    def _of_datanode(self, number: int, ports: list[int]) -> dict[str, str]:
        data, web, ipc = (f"127.0.0.1:{port}" for port in ports)
        return {
            "dfs.datanode.data.dir": str(self.folder / f"data{number}"),
            "dfs.datanode.address": data,
            "dfs.datanode.http.address": web,
            "dfs.datanode.ipc.address": ipc,
        }

    def _write_conf(self, hdfs: Mapping[str, str]) -> None:
        core = {"fs.defaultFS": self.url, "hadoop.tmp.dir": str(self.folder / "tmp")}
        conf = self.folder / "conf"
        conf.mkdir(parents=True)
        for name, settings in (("core-site.xml", core), ("hdfs-site.xml", hdfs)):
            items = "".join(
                f"<property><name>{escape(key)}</name><value>{escape(value)}</value></property>\n"
                for key, value in settings.items()
            )
            (conf / name).write_text(f"<configuration>\n{items}</configuration>\n")

    def start(self) -> HdfsServer:
        """Start all of it and wait until it accepts files; again after `stop`, with its data."""
        try:
            if not (self.folder / "name").exists():
                self._format()
            for daemon in (self.namenode, *self.datanodes):
                if not daemon.running:
                    daemon.start()
            self.wait_ready()
        except BaseException:
            self.stop()
            raise
        return self

    def _format(self) -> None:
        """Make the NameNode's folder: a copy of the first one made on this machine, which saves some seconds."""
        with cache_folder() as cache:
            made = cache / f"name-{HADOOP}"
            if not made.exists():
                fresh = cache / "name.tmp"
                shutil.rmtree(fresh, ignore_errors=True)
                options = [f"-Ddfs.namenode.name.dir={fresh}", "-format", "-nonInteractive"]
                done = subprocess.run(
                    [*self.java, NAME_NODE, *options],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    timeout=START_SECS,
                    check=False,
                )
                assert done.returncode == 0, done.stdout.decode(errors="replace")
                fresh.rename(made)
            shutil.copytree(made, self.folder / "name")

    def stop(self) -> None:
        """End all of it at once. The data stays."""
        for daemon in (*self.datanodes, self.namenode):
            daemon.kill()

    def wait_ready(self, live: int | None = None) -> None:
        """Wait until the NameNode is out of safe mode and has this many DataNodes (default: all running ones)."""
        started = [daemon for daemon in self.datanodes if daemon.running]
        wanted = len(started) if live is None else live

        def ready() -> bool:
            found = self.figures()
            assert self.namenode.running, f"the NameNode has ended:\n{self.namenode.log()[-2000:]}"
            serving = found.get("FSState") == "Operational" and found.get("NumLiveDataNodes") == wanted
            # The NameNode takes a killed one for alive for some seconds, so the running ones are asked too.
            return serving and all(map(_is_registered, started))

        eventually(ready, START_SECS, every=0.2)

    def figures(self) -> dict[str, Any]:
        """The NameNode's status; empty while it does not answer."""
        return _figures(self.webhdfs, "NameNode", "FSNamesystemState")

    def __enter__(self) -> HdfsServer:
        return self.start()

    def __exit__(self, *raised: object) -> None:
        self.stop()


def _figures(address: str, service: str, name: str) -> dict[str, Any]:
    """A daemon's status; empty while it does not answer."""
    url = f"http://{address}/jmx?qry=Hadoop:service={service},name={name}"
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            beans = json.load(answer)["beans"]
    except (OSError, ValueError):
        return {}
    return dict(beans[0]) if beans else {}


def _is_registered(datanode: Daemon) -> bool:
    """Whether a DataNode accepts blocks."""
    found = _figures(datanode.settings["dfs.datanode.http.address"], "DataNode", "DataNodeInfo")
    actors = json.loads(found.get("BPServiceActorInfo", "[]"))
    return any(actor["ActorState"] == "RUNNING" for actor in actors)
