"""Databases for tests of the SQL sink: files of SQLite, and a PostgreSQL server of its own.

The server listens only on a socket below the test's folder. Where there is no `pg_ctl`, they are skipped, also with CI=true.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


def _unprivileged(folder: Path) -> list[str]:
    """What goes before a command, so that it does not run as root, whom the server refuses."""
    if os.geteuid() != 0:
        return []
    if shutil.which("runuser") is None:
        pytest.skip("PostgreSQL does not run as root, and there is no runuser command")
    account = pwd.getpwnam("nobody")
    os.chown(folder, account.pw_uid, account.pw_gid)
    return ["runuser", "-u", "nobody", "--"]


@contextmanager
def postgresql() -> Iterator[str]:
    """The URL of a server, which is stopped at the end. A socket's path has at most 107 bytes: hence a short folder."""
    if shutil.which("pg_ctl") is None or shutil.which("initdb") is None:
        pytest.skip("no pg_ctl and initdb on PATH (not yet required with CI=true)")
    pytest.importorskip("psycopg")
    folder = Path(tempfile.mkdtemp(prefix="squall-pg-"))
    before = _unprivileged(folder)

    def run(*command: str) -> None:
        done = subprocess.run(
            [*before, *command], cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE, text=True, timeout=120, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr

    data, log = str(folder / "data"), str(folder / "log")
    try:
        run("initdb", "-D", data, "-U", "app", "-A", "trust", "--no-sync")
        run("pg_ctl", "-D", data, "-l", log, "-w", "-o", f"-F -k {folder} -c listen_addresses=", "start")
        try:
            yield f"postgresql+psycopg://app@/postgres?host={folder}"
        finally:
            run("pg_ctl", "-D", data, "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder)
