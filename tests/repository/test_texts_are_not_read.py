"""No code parses text that other code wrote for people: facts travel as values, and a sentence is made once, at the end.

The test looks for our own texts in decisions: a regular expression with words in it, a substring or prefix test, a comparison,
a split or a replacement by a text that reads like a sentence. A sentence-like text has a space between two words, or is a
separator of sentences (": ", "; "). Texts of other programs may be parsed: each place that does so is listed below with the
program.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = (
    "topology_api",
    "squall",
    "nimbus",
    "supervisor",
    "worker",
    "squall_io",
    "local_cluster",
    "squall_cli",
)

#: Methods of a text that find a part of it.
READING = {
    "startswith", "endswith", "partition", "rpartition", "split", "rsplit", "removeprefix", "removesuffix", "replace",
    "find", "rfind", "index", "rindex", "count",
}  # fmt: skip
REGULAR = {"compile", "match", "search", "fullmatch", "findall", "finditer", "sub", "subn", "split"}
SENTENCE = re.compile(r"[A-Za-z']{2,},? +[A-Za-z']{2,}|^[:;] |[:;] $")

#: A file, or "file:text that is read", with the author of the text, or the closed set of values that it belongs to.
ALLOWED = {
    "squall/cluster/zookeeper/server.py:Mode: ": "ZooKeeper's answer to `srvr`",
    "squall/transport/refusals.py:an address that could not be read": "a key: the peer without an address",
    "squall_cli/commands/lifecycle.py:not open yet": "a value of ComponentStatus.idle",
    "squall_cli/commands/run.py:cut off": "a value of the run's outcome, as in its JSON",
    "squall_cli/local/summary.py:cut off": "a value of the run's outcome, as in its JSON",
    "squall_cli/packing/loading.py": "Python: names of frozen modules, and its ImportError",
    "squall_cli/terminal/component_table.py": "values of ComponentStatus.idle, and a column's head",
    "squall_io/kit/queue_spout.py:handed over": "a value of Failure.reason",
    "squall_io/nats/connection.py": "nats-py and the server: permissions have no code",
    "squall_io/nats/publishing.py": "nats-py: what its errors begin with",
    "squall_io/rabbitmq/client.py:{}: ": "what the kit's reason for an unreadable message begins with",
    "squall_io/rabbitmq/faults.py": "the server: one code has several reasons",
    "squall_io/redis/connection.py": "Redis: errors without a code",
    "squall_io/sql/reaching.py": "drivers and SQLite: a login that is refused, and a file that is locked or away, have no code",
    "squall_io/spark/replay/run.py": "Python's ModuleNotFoundError, by way of Spark",
    "squall_io/spark/results/job_errors.py": "Spark, its Java and its Python workers",
    "squall_io/spark/sink/errors.py": "Spark",
    "squall/stores/hadoop_errors.py": "Hadoop's exceptions",
    "squall/stores/java/java_calls.py": "py4j's exceptions",
    "squall/dead_letters/contents.py:squall dead letters 1\n": "the line with which a file of letters begins",
    "worker/tasks/final_failures.py:handed over": "a value of Failure.reason",
    "worker/tasks/spout_letters.py:handed over": "a value of Failure.reason",
    "supervisor/exits.py": "faulthandler's output",
    "supervisor/silence.py": "faulthandler's output",
    "worker/errors/reports.py:<frozen importlib": "Python: names of frozen modules",
    "worker/process/daemon.py": "whether a report's first line is one of the two hints",
}


#: Values of constants, by their module and name.
Constants = dict[tuple[str, str], list[str]]


def reads(module: str, tree: ast.Module, constants: Constants) -> Iterator[str]:
    """Every text by which a module reads others."""
    known = {name: values for (owner, name), values in constants.items() if owner == module}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                known[alias.asname or alias.name] = constants.get((node.module or "", alias.name), [])
    for node in ast.walk(tree):
        for operand in operands(node):
            yield from (text for text in texts(operand, known) if SENTENCE.search(text))


def operands(node: ast.AST) -> Iterator[ast.expr]:
    """The texts that this expression searches for, or compares with."""
    if isinstance(node, ast.Compare):
        sides = [node.left, *node.comparators]
        for operator, left, right in zip(node.ops, sides, sides[1:], strict=False):
            if isinstance(operator, (ast.In, ast.NotIn)):
                yield left
                if isinstance(right, (ast.Tuple, ast.List, ast.Set, ast.Name)):
                    yield right
            elif isinstance(operator, (ast.Eq, ast.NotEq)):
                yield from (left, right)
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        of_re = isinstance(node.func.value, ast.Name) and node.func.value.id == "re"
        if (of_re and node.func.attr in REGULAR) or (not of_re and node.func.attr in READING):
            yield from node.args[:1]
    elif isinstance(node, ast.MatchValue):
        yield node.value


def texts(node: ast.expr, constants: dict[str, list[str]]) -> Iterator[str]:
    """The possible values of an expression that is a text, as far as the source shows them."""
    if isinstance(node, ast.Constant) and isinstance(node.value, (str, bytes)):
        yield node.value if isinstance(node.value, str) else node.value.decode(errors="replace")
    elif isinstance(node, ast.JoinedStr):
        yield "".join(
            "".join([*texts(part, constants)]) if isinstance(part, ast.Constant) else "{}"
            for part in node.values
        )
    elif isinstance(node, (ast.Tuple, ast.List, ast.Set)):
        for element in node.elts:
            yield from texts(element, constants)
    elif isinstance(node, ast.BinOp):
        yield from texts(node.left, constants)
        yield from texts(node.right, constants)
    elif isinstance(node, ast.Name):
        yield from constants.get(node.id, ())


def constants_of(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """(name, value) of the module's constants that are texts, or several of them."""
    for node in tree.body:
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                if isinstance(target, ast.Name) and target.id.isupper():
                    yield from ((target.id, text) for text in texts(node.value, {}))


