"""Writes the tables of connectors' options into pages of docs/, from signatures and docstrings.

    python scripts/connector_options.py      # after a change of an argument or its description

A page has a line `<!-- options: squall_io.kafka.KafkaSpout -->` and, below it, `<!-- end of options -->`; the table is between
them. Each argument is described in the class's docstring, `name: text`, in the order of the table.
`scripts/reference_pages.py` calls it. Must not know: what an option means.
"""

from __future__ import annotations

import importlib
import inspect
import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

#: A text in quotes, with the argument before it, and a dict are shown as code; what is code already stays as it is.
QUOTED = re.compile(r'`[^`]*`|(?:\b\w+=)?"[^"]*"|\{(?:[^{}]|\{[^{}]*\})*\}')
PLACE = re.compile(r"(<!-- options: ([\w.]+) -->\n).*?(<!-- end of options -->)", re.DOTALL)
HEAD = "| option | default | what |\n|---|---|---|\n"


def default_of(parameter: inspect.Parameter) -> str:
    """Return how a page shows a default; "" for an argument that must be given."""
    value = parameter.default
    if value is inspect.Parameter.empty:
        return ""
    return f"`{_shown(value)}`"


def _shown(value: Any) -> str:
    """Return a value as code; of a Replay what differs from its defaults."""
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, tuple):
        return f"({', '.join(map(_shown, value))}{',' * (len(value) == 1)})"
    if isinstance(value, float):
        return f"{value:g}"
    parameters = (
        inspect.signature(type(value)).parameters if type(value).__module__ == "topology_api.values" else {}
    )
    if not parameters:
        return repr(value)
    given = (
        f"{name}={getattr(value, name)!r}"
        for name, one in parameters.items()
        if getattr(value, name) != one.default
    )
    return f"{type(value).__name__}({', '.join(given)})"


def table_of(name: str) -> str:
    """Return the table of a class, "squall_io.kafka.KafkaSpout". Raises SystemExit for an argument without a description."""
    from scripts.docstrings import entries

    module, _, of_class = name.rpartition(".")
    found = getattr(importlib.import_module(module), of_class)
    parameters = dict(inspect.signature(found).parameters)
    described = list(entries(found.__doc__ or ""))
    named = [each for names, _ in described for each in names]
    if sorted(named) != sorted(parameters):
        wrong = ", ".join(sorted(set(named) ^ set(parameters))) or "one that is there twice"
        raise SystemExit(
            f"scripts/connector_options.py: the docstring of {name} describes other arguments than it takes: {wrong}; write a"
            " line `name: text` for each"
        )
    return HEAD + "".join(_row(names, text, parameters) for names, text in described)


def _row(names: tuple[str, ...], text: str, parameters: Mapping[str, inspect.Parameter]) -> str:
    defaults = dict.fromkeys(default_of(parameters[name]) for name in names)
    what = QUOTED.sub(lambda found: f"`{found[0].strip('`')}`", text.removesuffix("."))
    cells = (", ".join(f"`{name}`" for name in names), ", ".join(defaults), what)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


def filled(page: str) -> str:
    """Return the text of a page with its tables as the code has them."""
    return PLACE.sub(lambda found: f"{found[1]}\n{table_of(found[2])}\n{found[3]}", page)


def pages() -> list[str]:
    """The pages with such tables, below the root of the project."""
    found = sorted((ROOT / "docs").glob("**/*.md"))
    return [
        str(page.relative_to(ROOT)) for page in found if "<!-- options: " in page.read_text(encoding="utf-8")
    ]


def main() -> None:
    for path in pages():
        page = ROOT / path
        page.write_text(filled(page.read_text(encoding="utf-8")), encoding="utf-8")
        print(path)


if __name__ == "__main__":
    main()
