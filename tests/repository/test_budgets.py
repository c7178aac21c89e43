"""The repository stays readable: small files, short functions, names that say what is inside."""

from __future__ import annotations

import ast
import gc
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MAX_FILE_LINES = 500
MAX_FUNCTION_LINES = 60
MAX_METHODS = 30
MAX_CONSTRUCTOR_PARAMETERS = 10
#: Constructors that may take more, by keyword: a context takes all of a task's surroundings (users' tests call it too), and
#: HdfsLines what `FileSpout` takes and what says where files and positions are.
MANY_PARAMETERS = {
    "topology_api/context.py: Context",
    "squall_io/http/spout.py: HttpSpout",
    "squall_io/kafka/sink.py: KafkaSink",
    "squall_io/kafka/spout.py: KafkaSpout",
    "squall_io/mqtt/sink.py: MqttSink",
    "squall_io/mqtt/spout.py: MqttSpout",
    "squall_io/nats/spout.py: NatsSpout",
    "squall_io/redis/spout.py: RedisStreamSpout",
    "squall_io/spark/spouts/lines.py: HdfsLines",
}
CATCH_ALL = {
    "base", "common", "helper", "helpers", "misc", "shared", "stuff", "tools", "util", "utilities", "utils",
}  # fmt: skip
PACKAGES = (
    "topology_api", "squall", "nimbus", "supervisor", "worker", "squall_io", "local_cluster", "squall_cli",
)  # fmt: skip
OTHER_FOLDERS = ("examples", "benchmarks", "tests", "scripts", ".ci")

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def modules(*folders: str) -> Iterator[tuple[str, ast.Module, str]]:
    """(path from the root, syntax tree, text) of every Python file below these folders."""
    for folder in folders:
        yield from modules_below(folder)


