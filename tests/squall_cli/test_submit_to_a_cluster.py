"""`squall submit` to real daemons: workers have the files that travelled, and --wait ends when it promises."""

from __future__ import annotations

import json
import shutil
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.squall_cli.run_process import ROOT
from tests.squall_cli.small_cluster import SmallCluster, small_cluster
from tests.zookeeper_servers import eventually

pytestmark = pytest.mark.slow

SPOUT = """
from topology_api import Bolt, Fields, Replay, Spout, TopologyBuilder

class Words(Spout):
    outputs = Fields("word")
    replay = Replay(max_attempts=1)
    def open(self, context):
        self.left = list(enumerate(("a", "b")))
    def next_tuple(self):
        if not self.left:
            return 0.05
        number, word = self.left.pop(0)
        self.emit((word,), message_id=number)

def topology(path=""):
    builder = TopologyBuilder("mine")
    builder.set_spout("words", Words())
    builder.set_bolt("work", Work(path)).shuffle_grouping("words")
    return builder.build()

class Work(Bolt):
    def __init__(self, path):
        self.path = path
    def execute(self, tup):
        with open(self.path, "a") as file:
            file.write(say(tup["word"]) + "\\n")
"""


def project(folder: Path, say: str, **files: str) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "my_topology.py").write_text(SPOUT + say)
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    return folder


