"""Every example runs as its header says: by `squall run`, in a process of its own, in real time."""

from __future__ import annotations

import ast
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
#: Examples that need Spark, or are jobs for it, are run by tests/spark/test_reprocess_examples.py, those of Kafka by
#: test_kafka_orders.py and tests/hdfs/test_clicks_to_hdfs.py.
NAMES = sorted(
    path.stem
    for path in (ROOT / "examples").glob("*.py")
    if path.stem not in ("clicks_to_hdfs", "demo", "flights", "kafka_orders")
    and not path.stem.startswith("reprocess_")
)
#: The result of each example whose header gives it a fixed input: (trees acked, trees failed for good).
TREES = {
    "accounts": (2000, 0),
    "async_lookups": (500, 0),
    "batches_to_sqlite": (5000, 0),
    "custom_grouping": (12, 0),
    "join_streams": (6, 2),
    "own_replay": (10, 4),
    "poison_tuple": (3, 1),
}

pytestmark = pytest.mark.slow


def command_in_header(name: str) -> list[str]:
    """The `squall run` line of an example's header."""
    text = (ROOT / "examples" / f"{name}.py").read_text(encoding="utf-8")
    lines = (ast.get_docstring(ast.parse(text)) or "").splitlines()
    [line] = [line for line in lines if line.startswith("    squall run ")]
    return shlex.split(line)


def run(arguments: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("SQUALL_")}
    return subprocess.run(
        [sys.executable, "-m", "squall_cli", *arguments],
        cwd=folder,
        env=environment | {"PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("name", NAMES)
def test_the_command_of_the_header_works(name: str, tmp_path: Path) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    (tmp_path / "README.md").write_text("one two two\n", encoding="utf-8")
    arguments = command_in_header(name)[1:]
    if name == "rolling_counts":
        arguments[arguments.index("10")] = "1.5"
    arguments = ["run", "--json", *[a.replace("/tmp/", f"{tmp_path}/") for a in arguments[1:]]]

    done = run(arguments, tmp_path)

    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert summary["components"] and "Traceback" not in done.stderr
    if name in TREES:
        assert (summary["trees"]["acked"], summary["trees"]["failed"]) == TREES[name]


def test_the_poison_tuple_ends_the_command_with_status_1_unless_failures_are_allowed(tmp_path: Path) -> None:
    done = run(["run", str(ROOT / "examples" / "poison_tuple.py")], tmp_path)

    assert done.returncode == 1
    assert "temperature=warm" in done.stderr and "1 tree" in done.stderr
