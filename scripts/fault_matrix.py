"""Writes the matrix of faults into docs/connectors.md: what each promise says, and which connector has no such promise.

    python scripts/reference_pages.py

The promises are functions of `tests/connectors/source_promises.py` and `sink_promises.py`, whose docstrings say what they show.
Must not know: any promise, any connector.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

PROMISES = re.compile(r"(<!-- promises -->\n).*?(<!-- end of promises -->)", re.DOTALL)
EXCEPTIONS = re.compile(r"(<!-- not applicable -->\n).*?(<!-- end of not applicable -->)", re.DOTALL)


def filled(page: str) -> str:
    """Return the text of a page with both tables as the tests have them."""
    for place, table in ((PROMISES, promises()), (EXCEPTIONS, exceptions())):
        page = place.sub(lambda found, table=table: f"{found[1]}\n{table}\n{found[2]}", page)  # type: ignore[misc]
    return page


def promises() -> str:
    """Return a table of the promises of sources and of sinks."""
    from tests.connectors import sink_promises, source_promises

    of_sources: Mapping[str, Callable[..., Any]] = source_promises.PROMISES
    of_sinks: Mapping[str, Callable[..., Any]] = sink_promises.PROMISES
    rows = (
        f"| {name} | {_said(of_sources.get(name))} | {_said(of_sinks.get(name))} |\n"
        for name in dict.fromkeys([*of_sources, *of_sinks])
    )
    return "| | a source | a sink |\n|---|---|---|\n" + "".join(rows)


def exceptions() -> str:
    """Return a table of what does not apply to a connector, with the reason."""
    from tests.connector_contract import SinkWorld, SourceWorld
    from tests.connectors.worlds import worlds

    rows = (
        f"| `{world.connector.rpartition('.')[2]}` | {', '.join(names)} | {why} |\n"
        for world in [*worlds(SourceWorld), *worlds(SinkWorld)]
        for why, names in _by_reason(world.not_applicable)
    )
    return "| connector | promises | why not |\n|---|---|---|\n" + "".join(rows)


def _by_reason(given: Mapping[str, str]) -> Iterator[tuple[str, list[str]]]:
    for why in dict.fromkeys(given.values()):
        yield why, [name for name, reason in given.items() if reason == why]


def _said(promise: Callable[..., Any] | None) -> str:
    return "" if promise is None else " ".join((promise.__doc__ or "").split()).removesuffix(".")
