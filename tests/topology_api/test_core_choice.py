"""Which core runs: the compiled one only if it was built from exactly the sources beside it, and never a mixture."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest

from topology_api import core_choice
from topology_api.core_choice import CHOICE, HOT, Choice, choose, fingerprint, stamp_path

ROOT = Path(__file__).resolve().parents[2]
SUFFIX = str(sysconfig.get_config_var("EXT_SUFFIX"))
#: The core of this run according to the environment: "compiled", "plain"; "": the available one.
EXPECTED = os.environ.get("SQUALL_EXPECT_CORE", "")
#: Imports the hot modules; prints the choice, the file of each, and the compiler's marks.
ASK = """
import importlib, json
from topology_api.core_choice import CHOICE, HOT
modules = [importlib.import_module(name) for name in HOT]
compiled = [type(module.__loader__).__name__ == "ExtensionFileLoader" for module in modules]
print(json.dumps([str(CHOICE), [module.__file__ for module in modules], compiled]))
"""


def path_of(root: Path, module: str, ending: str) -> Path:
    return root.joinpath(*module.split(".")).with_suffix("").parent / (module.rpartition(".")[2] + ending)


def file_of(module: str, ending: str) -> str:
    """The text for users."""
    return module.replace(".", "/") + ending


@pytest.fixture
def built(tmp_path: Path) -> Path:
    """A folder as left by a build: sources, some with types, extensions and their stamp."""
    for number, module in enumerate(HOT):
        source = path_of(tmp_path, module, ".py")
        source.parent.mkdir(parents=True, exist_ok=True)
        source.write_text(f"NUMBER = {number}\n")
        path_of(tmp_path, module, SUFFIX).write_bytes(b"an extension")
        if number % 2:
            path_of(tmp_path, module, ".pxd").write_text("cdef int number\n")
    Path(stamp_path(str(tmp_path))).write_text(fingerprint(str(tmp_path)), encoding="ascii")
    return tmp_path


def test_extensions_of_exactly_these_sources_run(built: Path) -> None:
    assert choose(str(built)) == Choice(True)
    assert str(choose(str(built))) == "compiled"


@pytest.mark.parametrize("pure", ["1", "yes", "no", " "])
def test_squall_pure_runs_plain_python(built: Path, pure: str) -> None:
    assert choose(str(built), pure) == Choice(False, f"SQUALL_PURE is {pure}")
    assert str(choose(str(built), pure)) == f"plain (SQUALL_PURE is {pure})"


@pytest.mark.parametrize("pure", ["", "0"])
def test_a_false_squall_pure_changes_nothing(built: Path, pure: str) -> None:
    assert choose(str(built), pure).compiled


def test_without_a_stamp_nothing_was_compiled(built: Path) -> None:
    os.remove(stamp_path(str(built)))
    chosen = choose(str(built))
    assert not chosen.compiled and chosen.why.startswith("not compiled for this Python")


def test_an_empty_folder_was_not_compiled(tmp_path: Path) -> None:
    assert not choose(str(tmp_path)).compiled


def test_the_stamp_of_another_python_is_ignored(built: Path) -> None:
    stamp = Path(stamp_path(str(built)))
    stamp.rename(stamp.with_name("core.cpython-27m-x86_64-linux-gnu.so.stamp"))
    assert not choose(str(built)).compiled


@pytest.mark.parametrize(
    "garbage", [b"", b"\n", b"\xff\xfe\x00", "é".encode(), b"topology_api.tuples.py\n" * 3]
)
def test_an_empty_stamp_is_no_stamp(built: Path, garbage: bytes) -> None:
    Path(stamp_path(str(built))).write_bytes(garbage)
    assert not choose(str(built)).compiled


def test_an_unreadable_stamp_is_no_stamp(built: Path) -> None:
    stamp = Path(stamp_path(str(built)))
    stamp.unlink()
    stamp.mkdir()
    assert not choose(str(built)).compiled


@pytest.mark.parametrize("module", HOT)
def test_one_changed_byte_of_any_source_makes_the_extensions_stale(built: Path, module: str) -> None:
    source = path_of(built, module, ".py")
    before = source.stat()
    source.write_bytes(source.read_bytes()[:-2] + b"?\n")
    os.utime(source, ns=(before.st_atime_ns, before.st_mtime_ns))  # its time does not matter
    assert choose(str(built)) == Choice(
        False, f"{file_of(module, '.py')} was changed since it was compiled: install again"
    )


Change = Callable[[Path], object]
CHANGES: dict[str, tuple[Change, str]] = {
    "types changed": (
        lambda root: path_of(root, HOT[1], ".pxd").write_text("cdef double x\n"),
        file_of(HOT[1], ".pxd"),
    ),
    "types added": (
        lambda root: path_of(root, HOT[0], ".pxd").write_text("cdef int x\n"),
        file_of(HOT[0], ".pxd"),
    ),
    "types removed": (lambda root: path_of(root, HOT[1], ".pxd").unlink(), file_of(HOT[1], ".pxd")),
    "a source removed": (lambda root: path_of(root, HOT[2], ".py").unlink(), file_of(HOT[2], ".py")),
    "a line less": (lambda root: path_of(root, HOT[3], ".py").write_bytes(b""), file_of(HOT[3], ".py")),
}


@pytest.mark.parametrize("name", CHANGES)
def test_sources_that_differ_from_the_stamp_are_named(built: Path, name: str) -> None:
    change, named = CHANGES[name]
    change(built)
    assert choose(str(built)) == Choice(False, f"{named} was changed since it was compiled: install again")


def test_a_newly_hot_module_is_not_compiled_yet(built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core_choice, "HOT", (*HOT, "worker.new"))
    path_of(built, "worker.new", ".py").write_text("NEW = 1\n")
    assert choose(str(built)) == Choice(False, "the extension of worker.new is missing: install again")
    path_of(built, "worker.new", SUFFIX).write_bytes(b"of another build")
    assert choose(str(built)).why == "worker/new.py was changed since it was compiled: install again"


def test_a_module_that_is_no_longer_hot_makes_the_extensions_stale(
    built: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(core_choice, "HOT", HOT[:-1])
    assert not choose(str(built)).compiled


@pytest.mark.parametrize("module", HOT)
def test_one_missing_extension_means_that_none_runs(built: Path, module: str) -> None:
    path_of(built, module, SUFFIX).unlink()
    assert choose(str(built)) == Choice(False, f"the extension of {module} is missing: install again")


# The choice of a process of its own


def ask(root: Path, pure: str | None) -> tuple[str, list[str], list[bool]]:
    """The output of a process that runs from a folder."""
    environment = {**os.environ, "PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1"}
    environment.pop("SQUALL_PURE", None)
    if pure is not None:
        environment["SQUALL_PURE"] = pure
    done = subprocess.run(
        [sys.executable, "-c", ASK], env=environment, cwd=root, capture_output=True, text=True, check=True
    )
    chosen, files, compiled = json.loads(done.stdout)
    return chosen, files, compiled


def test_with_squall_pure_every_hot_module_is_the_python_source() -> None:
    chosen, files, compiled = ask(ROOT, "1")
    assert chosen == "plain (SQUALL_PURE is 1)"
    assert files == [str(path_of(ROOT, module, ".py")) for module in HOT]
    assert not any(compiled)


@pytest.mark.parametrize("pure", [None, "", "0"])
def test_without_squall_pure_the_existing_build_runs_completely_or_not_at_all(pure: str | None) -> None:
    chosen, files, compiled = ask(ROOT, pure)
    there = choose(str(ROOT))
    assert chosen == str(there)
    ending = SUFFIX if there.compiled else ".py"
    assert files == [str(path_of(ROOT, module, ending)) for module in HOT]
    assert set(compiled) == {there.compiled}


@pytest.mark.skipif(not EXPECTED, reason="SQUALL_EXPECT_CORE does not say which core this run is of")
def test_the_core_of_this_run_is_the_requested_one() -> None:
    assert EXPECTED in ("compiled", "plain")
    assert ("compiled" if CHOICE.compiled else "plain") == EXPECTED, str(CHOICE)


@pytest.mark.skipif(
    EXPECTED != "compiled", reason="the compiled core is not what this run is expected to be of"
)
@pytest.mark.parametrize("module", HOT)
def test_each_hot_module_of_a_compiled_run_is_an_extension(module: str) -> None:
    loaded = importlib.import_module(module)
    assert type(loaded.__loader__).__name__ == "ExtensionFileLoader"
    assert loaded.__file__ == str(path_of(ROOT, module, SUFFIX))


def test_every_module_with_c_types_is_hot() -> None:
    packages = {module.partition(".")[0] for module in HOT}
    typed = {path for package in packages for path in (ROOT / package).rglob("*.pxd")}
    assert typed
    assert typed <= {path_of(ROOT, module, ".pxd") for module in HOT}


# A stale extension in an editable installation, which runs from the checkout itself

#: Executes one tuple through the core; prints the choice and the emissions of the bolt's task.
RUN = """
import sys
from local_cluster.testing import run_bolt
from topology_api import Bolt
from topology_api.core_choice import CHOICE

