"""Environments: the packages that a topology requires, installed once for all topologies that require the same.

```
<state>/environments/<key>/
  requirements.txt     what is required, as the submitter wrote it
  constraints.txt      the versions that workers themselves need: where the two cannot be had together, the building fails
  wheels/              what was shipped to install from; with it nothing is looked for elsewhere, whatever pip or uv
                       are told on this host. Without it their settings here (an index of the site's) count
  venv/                the environment. What it lacks comes from our own folders, after its own (squall.pth)
  build.log            what was run, and all that it said, at each try
  ready                written last: without it all of this is made anew
```

The key is a digest of all that goes in. The building is done by uv where there is one, else by venv and pip, in a process of
its own: what packages do while they are installed cannot reach the supervisor. It and all that it starts bear a mark in their
environment, by which a supervisor that comes later finds them, however early the one before was killed.
Must not know: topologies, workers, how files are fetched (a function is given).
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import json
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from squall import archives
from squall.process_stat import all_processes
from supervisor.directories import make_directory
from supervisor.processes import marked, own_folders
from topology_api.errors import SquallError

_log = logging.getLogger(__name__)

LOG: Final = "build.log"
READY: Final = "ready"
#: Stands in the environment of a builder and of all that it starts; the value is the directory that it builds in.
MARK: Final = "BUILDER_OF_SQUALL"
#: What a worker process itself imports: an environment may hold no other versions of these than ours.
WORKERS_NEED: Final = ("cloudpickle", "msgspec", "pyzmq")
#: Seconds that one step of a building may take.
LONGEST_STEP: Final = 1800.0
#: Of the log, for whoever is told that a building failed.
_TAIL_LINES, _LINE_LENGTH, _TAIL_BYTES = 8, 200, 8192
#: Bytes of what was said at earlier tries.
_MOST_LOG: Final = 1024 * 1024
#: Bytes of a requirements file that are read, and of wheels that were shipped.
_MOST_REQUIREMENTS: Final = 1024 * 1024
_MOST_WHEELS: Final = 8 * 1024 * 1024 * 1024
#: Whoever writes down what a script needs often names Squall too, which is here already.
_OURSELVES: Final = re.compile(r"\s*squall\s*([=<>!~;#].*)?", re.IGNORECASE)
#: The first pip that knows --python.
_PIP_FOR_OTHERS: Final = (22, 3)
#: What of our own environment the tools must not see: they would take our packages for installed there.
_HIDDEN: Final = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "PIP_TARGET", "PIP_USER", "PIP_PREFIX")
#: Settings of the tools, which could name more to install from than the wheels that were shipped.
_SETTINGS: Final = ("PIP_", "UV_")
#: Those that name no packages, only where to work.
_NO_SOURCES: Final = ("PIP_CACHE_DIR", "UV_CACHE_DIR")

#: How often it is looked for builders that a supervisor before this one had, and how many seconds the kernel gets for each.
_KILL_ROUNDS: Final = 100
_KILL_PAUSE: Final = 0.01

#: Gives a file by its SHA-256 for as long as it is entered.
Fetched = Callable[[str], AbstractContextManager[Path]]


class BuildFailed(SquallError):
    """An environment that cannot be built: why, and how its log ends."""


@dataclass(frozen=True)
class Environment:
    """What goes into one: digests of files, as they were shipped."""

    key: str
    requirements: str
    wheels: str | None


class Environments:
    """All environments of one supervisor."""

    def __init__(self, root: Path, uv: str | None = None, python: str | None = None) -> None:
        """`uv`: the program, None to look for it on PATH, "" to do without. `python`: whose environments they are."""
        self.root = root
        self._uv = shutil.which("uv") if uv is None else uv or None
        self._python = python or sys.executable
        self._constraints = constraints()
        self._building: set[int] = set()
        self._lock = threading.Lock()
        self._closed = False

    def of(self, files: Mapping[str, str]) -> Environment | None:
        """The environment that a topology needs which brought these files; None: it requires nothing."""
        requirements = files.get("requirements")
        if requirements is None:
            return None
        wheels = files.get("wheels")
        parts = [
            requirements,
            wheels,
            sys.version,
            sys.implementation.cache_tag,
            self._python,
            self._constraints,
        ]
        key = hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:40]
        return Environment(key, requirements, wheels)

    def log(self, key: str) -> Path:
        """The log of a building."""
        return self.root / key / LOG

    def make(self, environment: Environment, fetched: Fetched) -> str:
        """The Python of an environment, which is built if it is not there. `BuildFailed`, `OSError`, or what `fetched` says."""
        directory = self.root / environment.key
        python = directory / "venv" / "bin" / "python"
        if (directory / READY).exists() and python.exists():
            return str(python)
        make_directory(directory)
        (directory / READY).unlink(missing_ok=True)  # somebody has removed what was ready
        for name in ("venv", "wheels"):
            shutil.rmtree(directory / name, ignore_errors=True)
        with fetched(environment.requirements) as file:
            (directory / "requirements.txt").write_bytes(_requirements(file))
        if environment.wheels is not None:
            with fetched(environment.wheels) as file:
                archives.unpack(file, directory / "wheels", _MOST_WHEELS, _MOST_WHEELS)
        (directory / "constraints.txt").write_text("".join(f"{line}\n" for line in self._constraints))
        try:
            self._build(directory, python)
        except BaseException:
            shutil.rmtree(directory / "venv", ignore_errors=True)
            raise
        shutil.rmtree(directory / "wheels", ignore_errors=True)
        (directory / READY).write_text("")
        return str(python)

    def close(self) -> None:
        """End what is being built."""
        with self._lock:
            self._closed = True
            for pid in self._building:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGKILL)

    def sweep(self) -> None:
        """End and remove what a supervisor before this one was building. A builder that it was just starting when it was
        killed has begun, and bears its mark: before that the lock of the state directory is not free."""
        with contextlib.suppress(OSError):
            for name in os.listdir(self.root):
                if not (self.root / name / READY).exists():
                    _end_builders(self.root / name)
                    for part in ("venv", "wheels"):
                        shutil.rmtree(self.root / name / part, ignore_errors=True)

    def _build(self, directory: Path, python: Path) -> None:
        with open(directory / LOG, "ab") as log:
            if log.tell() > _MOST_LOG:
                log.truncate(0)
            log.write(time.strftime("# %Y-%m-%d %H:%M:%S\n").encode())
            for name, command in self._steps(directory, python):
                log.write(f"$ {' '.join(command)}\n".encode())
                log.flush()
                begin = log.tell()
                ending = self._run(command, directory, log)
                if ending:
                    raise BuildFailed(f"{name} ended with {ending}{_tail(directory / LOG, begin)}")
                if name == "pip" or name == "uv":
                    _add_our_folders(directory / "venv")

    def _steps(self, directory: Path, python: Path) -> list[tuple[str, list[str]]]:
        """What is run: (what it is called, command)."""
        venv = str(directory / "venv")
        what = ["-r", "requirements.txt", "-c", "constraints.txt"]
        pip_alone, uv_alone = [], []
        if (directory / "wheels").is_dir():
            what = ["--no-index", "--find-links", "wheels", *what]
            pip_alone, uv_alone = ["--isolated"], ["--no-config"]
        check = [
            str(python),
            "-c",
            "from squall.distributions import check_ours; check_ours(); import worker.process",
        ]
        if self._uv is not None:
            return [
                ("uv venv", [self._uv, "venv", "--no-progress", "--python", self._python, venv]),
                (
                    "uv",
                    [self._uv, "pip", "install", *uv_alone, "--no-progress", "--python", str(python), *what],
                ),
                ("the check that workers can run there", check),
            ]
        how = ["--no-input", "--disable-pip-version-check", "--progress-bar", "off"]
        if _own_pip_serves_others():
            make = [self._python, "-m", "venv", "--without-pip", venv]
            pip = [self._python, "-m", "pip", "--python", str(python)]
        else:
            make, pip = [self._python, "-m", "venv", venv], [str(python), "-m", "pip"]
        return [
            ("venv", make),
            ("pip", [*pip, *pip_alone, "install", *how, *what]),
            ("the check that workers can run there", check),
        ]

    def _run(self, command: Sequence[str], directory: Path, log: BinaryIO) -> str:
        """Run one step; how it ended, "" when all is well."""
        environ = tools_environment(os.environ, alone=(directory / "wheels").is_dir())
        environ[MARK] = str(directory)
        with self._lock:  # so that `close` sees every process
            if self._closed:
                raise BuildFailed("the supervisor ends")
            process = subprocess.Popen(
                list(command),
                cwd=directory,
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            self._building.add(process.pid)
        try:
            return _ending(process.wait(LONGEST_STEP))
        except subprocess.TimeoutExpired:
            return f"SIGKILL, since it was not done after {LONGEST_STEP:.0f} s"
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # also what it left behind
            process.wait()
            with self._lock:
                self._building.discard(process.pid)


def tools_environment(inherited: Mapping[str, str], alone: bool) -> dict[str, str]:
    """What pip and uv are run with. `alone`: without any settings of this host's that could name something to install."""
    environ = {name: value for name, value in inherited.items() if name not in _HIDDEN}
    if not alone:
        return environ
    kept = {
        name: value
        for name, value in environ.items()
        if name in _NO_SOURCES or not name.startswith(_SETTINGS)
    }
    return {**kept, "PIP_CONFIG_FILE": os.devnull}


