"""Several threads read their first records at once: msgspec must have its descriptions of types by then."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
#: Eight threads read their first record at the same moment; without `build_type_info` most such processes crash.
READ_AT_ONCE = """
import sys, threading
from squall.cluster.records import TopologyRecord, decode, encode
from tests.squall.cluster.small_records import WORDS

sys.setswitchinterval(1e-6)
data = encode(WORDS)
barrier = threading.Barrier(8)
read = []

def first_read():
    barrier.wait()
    read.append(decode(TopologyRecord, data))

threads = [threading.Thread(target=first_read) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(len(read))
"""
MODULES = ("squall", "nimbus", "supervisor", "worker", "squall_io", "local_cluster", "squall_cli")


def test_threads_may_read_their_first_records_at_once() -> None:
    for _ in range(10):
        done = subprocess.run(
            [sys.executable, "-c", READ_AT_ONCE], cwd=ROOT, capture_output=True, text=True, timeout=60
        )
        assert (done.returncode, done.stdout) == (0, "8\n"), done.stderr


def names_of(part: ast.AST) -> set[str]:
    """The names in an expression that are not themselves called, without those that only precede a dot."""
    walked = list(ast.walk(part))
    called = {node.func for node in walked if isinstance(node, ast.Call)}
    before_dots = {node.value for node in walked if isinstance(node, ast.Attribute)}
    nodes = [node for node in walked if node not in called and node not in before_dots]
    return {node.id for node in nodes if isinstance(node, ast.Name)} | {
        node.attr for node in nodes if isinstance(node, ast.Attribute)
    }


def given_away(tree: ast.AST) -> set[str]:
    """The names that something else gets: as arguments of calls, other than questions for a type, and as values of a dict."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Dict):
            found |= {name for value in node.values for name in names_of(value)}
        if isinstance(node, ast.Call) and ast.unparse(node.func) not in ("isinstance", "issubclass"):
            given = [word.value for word in node.keywords if word.arg != "default_factory"]
            found |= {name for part in (*node.args, *given) for name in names_of(part)}
    return found


def test_each_struct_that_is_read_has_its_description_built() -> None:
    """A struct whose class is given to something may be read by it; most structs are values that are only made.

    The structs of the HTTP API are built by `nimbus/http/table.py`: the command line has one thread, and starts faster
    without. Those of `worker/epochs/parking.py` are parts of a snapshot. No reader gets those of `supervisor/daemon.py`. A
    registry's answer has a few.
    """
    trees = {
        str(path.relative_to(ROOT)): ast.parse(path.read_text(encoding="utf-8"))
        for package in MODULES
        for path in sorted((ROOT / package).rglob("*.py"))
    }
    given = {name for tree in trees.values() for name in given_away(tree)}
    structs = {
        path: {
            node.name
            for node in ast.walk(tree)
            if isinstance(node, ast.ClassDef) and any("Struct" in names_of(base) for base in node.bases)
        }
        for path, tree in trees.items()
    }
    without = [
        path
        for path, names in structs.items()
        if names & given
        if "build_type_info(" not in (text := (ROOT / path).read_text(encoding="utf-8"))
        and "Decoder(_" not in text
    ]
    api = [
        f"squall/api/{name}.py"
        for name in (
            "answers",
            "backups",
            "cluster_answers",
            "errors",
            "folder_probes",
            "letters",
            "requests",
            "versions",
        )
    ]
    assert without == [
        *api,
        "supervisor/daemon.py",
        "worker/epochs/parking.py",
        "squall_io/kit/schemas/registry.py",
    ]