@cache
def modules_below(folder: str) -> list[tuple[str, ast.Module, str]]:
    """The same for one folder; each file is read and parsed once."""
    paths = sorted((ROOT / folder).rglob("*.py"))
    texts = [(str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")) for path in paths]
    gc.disable()  # nothing of a tree is garbage, and three quarters of the time go into the search for some
    try:
        return [(path, ast.parse(text), text) for path, text in texts]
    finally:
        gc.enable()


@cache
def definitions_below(folder: str) -> list[tuple[str, Definition]]:
    """(path from the root, node) of every function and class below a folder; each tree is walked once."""
    return [
        (path, node)
        for path, tree, _ in modules_below(folder)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    ]


def classes() -> Iterator[tuple[str, ast.ClassDef]]:
    """(path from the root, node) of every class of the product."""
    for folder in PACKAGES:
        for path, node in definitions_below(folder):
            if isinstance(node, ast.ClassDef):
                yield path, node


def test_every_package_of_the_design_exists_and_names_squall() -> None:
    # squall/packages/distributions.py recognises our packages by these words.
    missing = []
    for package in PACKAGES:
        init = ROOT / package / "__init__.py"
        tree = ast.parse(init.read_text(encoding="utf-8")) if init.exists() else ast.Module([], [])
        if "Squall" not in (ast.get_docstring(tree) or ""):
            missing.append(f"{package}/__init__.py")
    assert not missing, f"no first docstring that names Squall in: {missing}"


def test_no_file_is_longer_than_its_budget() -> None:
    scripts = [path for folder in ("scripts", ".ci") for path in (ROOT / folder).iterdir() if path.is_file()]
    lengths = {path: text.count("\n") for path, _, text in modules(*PACKAGES, *OTHER_FOLDERS)}
    lengths.update({str(path.relative_to(ROOT)): path.read_text().count("\n") for path in scripts})
    too_long = {path: lines for path, lines in lengths.items() if lines > MAX_FILE_LINES}
    assert not too_long, f"over {MAX_FILE_LINES} lines; which two things are they? {too_long}"


def test_no_function_is_longer_than_its_budget() -> None:
    too_long = []
    for folder in (*PACKAGES, *OTHER_FOLDERS):
        for path, node in definitions_below(folder):
            if not isinstance(node, ast.ClassDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if lines > MAX_FUNCTION_LINES:
                    too_long.append(f"{path}:{node.lineno}: {node.name} has {lines} lines")
    assert not too_long, f"over {MAX_FUNCTION_LINES} lines: {too_long}"


def methods_by_class() -> Iterator[tuple[str, list[ast.FunctionDef | ast.AsyncFunctionDef]]]:
    """("path: class", methods with properties) of every class of the product."""
    for path, node in classes():
        methods = [m for m in node.body if isinstance(m, ast.FunctionDef | ast.AsyncFunctionDef)]
        yield f"{path}: {node.name}", methods


def test_no_class_has_more_methods_than_its_budget() -> None:
    too_many = {name: len(methods) for name, methods in methods_by_class() if len(methods) > MAX_METHODS}
    assert not too_many, f"over {MAX_METHODS} methods; which two things are they? {too_many}"


def test_no_constructor_takes_more_parameters_than_its_budget() -> None:
    # Written constructors: the fields of a record are its contents, not its dependencies.
    too_many = {}
    for name, methods in methods_by_class():
        for method in methods:
            if method.name in ("__init__", "__new__"):
                arguments = method.args
                taken = len(arguments.posonlyargs + arguments.args + arguments.kwonlyargs) - 1
                if taken > MAX_CONSTRUCTOR_PARAMETERS:
                    too_many[name] = taken
    assert too_many.keys() == MANY_PARAMETERS, f"over {MAX_CONSTRUCTOR_PARAMETERS} parameters: {too_many}"


def test_no_constructor_of_a_data_class_takes_private_state() -> None:
    taken = [
        f"{path}:{field.lineno}: {ast.unparse(field.target)}"
        for path, node in classes()
        if any("dataclass" in ast.unparse(d) for d in node.decorator_list)
        for field in node.body
        if isinstance(field, ast.AnnAssign) and ast.unparse(field.target).startswith("_") and field.value
        if "init=False" not in ast.unparse(field.value)
    ]
    assert not taken, f"state that a caller could pass: give the field init=False: {taken}"


def test_no_module_or_folder_has_a_catch_all_name() -> None:
    named = [
        path
        for path, _, _ in modules(*PACKAGES, *OTHER_FOLDERS)
        if CATCH_ALL & {part.removesuffix(".py").strip("_") for part in Path(path).parts}
    ]
    assert not named, f"a name that says nothing of what is inside: {named}"


def test_every_module_opens_with_a_docstring() -> None:
    silent = [path for path, tree, _ in modules(*PACKAGES, *OTHER_FOLDERS) if not ast.get_docstring(tree)]
    assert not silent, f"no first docstring with the module's purpose and limits: {silent}"


def test_an_init_file_of_a_package_only_exports_names() -> None:
    busy = []
    for path, tree, _ in modules(*PACKAGES):
        if path.endswith("__init__.py"):
            busy += [f"{path}:{node.lineno}" for node in tree.body if not hands_on(node)]
    assert not busy, f"more than imports, __all__, __version__ and lazy names: {busy}"


def hands_on(statement: ast.stmt) -> bool:
    """A docstring, an import (or one for the type checker alone), a constant, or a lazy `__getattr__`."""
    if isinstance(statement, ast.Expr):
        return isinstance(statement.value, ast.Constant)
    if isinstance(statement, ast.If):
        return ast.unparse(statement.test) == "TYPE_CHECKING"
    if isinstance(statement, ast.FunctionDef):
        return statement.name in ("__getattr__", "__dir__")
    return isinstance(statement, ast.Import | ast.ImportFrom | ast.Assign | ast.AnnAssign)


def test_tests_are_in_no_package_and_have_unique_file_names() -> None:
    # With import mode importlib a test module's name is its path; mypy and people still mix up equal names.
    paths = [Path(path) for path, _, _ in modules("tests")]
    assert not [str(path) for path in paths if path.name == "__init__.py"]
    names = [path.name for path in paths if path.name != "conftest.py"]
    assert sorted(names) == sorted(set(names))


def test_no_todo_is_left_in_the_code() -> None:
    marks = re.compile("TO" "DO|FIX" r"ME|\bX" r"XX\b")  # the last one also ends patterns of times
    left = [
        f"{path}:{number}"
        for path, _, text in modules(*PACKAGES, *OTHER_FOLDERS)
        for number, line in enumerate(text.splitlines(), 1)
        if marks.search(line)
    ]
    assert not left, f"left for later: {left}"