class Twice(Bolt):
    outputs = ("number",)
    def execute(self, tup):
        self.emit((2 * tup["number"],))

run = run_bolt(Twice(), [(1,), (2,)], source_fields="number")
print(CHOICE)
print(run.emitted(), "worker.tasks.bolt" in sys.modules)
"""


def run_in(root: Path) -> list[str]:
    """The output of RUN if the package runs from this folder."""
    environment = {**os.environ, "PYTHONPATH": str(root)}
    environment.pop("SQUALL_PURE", None)
    command = [sys.executable, "-W", "ignore", "-c", RUN]
    done = subprocess.run(command, env=environment, cwd=root, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.slow
def test_an_edited_source_runs_and_its_stale_extension_never_does(tmp_path: Path) -> None:
    if not choose(str(ROOT)).compiled:
        assert EXPECTED != "compiled", str(choose(str(ROOT)))
        pytest.skip(f"the core is {choose(str(ROOT))}")
    packages = {name.name for name in ROOT.iterdir() if (name / "__init__.py").exists()}
    for package in packages - {"tests", "build"}:
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    compiled = run_in(tmp_path)
    assert compiled == ["compiled", "[(2,), (4,)] True"]

    source = tmp_path / "worker" / "tasks" / "bolt.py"
    text = source.read_text(encoding="utf-8")
    line = "    tup._values = batch.rows[position]\n"
    assert line in text
    source.write_text(text.replace(line, "    tup._values = (21,)\n"), encoding="utf-8")
    stale = run_in(tmp_path)
    assert stale == [
        "plain (worker/tasks/bolt.py was changed since it was compiled: install again)",
        "[(42,), (42,)] True",
    ]

    source.write_text(text, encoding="utf-8")  # restored: the compiled source is its own again
    assert run_in(tmp_path) == compiled
