"""`pip install .` and `pip install -e .` both give a working `squall`, in an environment with nothing else.

Needs the package index for the dependencies: without it skipped at home, an error in CI.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NOT_COPIED = shutil.ignore_patterns(".*", "build", "dist", "*.egg-info", "__pycache__")

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

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def command(*arguments: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a command as a user would who has no settings of Python or pip of this checkout."""
    environment = {
        key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "SQUALL_"))
    }
    environment["PIP_DISABLE_PIP_VERSION_CHECK"] = "1"
    return subprocess.run(
        [str(argument) for argument in arguments],
        cwd=cwd,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )


def skip_without_index(result: subprocess.CompletedProcess[str]) -> None:
    text = result.stderr.lower()
    if result.returncode != 0 and "connection" in text and os.environ.get("CI") != "true":
        pytest.skip(f"the package index cannot be reached: {text.strip().splitlines()[-1]}")


def install(tmp_path: Path, *how: str) -> tuple[Path, Path]:
    """(the environment's bin, the copy of this checkout that was installed)"""
    source = tmp_path / "checkout"
    shutil.copytree(ROOT, source, ignore=NOT_COPIED)
    made = command(sys.executable, "-m", "venv", tmp_path / "venv", cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    bin_folder = tmp_path / "venv" / "bin"
    installed = command(bin_folder / "python", "-m", "pip", "install", "--quiet", *how, source, cwd=tmp_path)
    no_index = (
        "No matching distribution found" in installed.stderr or "connection" in installed.stderr.lower()
    )
    if installed.returncode != 0 and no_index and os.environ.get("CI") != "true":
        pytest.skip(f"the package index cannot be reached: {installed.stderr.strip().splitlines()[-1]}")
    assert installed.returncode == 0, installed.stderr
    return bin_folder, source


@pytest.mark.parametrize("how", [(), ("--editable",)], ids=["copy", "editable"])
def test_an_installation_gives_a_working_squall(tmp_path: Path, how: tuple[str, ...]) -> None:
    bin_folder, source = install(tmp_path, *how)

    version = command(bin_folder / "squall", "version", cwd=tmp_path)
    assert (version.returncode, version.stderr) == (0, "")
    assert version.stdout.startswith("squall 0.")

    # The packages are where this way of installing puts them, and nothing but packages was installed.
    where = command(
        bin_folder / "python",
        "-c",
        "import topology_api, local_cluster, importlib.util as u;"
        "print(topology_api.__file__); print([u.find_spec(n) for n in ('tests', 'examples', 'benchmarks')])",
        cwd=tmp_path,
    )
    home = source if how else bin_folder.parent
    assert where.stdout.splitlines()[0].startswith(str(home)), where
    assert how or where.stdout.splitlines()[1] == "[None, None, None]"

    (tmp_path / "mine.py").write_text(TOPOLOGY)
    run = command(bin_folder / "squall", "run", "mine.py", "--json", cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    assert isinstance(json.loads(run.stdout), dict)


def test_the_demo_needs_nothing_but_python(tmp_path: Path) -> None:
    source = tmp_path / "checkout"
    shutil.copytree(ROOT, source, ignore=NOT_COPIED)
    without_java = f"JAVA_HOME={tmp_path}/none"  # with Java it goes on, and installs 600 MB
    demo = command("env", without_java, source / "scripts" / "demo", cwd=tmp_path)
    skip_without_index(demo)
    assert demo.returncode == 0, demo.stdout + demo.stderr
    assert demo.stdout.startswith("1/3 ")
    assert "The demo ends here. With Java it goes on with Spark: JAVA_HOME is" in demo.stderr
    assert (source / ".venv-demo").is_dir(), "in the checkout, whatever folder it was started from"
