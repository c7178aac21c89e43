"""S3 for tests: moto as a process on the loopback, which keeps its objects in memory (`tests/s3_moto.py`); and the jars by
which Spark reaches it.

Where boto3, moto, or for Spark a Maven is missing, the tests are skipped; with CI=true they fail.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.hdfs_servers import DOWNLOAD_SECS, HADOOP, cache_folder, missing
from tests.killable import Killable
from tests.zookeeper_servers import eventually, free_ports

#: As in `tests/s3_moto.py`, which this process does not import: it would load all of moto.
COPIES, PARTS, PUTS, IGNORES, REFUSES = BUCKETS = ("copies", "parts", "puts", "ignores", "refuses")
#: Longest start on a machine under load; about 3 seconds on an idle one.
START_SECS = 120.0
#: Keys that moto takes as it takes any.
KEYS = {
    "AWS_ACCESS_KEY_ID": "test-key",
    "AWS_SECRET_ACCESS_KEY": "hush-hush",
    "AWS_DEFAULT_REGION": "us-east-1",
}


#: What hadoop-aws needs of Amazon's client at least: 12 MB, where the bundle that it names has 600. The versions are those of
#: its own build. Spark has the libraries of the other groups.
AWS, ANALYTICS = "2.35.4", "1.3.1"
_MODULES = ("s3", "s3-transfer-manager", "sts", "apache-client", "netty-nio-client")
_SPARKS = "io.netty,org.slf4j,commons-logging,commons-codec,org.apache.httpcomponents"
_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>squall.tests</groupId><artifactId>s3a</artifactId><version>1</version><dependencies>{}</dependencies></project>"""
_DEPENDENCY = (
    "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>"
    "<exclusions><exclusion><groupId>*</groupId><artifactId>{}</artifactId></exclusion></exclusions></dependency>"
)


def s3a_jars() -> str:
    """The jars that let Spark write to s3a://, for `spark.jars`; fetched if necessary."""
    with cache_folder() as cache:
        jars = cache / f"s3a-{HADOOP}"
        if not jars.exists():
            _fetch(cache, jars)
        return ",".join(map(str, sorted(jars.glob("*.jar"))))


def _fetch(cache: Path, jars: Path) -> None:
    """Have Maven fetch the jars."""
    maven = shutil.which("mvn")
    if maven is None:
        missing("there is no Maven on PATH to fetch hadoop-aws")
    pom, fresh = cache / "s3a.pom.xml", cache / "s3a.tmp"
    shutil.rmtree(fresh, ignore_errors=True)
    wanted = [
        _DEPENDENCY.format("org.apache.hadoop", "hadoop-aws", HADOOP, "*"),
        _DEPENDENCY.format(
            "software.amazon.s3.analyticsaccelerator", "analyticsaccelerator-s3", ANALYTICS, "*"
        ),
        *(_DEPENDENCY.format("software.amazon.awssdk", module, AWS, "none") for module in _MODULES),
    ]
    pom.write_text(_POM.format("".join(wanted)))
    options = ["-DincludeScope=runtime", f"-DexcludeGroupIds={_SPARKS}", f"-DoutputDirectory={fresh}"]
    done = subprocess.run(
        [maven, "-q", "-B", "-f", str(pom), "dependency:copy-dependencies", *options],
        cwd=cache,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=DOWNLOAD_SECS,
        check=False,
    )
    if done.returncode != 0:
        missing(f"Maven could not fetch hadoop-aws: {done.stdout.decode(errors='replace')[-500:]}")
    fresh.rename(jars)


class S3Server(Killable):
    """moto's S3 with the buckets `BUCKETS`; objects are gone when it ends."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / "moto.log")
        self._port = free_ports(1)[0]
        self.url = f"http://127.0.0.1:{self._port}"

    def start(self) -> S3Server:
        """Start it, and make the buckets."""
        for name in ("boto3", "moto", "flask"):
            if importlib.util.find_spec(name) is None:
                missing(f"{name} is not installed: pip install '.[dev]'")
        self.launch([sys.executable, str(Path(__file__).with_name("s3_moto.py")), str(self._port)])
        try:
            eventually(self._answers, START_SECS, every=0.1)
            for bucket in BUCKETS:
                self.ask("PUT", f"/{bucket}")
        except BaseException:
            self.stop()
            raise
        return self

    def fails(self, *faults: tuple[str, str, str]) -> None:
        """Let requests fail, each fault once: method, a part of path and query, and how: see `s3_moto.Server`."""
        named = [dict(zip(("method", "part", "how"), fault)) for fault in faults]
        self.ask("POST", "/faults", json.dumps(named).encode())

    def faults(self) -> Sequence[object]:
        """The faults that no request has met."""
        found: list[object] = json.loads(self.ask("GET", "/faults"))
        return found

    def requests(self) -> Sequence[str]:
        """The requests since the last call: method, path and query."""
        found: list[str] = json.loads(self.ask("GET", "/requests"))
        return found

    def ask(self, method: str, path: str, data: bytes | None = None) -> bytes:
        """The answer to a request without a signature."""
        request = urllib.request.Request(self.url + path, data, method=method)
        with urllib.request.urlopen(request, timeout=30) as answer:
            body: bytes = answer.read()
        return body

    def _answers(self) -> bool:
        assert self.running, f"moto has ended:\n{self.log()[-2000:]}"
        with socket.socket() as one:
            return one.connect_ex(("127.0.0.1", self._port)) == 0

    def __enter__(self) -> S3Server:
        return self.start()

    def __exit__(self, *raised: Any) -> None:
        self.stop()


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """The server of this process's tests."""
    with S3Server(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture
def s3_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """The keys of the server, as the environment gives them, and nothing else that boto3 could find on this machine."""
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {
        **KEYS,
        "AWS_CONFIG_FILE": "/dev/null",
        "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
    }.items():
        monkeypatch.setenv(name, value)
