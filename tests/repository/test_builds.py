"""setup.py builds all extensions or none, from exactly the existing sources, whatever earlier builds left.

The tests use a small package of two hot modules, with the checkout's own setup.py and core_choice.py: Squall's take a minute.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SUFFIX = str(sysconfig.get_config_var("EXT_SUFFIX"))
CONFIGURATION = """
[metadata]
name = small
version = 1
[options]
packages = topology_api, worker
[options.package_data]
* = *.pxd
"""
SOURCES = {
    "topology_api/one.py": "def number(x):\n    return x + 1\n",
    "worker/two.py": "def number(x):\n    return x + 2\n",
    "worker/two.pxd": "cpdef long long number(long long x) except? -1\n",
    "worker/cold.py": "def number(x):\n    return x + 3\n",
}
#: A C compiler that fails at the second module.
HALF = '#!/bin/sh\ncase "$*" in *two*) echo "gives up" >&2; exit 3;; esac\nexec cc "$@"\n'

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


class Checkout:
    """A folder with sources, built by commands."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        choice = (ROOT / "topology_api" / "core_choice.py").read_text(encoding="utf-8")
        start = choice.index("HOT: Final = (")
        end = choice.index("\n)\n", start)
        self.choice = (
            choice[:start] + 'HOT: Final = (\n    "topology_api.one",\n    "worker.two",' + choice[end:]
        )
        for package in ("topology_api", "worker"):
            self.write(f"{package}/__init__.py", "from topology_api import core_choice\n")
        for name, text in SOURCES.items():
            self.write(name, text)
        self.write("topology_api/core_choice.py", self.choice)
        self.write("setup.cfg", CONFIGURATION)
        shutil.copy(ROOT / "setup.py", folder / "setup.py")

    def write(self, name: str, text: str, modified: float | None = None) -> None:
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
        if modified is not None:
            os.utime(path, (modified, modified))

    def python(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        kept = {
            key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "SQUALL_"))
        } | variables
        kept.setdefault("SQUALL_BUILD_FLAGS", "-O0")  # a third of the time
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=self.folder,
            env=kept,
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )

    def build(self, *how: str, **variables: str) -> str:
        """Run setup.py, which must succeed; return its output."""
        done = self.python("setup.py", "-q", *how, **variables)
        assert done.returncode == 0, done.stderr
        return done.stderr

    def wheel(self, **variables: str) -> tuple[str, set[str]]:
        """A wheel's name without its version, and its files."""
        shutil.rmtree(self.folder / "dist", ignore_errors=True)
        self.build("bdist_wheel", **variables)
        (path,) = (self.folder / "dist").iterdir()
        with zipfile.ZipFile(path) as archive:
            return path.stem.removeprefix("small-1-"), set(archive.namelist())

    def compiled(self, below: str = ".") -> list[str]:
        """The names of all compiled files and stamps."""
        found = (path for path in (self.folder / below).rglob("*") if path.name.endswith((".so", ".stamp")))
        return sorted(path.name.removesuffix(".stamp").removesuffix(SUFFIX) for path in found)

    def times(self, below: str) -> dict[str, int]:
        """When each extension was made."""
        return {path.name: path.stat().st_mtime_ns for path in self.folder.glob(f"{below}/**/*{SUFFIX}")}

    def runs(self) -> str:
        """The core that runs, and the reports of its modules."""
        said = "from topology_api import core_choice, one; from worker import cold, two; print("
        done = self.python("-c", f"{said}core_choice.CHOICE, one.number(0), two.number(0), cold.number(0))")
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    """An environment in which a core can be compiled."""
    lacking = [name for name in ("Cython", "setuptools") if importlib.util.find_spec(name) is None]
    lacking += [name for name in ("cc",) if shutil.which(name) is None]
    if lacking:
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(f"missing: {', '.join(lacking)}")
    (tmp_path / "half").write_text(HALF)
    (tmp_path / "half").chmod(0o755)
    (tmp_path / "checkout").mkdir()
    return Checkout(tmp_path / "checkout")


