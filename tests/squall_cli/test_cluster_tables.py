"""Tables fit the window, numbers stay whole, and a terminal shows the same content as a pipe."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from squall_cli.commands.status import worker_lines
from squall_cli.terminal.formats import columns_of, span
from squall_cli.terminal.lines import NO_LIMIT, plain
from squall_cli.terminal.tables import SHORTEST, Table, TableColumn, fitted, lines_of, table
from tests.squall_cli.fake_nimbus import FakeNimbus, fake_nimbus, status_of, topology, worker
from tests.squall_cli.run_process import running_squall
from tests.squall_cli.terminal import squall_on_terminal

COLUMNS = st.lists(
    st.builds(
        TableColumn,
        st.text("ABC", min_size=1, max_size=8),
        st.booleans(),
        st.booleans(),
        st.integers(min_value=0, max_value=5),
    ),
    min_size=1,
    max_size=8,
)


@st.composite
def tables(draw: st.DrawFn) -> Table:
    columns = draw(COLUMNS)
    row = st.tuples(*(st.text("x1 ", max_size=60) for _ in columns))
    return table(columns, draw(st.lists(row, max_size=5)))


def drawn(made: Table, width: int) -> list[str]:
    """The lines that are drawn in a window of this width."""
    return [plain(line) for line in lines_of(made, width)]


@given(tables(), st.integers(10, 200))
def test_a_table_fits_the_window_or_has_only_the_essential_columns(made: Table, width: int) -> None:
    shown, given_widths = fitted(made, width)
    total = sum(given_widths) + 2 * (len(given_widths) - 1)
    if total > width:
        assert all(column.rank == 0 for column in shown.columns)
    for column, wanted, each in zip(shown.columns, shown.widths, given_widths):
        assert each == wanted or (column.elastic and SHORTEST <= each < wanted)
    assert [column for column in made.columns if column.rank == 0] == [
        column for column in shown.columns if column.rank == 0
    ]


@given(tables(), st.integers(60, 200))
def test_no_line_on_a_terminal_is_broken(made: Table, width: int) -> None:
    given_widths = fitted(made, width)[1]
    if sum(given_widths) + 2 * (len(given_widths) - 1) <= width:
        lines = drawn(made, width)
        assert len(lines) == 1 + len(made.rows)
        assert all(len(line) <= width for line in lines)


def test_columns_are_dropped_before_names_are_cut_and_numbers_never_are() -> None:
    made = table(
        [TableColumn("NAME", elastic=True), TableColumn("ACKED", number=True), TableColumn("UPTIME", rank=1)],
        [["a_topology_with_a_long_name", "123,456,789", "12m34s"]],
    )
    assert drawn(made, 48)[1].split() == ["a_topology_with_a_long_name", "123,456,789", "12m34s"]
    assert drawn(made, 40)[1].split() == ["a_topology_with_a_long_name", "123,456,789"]
    assert drawn(made, 33)[1].split() == ["a_topology_with_a_l…", "123,456,789"]


def test_a_cell_is_one_line_without_terminal_commands() -> None:
    made = table([TableColumn("A"), TableColumn("B")], [["a\nb", "\x1b[31mred\r[bold]"]])
    assert plain(lines_of(made)[1]) == "a b  \\x1b[31mred [bold]"
    assert drawn(made, 80)[1].rstrip() == "a b  \\x1b[31mred [bold]"


def test_blanks_in_a_cell_that_fits_are_kept() -> None:
    made = table([TableColumn("A"), TableColumn("B")], [["a  b", "c   d"]])
    assert plain(lines_of(made)[1]) == drawn(made, 80)[1] == "a  b  c   d"


def test_the_table_of_workers_fits_a_narrow_window_even_if_their_names_are_long() -> None:
    long = "w" * 53
    found = status_of(topology("a", workers=[worker(long, host="host-1.example.com")]))
    [head, row, note] = [plain(line) for line in worker_lines(found.workers, 60)]
    assert max(len(head), len(row)) <= 60
    assert note == "The window is too narrow for SLOT, RESTARTS, TASKS."
    assert row.startswith("w" * 19)
    assert "RUNNING" in row
    whole = worker_lines(found.workers, NO_LIMIT)
    assert len(whole) == 2
    assert long in plain(whole[1])


def test_a_wide_character_takes_two_columns() -> None:
    made = table(
        [TableColumn("NAME", elastic=True), TableColumn("N", number=True)],
        [["\u8a00\u8449" * 20, "1"], ["a", "2"]],
    )
    assert [columns_of(line) for line in drawn(made, 40)[1:]] == [40, 40]
    assert drawn(made, 40)[1].startswith("\u8a00\u8449" * 9)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-1, "0s"), (59.9, "59s"), (60, "1m00s"), (3599, "59m59s"), (3600, "1h00m"), (86_399, "23h59m"),
        (86_400, "1d00h"), (8_639_999, "99d23h"), (8_640_000, "100d"),
    ],
)  # fmt: skip
def test_a_duration_takes_six_characters_at_most(seconds: float, text: str) -> None:
    assert span(seconds) == text
    assert len(text) <= 6


# On a terminal


@pytest.fixture
def nimbus() -> Iterator[FakeNimbus]:
    with fake_nimbus() as there:
        there.put(topology("word_count"), topology("another_topology_of_ours", "FAILED", error="it broke"))
        yield there


@pytest.mark.parametrize(("columns", "rows"), [(80, 24), (120, 40), (40, 10)])
@pytest.mark.parametrize("line", ["list", "status word_count", "supervisors"])
def test_a_table_on_a_terminal_is_no_wider_than_the_window(
    nimbus: FakeNimbus, line: str, columns: int, rows: int
) -> None:
    with squall_on_terminal(columns, rows, *line.split(), SQUALL_NIMBUS=nimbus.url) as terminal:
        assert terminal.end() == 0
        lines = terminal.plain.splitlines()
        table_lines = [
            text for text in lines if text.startswith(("NAME", "word_count", "another", "HOST", "host"))
        ]
        assert len(table_lines) >= 3
        assert all(len(text.rstrip()) <= columns for text in table_lines if "ACTIVE for" not in text)
        note = "The window is too narrow for "
        assert columns == 80 or (note in terminal.plain) == (columns == 40)


def test_colours_are_omitted_where_they_are_not_wanted(nimbus: FakeNimbus) -> None:
    with squall_on_terminal(80, 24, "list", SQUALL_NIMBUS=nimbus.url) as terminal:
        terminal.end()
        assert "\x1b[1;31mFAILED" in terminal.text
    with squall_on_terminal(80, 24, "list", SQUALL_NIMBUS=nimbus.url, NO_COLOR="1") as terminal:
        terminal.end()
        assert "FAILED" in terminal.text
        assert "31m" not in terminal.text
    with squall_on_terminal(80, 24, "list", SQUALL_NIMBUS=nimbus.url, TERM="dumb") as terminal:
        terminal.end()
        assert "\x1b" not in terminal.text


def test_characters_that_the_output_lacks_are_escaped(nimbus: FakeNimbus) -> None:
    nimbus.put(topology("caf\u00e9"))
    with running_squall("list", SQUALL_NIMBUS=nimbus.url, PYTHONIOENCODING="ascii") as process:
        assert process.end() == 0
        assert "caf\\xe9" in process.text


def test_json_on_a_terminal_is_json(nimbus: FakeNimbus) -> None:
    with squall_on_terminal(80, 24, "list", "--json", SQUALL_NIMBUS=nimbus.url) as terminal:
        assert terminal.end() == 0
        assert terminal.text.startswith("{")
        assert "\x1b" not in terminal.text


@pytest.mark.slow
@pytest.mark.parametrize(("columns", "rows"), [(80, 24), (40, 10)])
def test_top_uses_the_whole_window_and_restores_it(nimbus: FakeNimbus, columns: int, rows: int) -> None:
    with squall_on_terminal(columns, rows, "top", "--delay", "0.2", SQUALL_NIMBUS=nimbus.url) as terminal:
        terminal.wait_for("Ctrl-C ends")
        nimbus.topologies.clear()
        while "0 topologies" not in terminal.plain:
            assert terminal.read()
        assert "\x1b[?1049h" in terminal.text
        terminal.process.send_signal(2)
        assert terminal.end() == 0
        assert terminal.text.rstrip().endswith("\x1b[?25h") or "\x1b[?1049l" in terminal.text
        assert "Traceback" not in terminal.plain


def test_waiting_on_a_terminal_is_one_line_that_changes(nimbus: FakeNimbus) -> None:
    nimbus.changes += [lambda: None] * 3 + [nimbus.topologies.clear]
    with squall_on_terminal(80, 24, "kill", "word_count", "--wait", SQUALL_NIMBUS=nimbus.url) as terminal:
        assert terminal.end() == 0
        assert "word_count drains: 30 trees pending" in terminal.plain
        assert terminal.plain.rstrip().endswith("word_count is gone.")


def test_ctrl_c_while_waiting_reports_that_the_cluster_goes_on(nimbus: FakeNimbus) -> None:
    with squall_on_terminal(80, 24, "kill", "word_count", "--wait", SQUALL_NIMBUS=nimbus.url) as terminal:
        terminal.wait_for("30 trees pending")
        terminal.process.send_signal(2)
        assert terminal.end() == 1
        assert "squall kill: stopped waiting; the cluster continues the work" in terminal.plain
