"""Databases for tests of the SQL sink: files of SQLite, and a PostgreSQL server of its own.

The server listens only on a socket below the test's folder. Where there is no PostgreSQL its tests are skipped; with CI=true
they fail.
"""

from __future__ import annotations

import importlib
import itertools
import os
import pwd
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

#: Where the packages of Debian and its kin put what `initdb` and `pg_ctl` on PATH do not lead to.
INSTALLED = Path("/usr/lib/postgresql")
#: The settings of the server of all tests: it may send changes.
CHANGES = ("wal_level=logical", "max_replication_slots=400", "max_wal_senders=400")
_names = itertools.count(1)


def _missing(what: str) -> None:
    """Skip the test; with CI=true let it fail."""
    text = f"{what}: install the system's package `postgresql`, and the extra `dev`"
    if os.environ.get("CI") == "true":
        pytest.fail(text)
    pytest.skip(text)


def _found(command: str) -> str:
    """Return the path of a command of PostgreSQL: that on PATH, or that of the newest version that is installed."""
    if (path := shutil.which(command)) is not None:
        return path
    versions = [
        path for path in INSTALLED.glob("*") if path.name.isdecimal() and (path / "bin" / command).is_file()
    ]
    if not versions:
        _missing(f"there is no {command} on PATH, nor below {INSTALLED}")
    return str(max(versions, key=lambda path: int(path.name)) / "bin" / command)


def _unprivileged(folder: Path) -> list[str]:
    """What goes before a command, so that it does not run as root, whom the server refuses."""
    if os.geteuid() != 0:
        return []
    if shutil.which("runuser") is None:
        _missing("PostgreSQL does not run as root, and there is no runuser command")
    account = pwd.getpwnam("nobody")
    os.chown(folder, account.pw_uid, account.pw_gid)
    return ["runuser", "-u", "nobody", "--"]


@dataclass(frozen=True)
class PostgreSQL:
    """A server in a folder of its own. url: for SQLAlchemy; settings: those of the server, "wal_level=logical"."""

    folder: Path
    before: tuple[str, ...]
    url: str
    settings: tuple[str, ...] = ()

    @property
    def plain_url(self) -> str:
        """The URL for libpq."""
        return self.url.replace("+psycopg", "")

    def run(self, command: str, *arguments: str) -> None:
        """Run a command of PostgreSQL."""
        done = subprocess.run(
            [*self.before, _found(command), "-D", str(self.folder / "data"), *arguments],
            cwd=self.folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            timeout=120, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr

    def start(self) -> None:
        """Start, and wait until it answers."""
        settings = "".join(f" -c {each}" for each in self.settings)
        options = f"-F -k {self.folder} -c listen_addresses={settings}"
        self.run("pg_ctl", "-l", str(self.folder / "log"), "-w", "-o", options, "start")

    def stop(self, mode: str = "immediate") -> None:
        """Stop at once, as a crash would; "fast": in order."""
        self.run("pg_ctl", "-m", mode, "-w", "stop")

    def database(self) -> PostgreSQL:
        """Return the same server with a new, empty database."""
        import psycopg

        name = f"tests_{next(_names)}"
        with psycopg.connect(self.plain_url, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        return replace(self, url=re.sub(r"/\w+\?", f"/{name}?", self.url, count=1))

    def process(self) -> int:
        """Return the id of its first process."""
        return int((self.folder / "data" / "postmaster.pid").read_text().split()[0])


@contextmanager
def postgresql_server(*settings: str, password: str | None = None) -> Iterator[PostgreSQL]:
    """A server, which is stopped at the end. A socket's path has at most 107 bytes: hence a short folder.

    settings: those of the server. password: that of its user `app`; None: it lets everyone in.
    """
    _found("initdb")
    try:
        importlib.import_module("psycopg")
    except ImportError:
        _missing("psycopg is not installed")
    folder = Path(tempfile.mkdtemp(prefix="squall-pg-"))
    server = PostgreSQL(
        folder, tuple(_unprivileged(folder)), f"postgresql+psycopg://app@/postgres?host={folder}", settings
    )
    logins = ["-A", "trust"]
    if password is not None:
        secret = folder / "password"
        secret.write_text(password)
        secret.chmod(0o644)
        logins = ["-A", "scram-sha-256", "--pwfile", str(secret)]
    try:
        server.run("initdb", "-U", "app", *logins, "--no-sync")
        server.start()
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder)


@pytest.fixture(scope="session")
def postgresql() -> Iterator[PostgreSQL]:
    """A server for all tests, with `CHANGES`. A test that stops it starts it again."""
    with postgresql_server(*CHANGES) as server:
        yield server


@pytest.fixture(scope="module")
def postgresql_of_module(postgresql: PostgreSQL) -> PostgreSQL:
    """The server of all tests, with an empty database for those of one file."""
    return postgresql.database()


@pytest.fixture
def postgresql_database(postgresql: PostgreSQL) -> PostgreSQL:
    """The server of all tests, with an empty database for one of them."""
    return postgresql.database()