def test_the_example_of_the_readme_is_submitted_unchanged(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    with small_cluster(tmp_path) as cluster:
        done = cluster.squall(
            "submit", "examples/word_count.py", "--wait", "--", str(ROOT / "README.md"), cwd=tmp_path
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith("word-count is ")
        again = cluster.squall("submit", "examples/word_count.py", "--wait", cwd=tmp_path)
        assert again.returncode == 1
        assert "'word-count' exists already" in again.stderr


def test_workers_have_the_files_that_travelled_and_not_their_original_folder(tmp_path: Path) -> None:
    say = (
        "\ndef say(word):\n    import pathlib, my_late\n"
        "    return my_late.PREFIX + word + pathlib.Path(__file__).with_name('ending.txt').read_text()\n"
    )
    folder = project(tmp_path / "project", say, my_late="PREFIX = 'late '\n")
    (folder / "ending.txt").write_text("!")
    out = tmp_path / "out.txt"
    with small_cluster(tmp_path) as cluster:
        arguments = ("--resource", "ending.txt", "--inactive", "--wait", "--", str(out))
        done = cluster.squall("submit", "my_topology.py", *arguments, cwd=folder)
        assert done.returncode == 0, done.stderr
        shutil.rmtree(folder)
        assert cluster.squall("activate", "mine").returncode == 0
        wait_for_lines(cluster, out, 2)
    assert sorted(out.read_text().split("\n")) == ["", "late a!", "late b!"]


def wait_for_lines(cluster: SmallCluster, out: Path, number: int) -> None:
    try:
        eventually(lambda: out.exists() and out.read_text().count("\n") >= number)
    except AssertionError:
        pytest.fail(cluster.squall("status", "mine", "--json").stdout)


def wheel(folder: Path) -> None:
    """A hand-made wheel: a package that is not installed anywhere."""
    folder.mkdir()
    name = "squall_test_shout-1.0"
    files = {
        "squall_test_shout.py": "def shout(word):\n    return word.upper()\n",
        f"{name}.dist-info/METADATA": "Metadata-Version: 2.1\nName: squall-test-shout\nVersion: 1.0\n",
        f"{name}.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{each},,\n" for each in [*files, f"{name}.dist-info/RECORD"])
    with zipfile.ZipFile(folder / f"{name}-py3-none-any.whl", "w") as archive:
        for each, text in {**files, f"{name}.dist-info/RECORD": record}.items():
            archive.writestr(each, text)


def test_requirements_are_installed_from_wheels_and_a_failed_build_is_reported(tmp_path: Path) -> None:
    folder = project(
        tmp_path / "project",
        "\ndef say(word):\n    from squall_test_shout import shout\n    return shout(word)\n",
    )
    wheel(folder / "wheels")
    (folder / "requirements.txt").write_text("squall-test-shout==1.0\n")
    (folder / "missing.txt").write_text("squall-test-shout==9.9\n")
    out = tmp_path / "out.txt"
    with small_cluster(tmp_path) as cluster:
        options = ("--wheels", "wheels", "--wait", "--json")
        done = cluster.squall(
            "submit",
            "my_topology.py",
            "--requirements",
            "requirements.txt",
            *options,
            "--",
            str(out),
            cwd=folder,
        )
        assert done.returncode == 0, done.stderr
        wait_for_lines(cluster, out, 2)
        done = cluster.squall(
            "submit",
            "my_topology.py",
            "--name",
            "other",
            "--requirements",
            "missing.txt",
            *options,
            "--",
            str(out),
            cwd=folder,
        )
        assert done.returncode == 1
        assert "its environment cannot be built" in json.loads(done.stdout)["failure"]
        assert "9.9" in done.stderr, "the output of the installer"
    assert sorted(out.read_text().split()) == ["A", "B"]


def test_a_new_version_takes_over_one_that_does_not_come_up_is_rolled_back_and_the_first_returns(
    tmp_path: Path,
) -> None:
    folder = project(tmp_path / "project", "\ndef say(word):\n    return 'first ' + word\n")
    out = tmp_path / "out.txt"

    def submit(cluster: SmallCluster, *options: str) -> tuple[int, dict[str, Any], str]:
        arguments = ("submit", "my_topology.py", "--wait", "--json", *options, "--", str(out))
        done = cluster.squall(*arguments, cwd=folder)
        return done.returncode, json.loads(done.stdout or "{}"), done.stderr

    with small_cluster(tmp_path, {"nimbus.replace.timeout.secs": 6}) as cluster:
        status, told, errors = submit(cluster)
        assert status == 0, errors
        first = told["id"]
        project(folder, "\ndef say(word):\n    return 'second ' + word\n")
        check = ("submit", "my_topology.py", "--check")
        refused = cluster.squall(*check, "--", str(out), cwd=folder)
        assert refused.returncode == 1 and "'mine' exists already" in refused.stderr
        set_queue = ("--replace", "-o", "topology.queue.size=64", "-n", "9")
        done = cluster.squall(*check, *set_queue, "--", str(out), cwd=folder)
        assert done.returncode == 0, done.stderr
        assert done.stdout == "mine can be submitted; nothing was changed\n"
        assert "changed: topology.queue.size: 4096 -> 64" in done.stderr, done.stderr
        assert "not enough slots: it asks for 9 workers, and there is room for 2" in done.stderr
        kept = json.loads(cluster.squall("history", "mine", "--json").stdout)["versions"]
        assert [each["id"] for each in kept] == [first]
        status, told, errors = submit(cluster, "--replace")
        assert (status, told["failure"]) == (0, None), errors
        second = told["id"]
        project(
            folder, "\nclass Broken(Work):\n    def prepare(self, context):\n        1 / 0\nWork = Broken\n"
        )
        status, told, errors = submit(cluster, "--replace")
        assert status == 1, errors
        assert "was rolled back, the previous version has the name again" in told["failure"]
        rolled_back = told["id"]
        assert json.loads(cluster.squall("status", "mine", "--json").stdout)["id"] == second
        assert sorted(set(out.read_text().splitlines())) == ["first a", "first b", "second a", "second b"]
        status, told, errors = submit(cluster, "--replace", "--inactive")
        assert status == 0 and "on trial, which begins at `squall activate mine`" in errors, errors
        done = cluster.squall("rollback", "mine", "--wait", "--json")
        assert done.returncode == 0, done.stderr
        ended = json.loads(done.stdout)
        assert (ended["id"], ended["rolled_back"], ended["state"]) == (second, told["id"], "ACTIVE")
        out.unlink()
        done = cluster.squall("rollback", "mine", "--wait", "--json")
        assert done.returncode == 0, done.stderr
        returned = json.loads(done.stdout)
        assert returned["repeats"] == first
        wait_for_lines(cluster, out, 2)
        assert sorted(set(out.read_text().splitlines())) == ["first a", "first b"]
        kept = json.loads(cluster.squall("history", "mine", "--json").stdout)["versions"]
        assert [(each["id"], each["how"], each["repeats"]) for each in kept] == [
            (returned["id"], "running", first),
            (ended["rolled_back"], "rolled back", None),
            (rolled_back, "rolled back", None),
            (second, "replaced", None),
            (first, "replaced", None),
        ]
