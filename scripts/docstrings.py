"""What the generated pages read in docstrings: prose, and entries `name: description`, whose further lines are indented.

Must not know: pages, modules, what any of it means.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator

PARAMETER = re.compile(r"^([a-z]\w*(?:, [a-z]\w*)*): (.*)$")
#: Names described within a line: "..., read-only. log: a logging.Logger".
FURTHER = re.compile(r"(?<=\. )([a-z]\w*(?:, [a-z]\w*)*)(?=: )")


def prose(text: str, indent: str = "") -> Iterator[str]:
    """A docstring in Markdown: paragraphs, and a bullet for each `name: description`."""
    bullets = False
    for line in inspect.cleandoc(text).splitlines():
        entry = PARAMETER.match(line)
        if not line.strip():
            bullets = False
            yield ""
        elif entry is not None:
            if not bullets:
                yield ""
            bullets = True
            yield f"{indent}- {as_code(entry[1])}: {with_names(entry[2])}"
        elif line.startswith("    ") and not bullets:  # code
            yield indent + line
        elif line.startswith("Raises "):
            bullets = False
            yield ""
            yield indent + line
        else:
            yield f"{indent}{'  ' if bullets else ''}{with_names(line.strip())}"


def entries(text: str) -> Iterator[tuple[tuple[str, ...], str]]:
    """The entries of a docstring: names and description, on one line."""
    found: tuple[tuple[str, ...], str] | None = None
    for line in inspect.cleandoc(text).splitlines():
        entry = PARAMETER.match(line)
        if found is not None and entry is None and line.startswith("    "):
            found = found[0], f"{found[1]} {line.strip()}"
            continue
        if found is not None:
            yield found
        found = None if entry is None else (tuple(entry[1].split(", ")), entry[2])
    if found is not None:
        yield found


def as_code(names: str) -> str:
    """Put each of some names in backticks."""
    return ", ".join(f"`{name}`" for name in names.split(", "))


def with_names(text: str) -> str:
    """Put the names in backticks that a line describes after its first sentence."""
    return FURTHER.sub(lambda found: as_code(found[0]), text)
