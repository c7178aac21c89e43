"""The requirements of a topology are installed once, with our versions of what workers need; a failure shows its log."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest

from supervisor import environments
from supervisor.environments import (
    LOG,
    READY,
    BuildFailed,
    Environment,
    Environments,
    constraints,
    tools_environment,
)
from tests.supervisor.hosts import ROOT
from tests.supervisor.programs import runs, until
from tests.supervisor.wheels import archive, make_wheel, sha256


class Shipped:
    """Files by their hashes, as `fetched` gives them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self.fetched: list[str] = []

    def put(self, data: bytes) -> str:
        (self.folder / sha256(data)).write_bytes(data)
        return sha256(data)

    def requirements(self, *lines: str) -> str:
        return self.put("".join(f"{line}\n" for line in lines).encode())

    def wheels(self, *wheels: Path) -> str:
        return self.put(archive(self.folder, {wheel.name: wheel for wheel in wheels}))

    @contextlib.contextmanager
    def __call__(self, digest: str) -> Iterator[Path]:
        self.fetched.append(digest)
        yield self.folder / digest


@pytest.fixture
def shipped(tmp_path: Path) -> Shipped:
    return Shipped(tmp_path / "shipped")


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Environments]:
    found = Environments(tmp_path / "environments", uv="")
    yield found
    found.close()


def environment_of(made: Environments, requirements: str, wheels: str | None = None) -> Environment:
    files = {"requirements": requirements} | ({} if wheels is None else {"wheels": wheels})
    found = made.of(files)
    assert found is not None
    return found


