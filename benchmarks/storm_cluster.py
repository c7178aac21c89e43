"""A Storm cluster on this machine, run like a release: ZooKeeper, Nimbus and a supervisor, each in a JVM of its own.

Maven fetches Storm's jars and compiles the topology (`benchmarks/storm`) into `build/storm`, when that is missing or older than
its sources. The folder of the cluster looks like an unpacked release, with links to these jars; all settings are Storm's
defaults, except for addresses, ports, folders and those of the caller; logs go to files there, not to syslog. All processes of
the cluster have a mark in their environment, by which they are found and ended, including workers without a supervisor. Linux
only (/proc). Every configured address is a loopback address; yet Storm's servers, except for ZooKeeper, listen on all addresses
while the cluster runs, without authentication: there is no setting for that, so run it where no one else can connect. It must
not know what is measured.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import quote_plus

from benchmarks.beside_bytewax import free_ports
from benchmarks.child import ROOT

__all__ = ["CACHE", "StormCluster", "built", "cpu_seconds", "options_text", "peak_rss_of", "tls_settings"]

SOURCES = Path(__file__).with_name("storm")
CACHE = ROOT / "build" / "storm"
JAR = CACHE / "target" / "word-count.jar"
MARK = "SQUALL_BENCHMARK_STORM"
"""The environment variable that all processes of a cluster have; its value is the cluster's folder."""
START_SECONDS = 90.0
ZOOKEEPER = "org.apache.storm.shade.org.apache.zookeeper.server.ZooKeeperServerMain"
DAEMONS = {
    # name: the main class, and its options as in Storm's defaults
    "nimbus": ("org.apache.storm.daemon.nimbus.Nimbus", "-Xmx1024m"),
    "supervisor": ("org.apache.storm.daemon.supervisor.Supervisor", "-Xmx256m"),
}


def built() -> str:
    """Fetch Storm and compile the topology, if needed; return Storm's version."""
    sources = [path for path in SOURCES.rglob("*") if path.suffix in (".java", ".xml")]
    if not JAR.exists() or JAR.stat().st_mtime < max(path.stat().st_mtime for path in sources):
        print(f"building {CACHE} with Maven ...", flush=True)
        subprocess.run(["mvn", "-q", "-B", "-f", SOURCES / "pom.xml", "clean", "package"], check=True)
    (client,) = CACHE.glob("lib-worker/storm-client-*.jar")
    return client.stem.removeprefix("storm-client-")