def test_an_in_place_build_has_extensions_and_a_stamp_and_edited_sources_never_run_stale(
    checkout: Checkout,
) -> None:
    assert checkout.runs() == "plain (not compiled for this Python; see docs/compiled-core.md) 1 2 3"
    checkout.build("build_ext", "--inplace")
    assert checkout.runs() == "compiled 1 2 3"
    for package in ("topology_api", "worker"):
        assert not [*(checkout.folder / package).glob("*.c")]

    # The files of a fresh checkout are newer than build/, and so are those of a Cython that pip has just installed.
    made = checkout.times("build/lib*")
    for name in SOURCES:
        os.utime(checkout.folder / name)
    checkout.build("build_ext", "--inplace")
    assert checkout.runs() == "compiled 1 2 3"
    assert len(made) == 3 and checkout.times("build/lib*") == made, "nothing is compiled again"

    # An archive that is unpacked over an older one brings the times of its own files.
    checkout.write("worker/two.py", "def number(x):\n    return x + 20\n", modified=1e9)
    assert checkout.runs() == "plain (worker/two.py was changed since it was compiled: install again) 1 20 3"
    checkout.build("build_ext", "--inplace")
    assert checkout.runs() == "compiled 1 20 3"
    checkout.write("worker/two.pxd", "cpdef int number(int x) except? -1\n", modified=1e9)
    assert checkout.runs().startswith("plain (worker/two.pxd was changed")
    checkout.build("build_ext", "--inplace")
    assert checkout.runs() == "compiled 1 20 3"
    too_large = checkout.python("-c", "from worker import two; two.number(1 << 40)")
    assert "OverflowError" in too_large.stderr, "the new type is compiled in"


@pytest.mark.soak  # the others' builds leave extensions behind, too; this one has the name of a module that is cold now
def test_a_formerly_hot_module_does_not_run_compiled(checkout: Checkout) -> None:
    hot = checkout.choice.replace('    "worker.two",', '    "worker.two",\n    "worker.cold",')
    checkout.write("topology_api/core_choice.py", hot)
    checkout.build("build_ext", "--inplace")
    assert checkout.compiled("worker") == ["cold", "two"]

    checkout.write("topology_api/core_choice.py", checkout.choice)
    checkout.write("worker/cold.py", "def number(x):\n    return x + 30\n")
    assert checkout.runs().startswith("plain (worker/cold.py was changed")
    assert checkout.runs().endswith(" 1 2 30")
    checkout.build("build_ext", "--inplace")
    assert checkout.runs() == "compiled 1 2 30"
    assert "worker/cold.py" in (files := checkout.wheel()[1])
    assert f"worker/cold{SUFFIX}" not in files


def test_when_the_compiler_fails_half_way_nothing_compiled_remains_and_a_line_says_so(
    checkout: Checkout, tmp_path: Path
) -> None:
    half = {"CC": str(tmp_path / "half")}
    said = checkout.build("build_ext", "--inplace", **half)
    (line,) = [line for line in said.splitlines() if line.startswith("squall: ")]
    begins = f"squall: the core is installed as plain Python, not compiled (command '{half['CC']}' "
    assert line.startswith(begins)
    assert line.removeprefix(begins).rstrip(".)").split()[-2:] in (["code", "3"], ["status", "3"])
    assert checkout.compiled() == []
    checkout.build("build_ext", "--inplace")
    assert checkout.runs() == "compiled 1 2 3"
    checkout.build("build_ext", "--inplace", **half)
    assert (checkout.compiled(), checkout.runs()[:5]) == ([], "plain"), "earlier files are gone, too"

    refused = checkout.python("setup.py", "-q", "build", SQUALL_BUILD="compiled", **half)
    assert refused.returncode != 0
    assert checkout.compiled() == []
    unknown = checkout.python("setup.py", "-q", "build", SQUALL_BUILD="quickly")
    assert (unknown.returncode, unknown.stderr.strip()) == (
        1,
        "SQUALL_BUILD is 'quickly'; it may be 'plain' or 'compiled'",
    )


def test_wheels_have_the_requested_files_whatever_earlier_builds_left(
    checkout: Checkout, tmp_path: Path
) -> None:
    sources = {f"{package}/__init__.py" for package in ("topology_api", "worker")} | {
        *SOURCES,
        "topology_api/core_choice.py",
    }
    modules = ("topology_api/one", "topology_api/_cython_shared", "worker/two")
    extensions = {f"{module}{SUFFIX}" for module in modules} | {f"topology_api/core{SUFFIX}.stamp"}

    def files(names: set[str]) -> set[str]:
        return {name for name in names if ".dist-info/" not in name}

    tag, names = checkout.wheel()
    assert tag.startswith(f"cp{sys.version_info[0]}{sys.version_info[1]}-")
    assert files(names) == sources | extensions
    for variables in ({"SQUALL_BUILD": "plain"}, {"CC": str(tmp_path / "half")}):
        tag, names = checkout.wheel(**variables)
        assert (tag, files(names)) == ("py3-none-any", sources)
    assert files(checkout.wheel()[1]) == sources | extensions