def _own_pip_serves_others() -> bool:
    """Whether our own pip can install into an environment, which then needs none: that saves seconds."""
    try:
        major, minor = importlib.metadata.version("pip").split(".")[:2]
        return (int(major), int(minor)) >= _PIP_FOR_OTHERS
    except (importlib.metadata.PackageNotFoundError, ValueError):
        return False


def constraints() -> tuple[str, ...]:
    """Our own versions of what workers need, as pip wants them written."""
    found = []
    for name in WORKERS_NEED:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found.append(f"{name}=={importlib.metadata.version(name)}")
    return tuple(found)


def _requirements(file: Path) -> bytes:
    """The text of a requirements file without ourselves."""
    with open(file, "rb") as opened:
        data = opened.read(_MOST_REQUIREMENTS + 1)
    if len(data) > _MOST_REQUIREMENTS:
        raise BuildFailed(f"the requirements are longer than {_MOST_REQUIREMENTS:,} bytes")
    try:
        lines = data.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise BuildFailed(f"the requirements are not UTF-8: {error}") from None
    kept = [f"# {line}  (it is here)" if _OURSELVES.fullmatch(line) else line for line in lines]
    return "".join(f"{line}\n" for line in kept).encode()


def _add_our_folders(venv: Path) -> None:
    """Have the environment find Squall, and what workers need, where we find them: after all of its own.

    Only when everything is installed: pip would take what is in these folders for installed.
    """
    standard = {os.path.realpath(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib")}
    standard |= {os.path.join(folder, "lib-dynload") for folder in standard}
    folders = [folder for folder in own_folders() if os.path.realpath(folder) not in standard]
    for packages in venv.glob("lib/python*/site-packages"):
        (packages / "squall.pth").write_text("".join(f"{folder}\n" for folder in folders))


def _end_builders(directory: Path) -> None:
    """End the processes that are still building in a directory."""
    for _ in range(_KILL_ROUNDS):  # what one starts while we look is seen in the next round
        found = list(marked(all_processes(), MARK, directory))
        if not found:
            return
        for stat in found:
            with contextlib.suppress(OSError):  # it has ended by itself
                os.kill(stat.pid, signal.SIGKILL)
        time.sleep(_KILL_PAUSE)


def _ending(status: int) -> str:
    return "" if not status else f"status {status}" if status > 0 else signal.Signals(-status).name


def _tail(log: Path, begin: int) -> str:
    """The last lines of a log from there on, each on a line of its own."""
    try:
        with open(log, "rb") as file:
            file.seek(max(begin, os.fstat(file.fileno()).st_size - _TAIL_BYTES))
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return ""
    lines = [line.rstrip()[:_LINE_LENGTH] for line in text.splitlines() if line.strip()]
    return "".join(f"\n  {line}" for line in lines[-_TAIL_LINES:])
