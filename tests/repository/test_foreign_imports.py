"""Which module may use which library, and which may not use the machine at all.

import-linter checks the floors between our own packages.

The imports are read from the source, so that one inside a function counts.
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

# library -> the folders and files that may import it; a library that is not listed is imported nowhere.
MAY_IMPORT = {
    "boto3": ("squall/stores/s3_bucket.py",),
    "botocore": ("squall/stores/s3_bucket.py",),
    "click": ("squall_cli/",),
    "cloudpickle": ("topology_api/",),
    "confluent_kafka": ("squall_io/",),
    "cython": tuple(
        f"{module.replace('.', '/')}.py" for module in HOT
    ),  # declares types for the compiler; absent at run time
    "fastavro": ("squall_io/kit/schemas/avro.py",),
    "google": ("squall_io/kit/schemas/protobuf.py",),
    "h11": ("squall/http/connections.py",),
    "httpx": ("squall_io/http/posting.py",),
    "jsonschema": ("squall_io/kit/schemas/json_schema.py",),
    "kazoo": ("squall/cluster/zookeeper/client.py",),
    "msgspec": (  # frozen structs for values: such a class is made in a thirtieth of the time of a frozen data class
        "topology_api/state_rules.py",
        "topology_api/state_types.py",
        "worker/",
        "squall_io/aws/kinesis_shards.py",
        "squall_io/http/stored_requests.py",
        "squall_io/http/targets.py",
        "squall_io/kafka/",
        "squall_io/kit/",
        "squall_io/lines/json_lines.py",
        "squall_io/postgres/",
        "squall_io/redis/",
        "squall_io/spark/",
        "squall/",
        "nimbus/",
        "supervisor/",
        "local_cluster/",
        "squall_cli/",
    ),
    "nacl": ("squall/security/sealing.py",),
    "pandas": ("squall_io/spark/",),
    "psycopg": ("squall_io/postgres/connection.py",),
    "py4j": ("squall/stores/java/", "squall_io/spark/"),
    "pyarrow": ("squall_io/files/parquet.py", "squall_io/spark/"),
    "pyspark": ("squall/stores/java/", "squall_io/spark/"),
    "redis": ("squall_io/redis/",),
    "referencing": ("squall_io/kit/schemas/json_schema.py",),  # it comes with jsonschema
    "rich": ("squall_cli/",),
    "sqlalchemy": ("squall_io/sql/",),
    "starlette": ("nimbus/http/",),
    "uvicorn": ("squall/http/", "squall_io/http/serving.py"),
    "yaml": ("squall/settings.py", "squall_cli/"),
    "zmq": ("squall/transport/carriers/sockets.py",),
}

# The cores: values in, values out. Time and randomness come as arguments; bytes and threads are for others. A folder means
# every file in it.
CORES = (
    "nimbus/lifecycle/",
    "nimbus/placement/",
    "squall_io/files/tails.py",
    "squall_io/http/admitting.py",
    "squall_io/http/answers.py",
    "squall_io/http/segments.py",
    "squall_io/http/settling.py",
    "squall_io/http/stored_requests.py",
    "squall_io/kafka/messages.py",
    "squall_io/kit/",
    "squall_io/lines/",
    "squall_io/postgres/confirming.py",
    "squall_io/postgres/pgoutput.py",
    "squall_io/postgres/transactions.py",
    "squall_io/postgres/values.py",
    "squall_io/rabbitmq/confirming.py",
    "squall_io/rabbitmq/settling.py",
    "squall_io/redis/entries.py",
    "squall_io/redis/ids.py",
    "squall_io/redis/progress.py",
    "squall_io/redis/values.py",
    "squall_io/spark/manifest/",
    "supervisor/desired_state.py",
    "supervisor/orders.py",
    "supervisor/plan.py",
    "squall/transport/",
    "worker/errors/",
    "worker/routing/",
    "worker/state/",
    "worker/epochs/",
    "worker/tracking/",
    "worker/tasks/",
    "worker/loop/",
)
# The module that runs a core, in the folder of that core: threads, clocks and files.
AROUND_THE_CORES = {
    "squall/transport/carriers/admission.py",
    "squall/transport/carriers/other_end.py",
    "squall/transport/carriers/same_host.py",
    "squall/transport/carriers/sockets.py",
    "squall_io/kit/calls.py",  # a thread that makes calls which block
    "squall_io/kit/publishing.py",  # pauses between two attempts, in that thread
    "squall_io/kit/queue_task.py",  # a thread that keeps a connection alive
    "squall_io/kit/schemas/avro.py",  # io.BytesIO: fastavro reads and writes a file
    "squall_io/kit/schemas/registry.py",  # asks a registry
    "squall_io/kit/server_address.py",  # URLs, and files of certificates
    "squall_io/kit/secrets.py",  # the environment and files of secrets
    "squall_io/spark/manifest/commit.py",  # sleeps between two attempts: the default of an argument
    "worker/errors/reports.py",  # os.path: to whom the file of a frame belongs
    "worker/loop/epoch_store.py",  # the host's name, and a check of the folder
    "worker/loop/store_calls.py",  # a thread that calls the store
    "worker/state/contents.py",  # sleeps for 0 s: lets the task finish a change that another thread has seen half of
    "worker/state/readable.py",  # io.BytesIO: an unpickler reads a file
    "worker/tasks/lone_calls.py",  # a lock, for calls in several threads
    "worker/tasks/runners.py",
    "worker/tasks/scratch.py",
    "worker/tasks/simulated_async.py",
    "worker/tasks/yielding.py",  # a lock, for calls that run beside the loop
}
# What tasks may ask the machine, to notice calls from foreign threads and in forked children.
QUESTIONS = {"threading.get_ident", "os.getpid"}
ASKING = "worker/tasks/"
PRINTS = ("open", "print", "input")
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
    assert foreign("worker/loop/links.py", hidden) == [
        "worker/loop/links.py:2 imports zmq",
        "worker/loop/links.py:3 imports kazoo",
    ]
    assert (
        foreign("squall/transport/carriers/sockets.py", "import zmq\nimport os\nfrom . import frames\n") == []
    )
    assert foreign("nimbus/http.py", "import requests\n") == ["nimbus/http.py:1 imports requests"]


def core_files() -> list[str]:
    paths = [ROOT / path for path in CORES]
    assert not (gone := [path for path in paths if not path.exists()]), f"rename these cores: {gone}"
    files = [file for path in paths for file in (path.rglob("*.py") if path.is_dir() else [path])]
    names = {str(file.relative_to(ROOT)) for file in files}
    assert names >= AROUND_THE_CORES, f"rename these: {AROUND_THE_CORES - names}"
    return sorted(names - AROUND_THE_CORES)


def uses_of_the_machine(path: str, tree: ast.Module) -> Iterator[str]:
    """Forbidden actions of a core: imports, and calls of `open` and the like. Questions of tasks are allowed."""
    used = {
        f"{node.value.id}.{node.attr}"
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
    } | {
        f"{node.module}.{alias.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    for line, name in imports(tree):
        questions = {use for use in used if use.startswith(f"{name}.")}
        if name in THE_MACHINE and not (path.startswith(ASKING) and questions <= QUESTIONS):
            yield f"{path}:{line} imports {name}"
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in PRINTS:
            yield f"{path}:{node.lineno} calls {node.func.id}"


def test_the_cores_do_not_use_the_machine() -> None:
    found = [
        line
        for path in core_files()
        for line in uses_of_the_machine(path, ast.parse((ROOT / path).read_text(encoding="utf-8")))
    ]
    assert not found, f"a core that does I/O: {found}"


def test_a_task_may_ask_for_its_thread_and_process_and_nothing_else() -> None:
    asks = ast.parse("import os\nimport threading\nmine = os.getpid(), threading.get_ident()\n")
    assert list(uses_of_the_machine("worker/tasks/task.py", asks)) == []
    assert len(list(uses_of_the_machine("worker/loop/worker.py", asks))) == 2
    writes = ast.parse("import os\nos.getpid()\nos.remove('x')\nopen('y')\n")
    assert len(list(uses_of_the_machine("worker/tasks/task.py", writes))) == 2
