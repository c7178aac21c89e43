"""Tables of options in the pages of connectors: every argument is described, and shown as code shows it."""

from __future__ import annotations

from inspect import Parameter

import pytest

from scripts.connector_options import default_of, filled, pages, table_of
from topology_api import Replay


class Described:
    """A connector.

    url: the server, "https://host" or {"host": {"port": 1}}.
    first, second: two numbers that belong
        together.
    """

    def __init__(self, url: str, *, first: int = 1, second: float = 2.0) -> None: ...


class Forgotten:
    """A connector.

    url: the server.
    """

    def __init__(self, url: str, *, more: int = 1) -> None: ...


def test_a_table_has_a_row_for_each_description() -> None:
    rows = table_of(f"{__name__}.Described").splitlines()[2:]
    assert rows == [
        '| `url` |  | the server, `"https://host"` or `{"host": {"port": 1}}` |',
        "| `first`, `second` | `1`, `2` | two numbers that belong together |",
    ]


def test_an_argument_without_a_description_is_named() -> None:
    with pytest.raises(SystemExit, match=r"Forgotten describes other arguments than it takes: more"):
        table_of(f"{__name__}.Forgotten")


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (Parameter.empty, ""),
        ("json", '`"json"`'),
        (("value",), '`("value",)`'),
        (10.0, "`10`"),
        (Replay(), "`Replay()`"),
        (Replay(max_attempts=None), "`Replay(max_attempts=None)`"),
    ],
)
def test_a_default_is_shown_as_it_is_written(value: object, shown: str) -> None:
    kind = Parameter.KEYWORD_ONLY
    assert default_of(Parameter("name", kind, default=value)) == shown


def test_what_is_between_the_marks_is_replaced_and_nothing_else() -> None:
    page = f"before\n<!-- options: {__name__}.Described -->\nold\n<!-- end of options -->\nafter\n"
    written = filled(page)
    assert written.startswith("before\n<!-- options") and written.endswith("<!-- end of options -->\nafter\n")
    assert "old" not in written and "`second`" in written
    assert filled(written) == written


def test_pages_with_options_are_found() -> None:
    assert "docs/kafka.md" in pages()
