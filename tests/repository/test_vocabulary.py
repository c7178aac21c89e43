"""The words of the glossary in CONTRIBUTING.md: names of the product use them, and not the words that they replace.

Public functions and methods are not called `look`, `take`, `tell`, `say` or `note`: a name says what is read or written. Class
names are unique in the product. No public name has a word that the glossary replaces.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

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

#: Names of functions that say nothing.
VAGUE = frozenset({"look", "take", "tell", "say", "note"})
#: Words, in the parts of a public name that `_` separates, that the glossary replaces.
REPLACED = frozenset({"anew", "beat", "nobody", "pulse", "seat", "somebody", "told", "whoever"})
#: Public class names that exist twice on purpose, each with its reason.
TWICE: dict[str, str] = {}

#: Methods of interfaces that are not ours.
FILE_LIKE = {("nimbus/files/stored_files.py", "tell")}

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def definitions() -> Iterator[tuple[str, Definition]]:
    """(place, definition) of every class and function of the product."""
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, Definition):
                    yield f"{path.relative_to(ROOT)}:{node.lineno}", node


def is_against_the_glossary(name: str) -> bool:
    """Whether a public name is vague or uses a replaced word."""
    return not name.startswith("_") and (name in VAGUE or not REPLACED.isdisjoint(name.lower().split("_")))


def test_public_names_use_the_words_of_the_glossary() -> None:
    found = [
        f"{place}: {node.name}"
        for place, node in definitions()
        if is_against_the_glossary(node.name) and (place.partition(":")[0], node.name) not in FILE_LIKE
    ]
    assert not found, "see the glossary in CONTRIBUTING.md"


def test_the_rule_sees_vague_names_and_replaced_words() -> None:
    assert [is_against_the_glossary(name) for name in ("look", "pulse_secs", "_take", "take_over")] == [
        True,
        True,
        False,
        False,
    ]


def test_a_class_name_exists_once() -> None:
    places: defaultdict[str, list[str]] = defaultdict(list)
    for place, node in definitions():
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            places[node.name].append(place)
    twice = {name: found for name, found in places.items() if len(found) > 1 and name not in TWICE}
    assert not twice, "name each after what is special about it"
