"""A schema registry for tests: Apicurio, which speaks Confluent's API too, as a real process on the loopback, in memory.

Maven fetches it once (109 MB). Where there is no Java 17, no Maven, or Maven cannot fetch it, such tests are
skipped, and fail where CI=true.
"""

from __future__ import annotations

import shutil
import subprocess
import tarfile
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.hdfs_servers import cache_folder, missing
from tests.killable import Killable
from tests.zookeeper_servers import eventually, free_ports

#: The newest one that runs on Java 17: 3.3 needs 21.
APICURIO = "3.0.9"
#: Longest time for Maven to fetch it.
DOWNLOAD_SECS = 300.0
#: Longest start on a machine under load; 6 seconds on an idle one.
START_SECS = 120.0


def _folder() -> Path:
    """Where it is unpacked; fetched if necessary."""
    if shutil.which("java") is None:
        missing("there is no Java on PATH")
    with cache_folder() as cache:
        folder = cache / f"apicurio-{APICURIO}"
        if not folder.exists():
            _fetch(cache, folder)
        return folder


def _fetch(cache: Path, folder: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        missing(f"there is no Maven on PATH to fetch Apicurio {APICURIO}")
    fresh = cache / "apicurio.tmp"
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir()
    artifact = f"io.apicurio:apicurio-registry-app:{APICURIO}:tar.gz:all"
    done = subprocess.run(
        [maven, "-q", "-B", "dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={fresh}"],
        cwd=fresh,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=DOWNLOAD_SECS,
        check=False,
    )
    if done.returncode != 0:
        missing(f"Maven could not fetch Apicurio {APICURIO}: {done.stdout.decode(errors='replace')[-500:]}")
    (archive,) = fresh.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(fresh, filter="data")
    archive.unlink()
    fresh.rename(folder)


class RegistryServer(Killable):
    """One registry; what it has is gone with its process."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / "registry.log")
        (port,) = free_ports(1)
        #: Confluent's API of it.
        self.url = f"http://127.0.0.1:{port}/apis/ccompat/v7"
        home = _folder()
        flags = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-Xmx384m"]
        place = ["-Dquarkus.http.host=127.0.0.1", f"-Dquarkus.http.port={port}"]
        jar = str(home / f"apicurio-registry-app-{APICURIO}-runner.jar")
        self._command = [shutil.which("java") or "java", *flags, *place, "-jar", jar]

    def __enter__(self) -> RegistryServer:
        self.launch(self._command)
        try:
            eventually(self._answers, START_SECS, every=0.1)
        except BaseException:
            self.kill()
            raise
        return self

    def _answers(self) -> bool:
        assert self.running, f"the registry has ended:\n{self.log()[-2000:]}"
        with suppress(OSError), urllib.request.urlopen(f"{self.url}/subjects", timeout=5) as answer:
            return bool(answer.status == 200)
        return False

    def __exit__(self, *raised: object) -> None:
        self.kill()


@pytest.fixture(scope="module")
def registry_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RegistryServer]:
    """A registry for the tests of a module."""
    with RegistryServer(tmp_path_factory.mktemp("registry")) as server:
        yield server
