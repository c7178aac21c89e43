"""The names in `topology_api`, and modules that it does not import."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import topology_api

ROOT = Path(topology_api.__file__).parent.parent
HEAVY = (
    "cloudpickle",
    "yaml",
    "zmq",
    "kazoo",
    "pyspark",
    "click",
    "rich",
    "numpy",
    "asyncio",
    "logging",
    "json",
)


def test_it_exports_everything_on_the_page() -> None:
    page = (
        "Fields Stream Spout Replay Failure Bolt BatchBolt FailTuple Tuple Context TopologyBuilder"
        " Grouping Hook SquallError InvalidTopology InvalidConfig EmitError Topology"
    )
    assert set(page.split()) <= set(topology_api.__all__)
    assert all(hasattr(topology_api, name) for name in topology_api.__all__)
    assert list(topology_api.__all__) == sorted(topology_api.__all__)


def test_modules_are_attributes_and_dir_names_what_is_not_yet_imported() -> None:
    code = (
        "import topology_api, sys; names = dir(topology_api)\n"
        "assert {*topology_api.__all__, 'errors', 'builder', '__name__'} <= set(names)\n"
        "assert 'topology_api.builder' not in sys.modules\n"
        "assert topology_api.errors.SquallError is topology_api.SquallError\n"
        "assert not hasattr(topology_api, 'nothing')"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, timeout=60)


def test_importing_it_imports_nothing_heavy() -> None:
    code = f"import sys; from topology_api import *; print([one for one in {HEAVY!r} if one in sys.modules])"
    # -S: no site-packages, whose .pth files may import things of their own.
    found = subprocess.run(
        [sys.executable, "-S", "-c", code], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    assert found.stdout.strip() == "[]"


def test_it_imports_only_the_standard_library_and_itself_at_top_level() -> None:
    foreign = set()
    for path in (ROOT / "topology_api").glob("*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.Import):
                foreign |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                foreign.add(node.module.split(".")[0])
    assert foreign - set(sys.stdlib_module_names) == {"topology_api"}


def test_public_classes_and_their_methods_are_documented() -> None:
    missing = []
    for name in topology_api.__all__:
        thing = getattr(topology_api, name)
        if not thing.__doc__:
            missing.append(name)
        for method, value in vars(thing).items():
            if not method.startswith("_") and callable(value) and not value.__doc__:
                missing.append(f"{name}.{method}")
    assert missing == []