class StormCluster:
    """One supervisor with two slots; as a context manager, it ends everything."""

    def __init__(self, folder: Path, settings: dict[str, Any] | None = None) -> None:
        self.folder = folder
        self.settings = settings or {}
        self.children: list[subprocess.Popen[bytes]] = []
        self.zookeeper, self.nimbus, self.supervisor, *self.slots = free_ports(5)

    def __enter__(self) -> StormCluster:
        try:
            self.lay_out()
            zoo = str(self.folder / "conf" / "zoo.cfg")
            quiet = "-Dorg.apache.storm.shade.org.apache.zookeeper.admin.enableServer=false"
            self.start(
                "zookeeper", ZOOKEEPER, "-Xmx256m", quiet, "-Dzookeeper.admin.enableServer=false", after=[zoo]
            )
            self.wait_for_port("zookeeper", self.zookeeper)
            self.start("nimbus", *DAEMONS["nimbus"])
            self.wait_for_port("nimbus", self.nimbus)
            self.start("supervisor", *DAEMONS["supervisor"])
            self.wait_for_port("supervisor", self.supervisor)
        except BaseException:
            self.end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def lay_out(self) -> None:
        """Create the files of a release."""
        for name in ("conf", "logs", "extlib", "extlib-daemon", "local", "zookeeper"):
            (self.folder / name).mkdir(parents=True)
        for name in ("lib", "lib-worker"):
            (self.folder / name).symlink_to(CACHE / name)
        (self.folder / "log4j2").symlink_to(SOURCES / "log4j2")
        # JSON is YAML.
        (self.folder / "conf" / "storm.yaml").write_text(json.dumps(self.configuration(), indent=1))
        (self.folder / "conf" / "zoo.cfg").write_text(
            f"dataDir={self.folder / 'zookeeper'}\nclientPort={self.zookeeper}\n"
            "clientPortAddress=127.0.0.1\ntickTime=2000\nmaxClientCnxns=0\n"
        )

    def configuration(self) -> dict[str, Any]:
        """Return the site file: paths and the caller's settings."""
        return {
            "storm.local.dir": str(self.folder / "local"),
            "storm.local.hostname": "127.0.0.1",
            "storm.log4j2.conf.dir": str(self.folder / "log4j2"),
            "storm.zookeeper.servers": ["127.0.0.1"],
            "storm.zookeeper.port": self.zookeeper,
            "nimbus.seeds": ["127.0.0.1"],
            "nimbus.thrift.port": self.nimbus,
            "supervisor.thrift.port": self.supervisor,
            "supervisor.slots.ports": self.slots,
            **self.settings,
        }

    def start(self, name: str, main: str, *options: str, after: list[str] | None = None) -> None:
        """Start a daemon; its output goes to a file."""
        command = [*self.java(name, "lib"), *options, main, *(after or [])]
        with Path(self.folder, "logs", f"{name}.out").open("wb") as out:
            # A session of its own: Ctrl-C reaches only us, and we end the daemon.
            child = subprocess.Popen(
                command,
                cwd=self.folder,
                env=self.environment(),
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        self.children.append(child)

    def java(self, name: str, jars: str, *more: Path) -> list[str]:
        """Return the first arguments of a command."""
        path = [self.folder / jars / "*", self.folder / "conf", *more]
        properties = {
            "storm.home": self.folder,
            "storm.log.dir": self.folder / "logs",
            "storm.conf.file": "storm.yaml",
            "logfile.name": f"{name}.log",
            "log4j.configurationFile": self.folder / "log4j2" / "worker.xml",
        }
        return [
            "java",
            "-cp",
            ":".join(map(str, path)),
            *(f"-D{key}={text}" for key, text in properties.items()),
        ]

    def environment(self) -> dict[str, str]:
        """Return the environment of all processes."""
        return {**os.environ, MARK: str(self.folder)}

    def submit(self, main: str, *arguments: object, options: dict[str, Any]) -> None:
        """Submit a topology by its main class, with settings of its own, as `storm jar` does."""
        command = [
            *self.java("submit", "lib-worker", JAR),
            f"-Dstorm.jar={JAR}",
            f"-Dstorm.options={options_text(options)}",
            main,
            *map(str, arguments),
        ]
        done = subprocess.run(
            command,
            cwd=self.folder,
            env=self.environment(),
            capture_output=True,
            text=True,
            timeout=START_SECONDS,
        )
        if done.returncode:
            raise RuntimeError(f"submitting failed: {(done.stdout + done.stderr)[-3000:]}")

    def wait_for_port(self, name: str, port: int) -> None:
        """Wait until a daemon listens."""
        deadline = time.monotonic() + START_SECONDS
        while True:
            self.check()
            with socket.socket() as tried:
                if tried.connect_ex(("127.0.0.1", port)) == 0:
                    return
            if time.monotonic() > deadline:
                raise TimeoutError(f"{name} does not listen after {START_SECONDS:g} s\n{self.logs()}")
            time.sleep(0.1)

    def check(self) -> None:
        """Check that all daemons run."""
        for child in self.children:
            if child.poll() is not None:
                raise RuntimeError(f"a daemon ended with status {child.returncode}\n{self.logs()}")

    def logs(self) -> str:
        """Return the last lines of all logs, for an error message."""
        paths = [path for path in sorted(self.folder.glob("logs/*")) if path.is_file()]
        return "\n".join(f"== {path.name}\n{path.read_text(errors='replace')[-1500:]}" for path in paths)

    def daemons(self) -> list[int]:
        """Process ids of ZooKeeper, Nimbus and the supervisor."""
        return [child.pid for child in self.children]

    def end(self) -> None:
        """End all marked processes: the daemons first, since the supervisor would start workers again."""
        for child in self.children:
            child.kill()
            child.wait()
        while pids := members(str(self.folder)):
            for pid in pids:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
            time.sleep(0.05)
        shutil.rmtree(self.folder, ignore_errors=True)


def members(folder: str) -> list[int]:
    """Processes with the mark of the cluster in this folder, except for this one."""
    mark = f"{MARK}={folder}".encode()
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            marked = mark in path.read_bytes().split(b"\0")
        except OSError:  # it has ended, or belongs to another user
            continue
        if marked and int(path.parent.name) != os.getpid():
            found.append(int(path.parent.name))
    return found


def cpu_seconds(pids: list[int]) -> float:
    """Return the CPU of processes so far, from /proc."""
    ticks = 0
    for pid in pids:
        # Field 2 is a name in parentheses, in which there may be spaces; 14 and 15 are the times in user and system mode.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def options_text(options: dict[str, Any]) -> str:
    """Settings as the property `storm.options` expects them: JSON, which Storm URL-decodes."""
    return ",".join(f"{name}={quote_plus(json.dumps(value))}" for name, value in options.items())


def peak_rss_of(pid: int) -> float:
    """Return the peak memory of another process, in MB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) / 1e3


def tls_settings(folder: Path) -> dict[str, Any]:
    """Settings for TLS between workers, with a key and a certificate of their own."""
    keys, trusted, certificate, word = (
        folder / "keys.jks",
        folder / "trusted.jks",
        folder / "workers.crt",
        "squall",
    )
    common = ["-alias", "workers", "-storepass", word, "-storetype", "JKS", "-noprompt"]
    for command in (
        [
            "-genkeypair",
            "-keyalg",
            "RSA",
            "-keypass",
            word,
            "-dname",
            "CN=127.0.0.1",
            "-ext",
            "SAN=ip:127.0.0.1",
            "-keystore",
            keys,
        ],
        ["-exportcert", "-file", certificate, "-keystore", keys],
        ["-importcert", "-file", certificate, "-keystore", trusted],
    ):
        subprocess.run(["keytool", *map(str, command), *common], check=True, capture_output=True)
    settings: dict[str, Any] = {"enable": True}
    for side in ("", "client."):
        for name, path in (("keystore", keys), ("truststore", trusted)):
            settings |= {f"{side}{name}.path": str(path), f"{side}{name}.password": word}
    return {f"storm.messaging.netty.tls.{name}": value for name, value in settings.items()}