@cache
def product() -> dict[str, str]:
    """The source of every module, by its path."""
    files = (file for package in PACKAGES for file in sorted((ROOT / package).rglob("*.py")))
    return {file.relative_to(ROOT).as_posix(): file.read_text() for file in files}


def found_in(sources: dict[str, str]) -> set[str]:
    """ "file:text that is read" of all modules."""
    trees = {path: ast.parse(source) for path, source in sources.items()}
    constants: Constants = {}
    for path, tree in trees.items():
        for name, value in constants_of(tree):
            constants.setdefault((module_of(path), name), []).append(value)
    return {
        f"{path}:{text}" for path, tree in trees.items() for text in reads(module_of(path), tree, constants)
    }


def module_of(path: str) -> str:
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def test_no_module_parses_our_own_texts() -> None:
    read = found_in(product())
    assert sorted(one for one in read if not {one, one.partition(":")[0]} & ALLOWED.keys()) == []
    used = {*read, *(one.partition(":")[0] for one in read)}
    assert sorted(ALLOWED.keys() - used) == [], "these texts are not read any more"


@pytest.mark.parametrize(
    "source",
    [
        'known = "was rolled back" in note',
        'CANNOT_BUILD = "its environment cannot be built"\nbuilt = [note for note in notes if CANNOT_BUILD in note]',
        'text = what.replace("cannot be", "is being")',
        'why = note.partition(": ")[2]',
        'mine = note.startswith(f"the version {id} was rolled back")',
        'AGAIN = re.compile(r"; it is (?:started|tried) again (?:at once|in \\\\d+ s)")',
        'if str(error) == "the store is away":\n    pass',
        'if text in ("it is down", "it is up"):\n    pass',
        'raised = f": {call}() raised " in head',
        'match text:\n    case "it is down":\n        pass',
    ],
)
def test_a_module_that_reads_a_text_is_found(source: str) -> None:
    assert found_in({"a.py": source})


def test_a_constant_of_another_module_is_found_where_it_is_read() -> None:
    assert found_in(
        {"a.py": 'WAITS = "waits for a slot"', "b.py": "from a import WAITS\nlate = note.endswith(WAITS)"}
    ) == {"b.py:waits for a slot"}


@pytest.mark.parametrize(
    "source",
    [
        'if event.kind == "rolled_back":\n    pass',
        'raise ValueError(f"it is not {what} at all")',
        'first, _, rest = line.partition("=")',
        'words = re.compile(r"[a-z]+ +[0-9]+")',
        'click.echo("one line. " + "another line")',
        'title = " of several words ".join(parts)',
    ],
)
def test_texts_for_people_and_parts_of_formats_are_allowed(source: str) -> None:
    assert found_in({"a.py": source}) == set()
