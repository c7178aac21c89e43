"""The words of the glossary in CONTRIBUTING.md: names of the product use them, and not the words that they replace.

Public functions and methods are not called `look`, `take`, `tell`, `say` or `note`: a name says what is read or written. Class
names are unique in the product. No public name has a word that the glossary replaces. In the folders of `PROSE_OF` no name,
docstring or comment has the words of `KEPT_OUT`.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
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
REPLACED = frozenset(
    {"anew", "beat", "nobody", "pulse", "seat", "somebody", "told", "verdict", "verdicts", "whoever"}
)
#: Public class names that exist twice on purpose, each with its reason.
TWICE: dict[str, str] = {}

#: Methods of interfaces that are not ours.
FILE_LIKE = {("nimbus/files/stored_files.py", "tell"), ("squall/stores/ranged_file.py", "tell")}

#: Words and phrases that a reader has to translate; kept out of prose: docstrings, comments, names of functions and classes.
KEPT_OUT = re.compile(
    r"\b(?:nobody|whoever|anew|somebody|so many|(?:is|are) told|told of|what becomes|comes to nothing|by far)\b",
    re.IGNORECASE,
)
PROSE_OF = (*PACKAGES, "tests", "benchmarks", "examples", "scripts")

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
    assert not twice, "give each a name that distinguishes it"


def prose(text: str) -> Iterator[str]:
    """The docstrings and comments of a module, and its names of functions and classes."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, Definition):
            yield node.name.replace("_", " ")
        elif (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            yield " ".join(node.value.value.split())
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.string


def test_prose_has_no_words_that_a_reader_has_to_translate() -> None:
    found = []
    for folder in PROSE_OF:
        for path in sorted((ROOT / folder).rglob("*.py")):
            place, text = str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")
            if KEPT_OUT.search(" ".join(text.replace("_", " ").split())):
                found += [f"{place}: {each}" for each in prose(text) if KEPT_OUT.search(each)]
    assert not found, "write a noun and an active verb"


def test_words_are_kept_out_of_names_docstrings_and_comments_but_not_of_texts() -> None:
    module = """
def written_anew() -> str:
    '''Whoever comes
    is told of it.'''
    return "nobody"  # for somebody
"""
    assert [bool(KEPT_OUT.search(each)) for each in prose(module)] == [True, True, True]
    assert KEPT_OUT.search("nobody") and not KEPT_OUT.search("told")