def said_by(python: str, program: str, folder: Path) -> str:
    """The output of a program in an environment, run like a worker."""
    environment = {**os.environ, "PYTHONPATH": ""}
    done = subprocess.run(
        [python, "-c", program], cwd=folder, env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.slow
def test_an_environment_has_the_shipped_packages_and_finds_squall_after_them(
    tmp_path: Path, made: Environments, shipped: Shipped
) -> None:
    shipped_wheels = shipped.wheels(
        make_wheel(tmp_path, "tiny_words", requires="tinier"), make_wheel(tmp_path, "tinier", "2.5")
    )
    needed = environment_of(made, shipped.requirements("tiny_words==1.0", "squall>=99"), shipped_wheels)
    python = made.make(needed, shipped)
    text = "import tiny_words, tinier, msgspec, worker.process, sys; print(tiny_words.version, tinier.version, sys.prefix)"
    assert said_by(python, text, tmp_path).split() == ["1.0", "2.5", str(made.root / needed.key / "venv")]
    log = made.log(needed.key).read_text()
    assert "$ " in log and "tiny_words" in log
    assert (made.root / needed.key / READY).exists()
    assert made.make(needed, shipped) == python
    assert len(shipped.fetched) == 2, "it is built once"
    assert Environments(made.root, uv="").make(needed, shipped) == python, "and found by the next supervisor"
    assert len(shipped.fetched) == 2


@pytest.mark.slow
def test_pip_options_of_this_host_add_nothing_to_shipped_wheels(
    tmp_path: Path, made: Environments, shipped: Shipped, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place in ("host-variable", "host-file"):
        (tmp_path / place).mkdir()
        make_wheel(tmp_path / place, "tinier")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "host-variable"))
    (tmp_path / "pip.conf").write_text(f"[global]\nfind-links = {tmp_path}/host-file\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))
    wheels = shipped.wheels(make_wheel(tmp_path, "tiny_words", requires="tinier"))
    needed = environment_of(made, shipped.requirements("tiny_words"), wheels)
    with pytest.raises(BuildFailed, match="tinier"):
        made.make(needed, shipped)
    log = made.log(needed.key).read_text()
    assert "Looking in links: wheels\n" in log and str(tmp_path / "host-") not in log


@pytest.mark.slow
def test_without_wheels_pip_obeys_the_options_of_this_host(
    tmp_path: Path, made: Environments, shipped: Shipped, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "host").mkdir()
    make_wheel(tmp_path / "host", "tinier", "2.5")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "host"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    python = made.make(environment_of(made, shipped.requirements("tinier")), shipped)
    assert said_by(python, "import tinier; print(tinier.version)", tmp_path) == "2.5"


def test_with_wheels_the_tools_see_none_of_this_hosts_settings() -> None:
    inherited = {
        "HOME": "/h",
        "PYTHONPATH": "/p",
        "PIP_INDEX_URL": "i",
        "UV_INDEX": "i",
        "UV_CACHE_DIR": "/c",
    }
    alone = tools_environment(inherited, alone=True)
    assert alone == {"HOME": "/h", "UV_CACHE_DIR": "/c", "PIP_CONFIG_FILE": os.devnull}
    obeyed = tools_environment(inherited, alone=False)
    assert obeyed == {name: value for name, value in inherited.items() if name != "PYTHONPATH"}


@pytest.mark.slow
def test_another_version_of_what_workers_need_is_refused_and_the_end_of_the_log_says_so(
    tmp_path: Path, made: Environments, shipped: Shipped
) -> None:
    wheels = shipped.wheels(make_wheel(tmp_path, "msgspec", "0.0.1"))
    needed = environment_of(made, shipped.requirements("msgspec==0.0.1"), wheels)
    with pytest.raises(BuildFailed, match=r"pip ended with status 1\n") as failure:
        made.make(needed, shipped)
    assert "msgspec==0.0.1" in str(failure.value)
    assert "$ " not in str(failure.value), "the output of pip, without its command line"
    assert "msgspec==0.0.1" in made.log(needed.key).read_text()
    assert not (made.root / needed.key / READY).exists()
    assert not (made.root / needed.key / "venv").exists(), "a partial environment does not count"


def test_packages_that_workers_need_are_held_at_our_versions() -> None:
    assert f"msgspec=={version('msgspec')}" in constraints()
    assert f"pyzmq=={version('pyzmq')}" in constraints()


@pytest.mark.slow
def test_workers_need_no_other_packages_than_the_held_ones() -> None:
    program = (
        "import sys, worker.process.assemble; from importlib.metadata import packages_distributions as owners;"
        "found = owners(); print(*sorted({d for m in {m.partition('.')[0] for m in sys.modules} for d in found.get(m, ())}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    extra = set(done.stdout.lower().split()) - set(environments.WORKERS_NEED) - {"squall"}
    # cloudpickle uses typing_extensions if it is installed, and plain hot modules use Cython's Python part.
    assert extra - {"setuptools", "pip", "typing_extensions", "cython"} == set(), "name them in WORKERS_NEED"


def test_equal_requirements_share_one_environment_and_others_have_another(made: Environments) -> None:
    one = environment_of(made, "r1").key
    assert environment_of(made, "r1").key == one
    others = {environment_of(made, "r2").key, environment_of(made, "r1", "w1").key}
    assert len(others | {one}) == 3
    assert made.of({"code": "c1"}) is None


def test_requirements_that_are_no_text_are_refused(made: Environments, shipped: Shipped) -> None:
    with pytest.raises(BuildFailed, match="not UTF-8"):
        made.make(environment_of(made, shipped.put(b"\xff\xfe\x00")), shipped)


def slow_python(tmp_path: Path) -> str:
    """A "Python" that only prints its pid and waits: a slow builder."""
    program = tmp_path / "slow-python"
    program.write_text(
        f"#!/bin/sh\necho $$ > {tmp_path}/pid.new; mv {tmp_path}/pid.new {tmp_path}/pid\nexec sleep 1000\n"
    )
    program.chmod(0o755)
    return str(program)


def test_a_build_in_progress_ends_with_the_supervisor(tmp_path: Path, shipped: Shipped) -> None:
    made = Environments(tmp_path / "environments", uv="", python=slow_python(tmp_path))
    failures: list[Exception] = []

    def build() -> None:
        try:
            made.make(environment_of(made, shipped.requirements("x")), shipped)
        except BuildFailed as error:
            failures.append(error)

    thread = threading.Thread(target=build)
    thread.start()
    until(lambda: (tmp_path / "pid").exists())
    pid = int((tmp_path / "pid").read_text())
    made.close()
    thread.join(30)
    assert not runs(pid)
    assert failures and "SIGKILL" in str(failures[0])
    with pytest.raises(BuildFailed, match="the supervisor is ending"):
        made.make(environment_of(made, shipped.requirements("x")), shipped)


#: A supervisor that is killed in the very moment in which its builder was started.
KILLED = """
import os, signal, subprocess, sys
from contextlib import contextmanager
from pathlib import Path
from supervisor.environments import Environments

start = subprocess.Popen.__init__
def start_and_die(*args, **options):
    start(*args, **options)
    os.kill(os.getpid(), signal.SIGKILL)
subprocess.Popen.__init__ = start_and_die

@contextmanager
def shipped(digest):
    yield Path(sys.argv[3])

made = Environments(Path(sys.argv[1]), uv="", python=sys.argv[2])
made.make(made.of({"requirements": "r"}), shipped)
"""


def test_a_killed_supervisors_build_is_ended_by_the_next_one_whenever_it_was_killed(
    tmp_path: Path,
) -> None:
    (tmp_path / "requirements.txt").write_text("x\n")
    root = tmp_path / "environments"
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, str(root), slow_python(tmp_path), str(tmp_path / "requirements.txt")],
        env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert killed.returncode == -9, killed.stderr
    until(lambda: (tmp_path / "pid").exists())
    pid = int((tmp_path / "pid").read_text())
    try:
        (directory,) = root.iterdir()
        (directory / "venv" / "lib").mkdir(parents=True)
        assert runs(pid)
        Environments(root, uv="").sweep()
        until(lambda: not runs(pid))
        assert not (directory / "venv").exists()
        assert (directory / LOG).exists(), "the log can still be read"
    finally:
        if runs(pid):
            os.kill(pid, signal.SIGKILL)


def test_a_partial_environment_does_not_count_even_where_a_complete_one_was(
    tmp_path: Path, shipped: Shipped
) -> None:
    uv = tmp_path / "uv"
    uv.write_text(f'#!/bin/sh\n[ "$1" != venv ] || exec {sys.executable} -m venv --without-pip "$5"\n')
    uv.chmod(0o755)
    made = Environments(tmp_path / "environments", uv=str(uv))
    needed = environment_of(made, shipped.requirements("x"))
    made.make(needed, shipped)
    ready = made.root / needed.key / READY
    assert ready.exists()
    shutil.rmtree(made.root / needed.key / "venv")  # deleted by another program, and then built again
    seen = tmp_path / "seen"
    uv.write_text(f"#!/bin/sh\n[ -e {ready} ] && echo ready > {seen}\nexit 3\n")
    with pytest.raises(BuildFailed, match="uv venv ended with status 3"):
        made.make(needed, shipped)
    assert not seen.exists() and not ready.exists()


def test_uv_is_used_if_it_is_installed(tmp_path: Path, shipped: Shipped) -> None:
    uv = tmp_path / "uv"
    uv.write_text(
        '#!/bin/sh\necho called with "$@"\n'
        f'[ "$1" != venv ] || exec {sys.executable} -m venv --without-pip "$5"\n'
    )
    uv.chmod(0o755)
    made = Environments(tmp_path / "environments", uv=str(uv))
    needed = environment_of(made, shipped.requirements("x"))
    python = made.make(needed, shipped)
    wheels = shipped.wheels(make_wheel(tmp_path, "x"))
    made.make(alone := environment_of(made, needed.requirements, wheels), shipped)
    assert "called with pip install --no-config" in made.log(alone.key).read_text()
    log = made.log(needed.key).read_text()
    assert "--no-config" not in log
    assert "called with venv" in log and f"--python {python} -r requirements.txt -c constraints.txt" in log
