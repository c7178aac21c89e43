"""Which module may speak to which library, and which may not speak to the machine at all.

The floors between our own packages are import-linter's to check.

Read from the source, so that an import inside a function counts.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

from topology_api.core_choice import HOT

ROOT = Path(__file__).resolve().parents[2]
OURS = (
    "topology_api", "squall", "nimbus", "supervisor", "worker", "squall_io", "local_cluster", "squall_cli",
)  # fmt: skip

# library -> the folders and files that may import it; a library that is not here is imported nowhere.
MAY_IMPORT = {
    "click": ("squall_cli/",),
    "cloudpickle": ("topology_api/",),
    "confluent_kafka": ("squall_io/",),
    "cython": tuple(
        f"{module.replace('.', '/')}.py" for module in HOT
    ),  # says types to the compiler; not there at run time
    "h11": ("squall/http_connections.py",),
    "kazoo": ("squall/cluster/zookeeper/client.py",),
    "msgspec": ("squall/transport/columns.py", "squall/transport/control.py"),
    "nacl": ("squall/sealing.py",),
    "pandas": ("squall_io/spark/",),
    "py4j": ("squall_io/spark/",),
    "pyarrow": ("squall_io/spark/",),
    "pyspark": ("squall_io/spark/",),
    "rich": ("squall_cli/",),
    "starlette": ("nimbus/http/",),
    "uvicorn": ("nimbus/http/server.py", "squall/http_connections.py", "supervisor/log_server.py"),
    "yaml": ("squall/settings.py", "squall_cli/"),
    "zmq": ("squall/transport/sockets.py",),
}

# The cores: values in, values out. Time and chance come as arguments; bytes and threads are for others.
CORES = (
    *(f"nimbus/{name}.py" for name in ("lifecycle", "progress", "scheduler", "tasks")),
    *(
        f"squall/transport/{name}.py"
        for name in (
            "columns",
            "control",
            "credit",
            "exchange",
            "frames",
            "link",
            "refusals",
            "streams",
            "wire",
        )
    ),
    *(f"worker/{name}.py" for name in ("completion", "cycles", "executor", "links", "outbox", "replay")),
    *(f"worker/{name}.py" for name in ("router", "tracker", "wheel", "xors")),
)
THE_MACHINE = {
    "asyncio", "concurrent", "http", "io", "multiprocessing", "os", "pathlib", "queue", "select", "selectors",
    "shutil", "signal", "socket", "ssl", "subprocess", "tempfile", "threading", "time", "urllib",
}  # fmt: skip


def imports(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """(line, top-level name) of every absolute import, at the top of the module or inside a function."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name.partition(".")[0]) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module is not None:
            yield node.lineno, node.module.partition(".")[0]


def foreign(path: str, text: str) -> list[str]:
    known = {*sys.stdlib_module_names, *OURS}
    return [
        f"{path}:{line} imports {name}"
        for line, name in imports(ast.parse(text))
        if name not in known and not path.startswith(MAY_IMPORT.get(name, ("nowhere",)))
    ]


def test_each_library_is_imported_only_where_it_belongs() -> None:
    found = [
        line
        for package in OURS
        for path in sorted((ROOT / package).rglob("*.py"))
        for line in foreign(str(path.relative_to(ROOT)), path.read_text(encoding="utf-8"))
    ]
    assert not found, f"not where MAY_IMPORT allows it: {found}"


def test_the_check_sees_imports_in_functions_and_lets_the_right_module_through() -> None:
    hidden = "def connect():\n    import zmq\n    from kazoo.client import KazooClient\n"
    assert foreign("worker/links.py", hidden) == [
        "worker/links.py:2 imports zmq",
        "worker/links.py:3 imports kazoo",
    ]
    assert foreign("squall/transport/sockets.py", "import zmq\nimport os\nfrom . import frames\n") == []
    assert foreign("nimbus/http.py", "import requests\n") == ["nimbus/http.py:1 imports requests"]


def test_the_cores_know_nothing_of_the_machine() -> None:
    assert not (gone := [path for path in CORES if not (ROOT / path).exists()]), (
        f"name the cores anew: {gone}"
    )
    found = []
    for path in CORES:
        tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
        found += [f"{path}:{line} imports {name}" for line, name in imports(tree) if name in THE_MACHINE]
        found += [
            f"{path}:{node.lineno} calls {node.func.id}"
            for node in ast.walk(tree)
            if isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in ("open", "print", "input")
        ]
    assert not found, f"a core that does I/O: {found}"
