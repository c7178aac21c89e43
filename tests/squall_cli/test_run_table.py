"""The table of components and its figures fit the window, whatever their values."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from squall.status import ComponentStatus, TopologyStatus
from squall_cli.local.rates import WINDOW, Rates
from squall_cli.terminal import formats
from squall_cli.terminal.component_table import Row, final_table, live_table, table_without_rates
from squall_cli.terminal.lines import NO_COLOURS, NO_LIMIT, Line, painted, plain
from squall_cli.terminal.live_table import LiveTable, Screen, picture
from squall_cli.terminal.user_output import MOST_WAITING, Gathered
from squall_cli.terminal.views import EVERY, Moment, PlainLines, progress_line

SPOUT = ComponentStatus(
    kind="spout", tasks=2, emitted=1_234_567, executed=0, acked=1_234_000, failed=3, replayed=5, pending=564,
    errors=0, p50=0.00042, p99=1.5, idle="waiting for replays",
)  # fmt: skip
BOLT = replace(SPOUT, kind="bolt", executed=1_234_567, pending=0, p50=None, p99=None, idle="", failed=0)
COUNTS = st.integers(min_value=0, max_value=10**14)
TIMES = st.none() | st.floats(min_value=0, max_value=10**7)
COMPONENTS = st.builds(
    ComponentStatus,
    kind=st.sampled_from(["spout", "bolt"]),
    tasks=st.integers(min_value=1, max_value=10**6),
    emitted=COUNTS, executed=COUNTS, acked=COUNTS, failed=COUNTS, replayed=COUNTS, pending=COUNTS, errors=COUNTS,
    p50=TIMES, p99=TIMES,
    idle=st.sampled_from(["", "finished", "pending limit", "waiting for replays"]),
)  # fmt: skip
ROWS = st.lists(st.builds(Row, st.text(min_size=1, max_size=60), COMPONENTS, TIMES), max_size=8)


@given(st.floats(min_value=0, max_value=10**17))
def test_a_short_figure_takes_six_characters_at_most(number: float) -> None:
    assert len(formats.short(number)) <= 6
    assert len(formats.rate(number)) <= 6


@given(st.floats(min_value=0, max_value=10**7))
def test_a_latency_takes_six_characters_at_most(seconds: float) -> None:
    assert len(formats.latency(seconds)) <= 6


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (formats.short(99_999), "99,999"),
        (formats.short(100_000), "100k"),
        (formats.short(999_499), "999k"),
        (formats.short(999_999), "1.00M"),
        (formats.short(12_345_678), "12.3M"),
        (formats.short(99_999_500_000_000), "100T"),
        (formats.rate(None), "-"),
        (formats.rate(0), "0"),
        (formats.rate(3.44), "3.4"),
        (formats.rate(9.99), "10"),
        (formats.latency(None), "-"),
        (formats.latency(0.00035), "0.35ms"),
        (formats.latency(0.0433), "43.3ms"),
        (formats.latency(0.9999), "1.00s"),
        (formats.latency(1234.0), "21m"),
        (formats.latency(7200.0), "120m"),
        (formats.latency(86_400.0), "24h"),
        (formats.duration(0.123), "0.12 s"),
        (formats.duration(12.34), "12.3 s"),
        (formats.duration(185), "3 min 05 s"),
        (formats.duration(7380), "2 h 03 min"),
        (formats.plural(1, "tree"), "1 tree"),
        (formats.plural(2000, "tree"), "2,000 trees"),
        (formats.cropped("one two\nthree", 9), "one two …"),
        (formats.cropped("\u8a00" * 9, 8), "\u8a00" * 3 + "…"),
        (formats.cropped_inside("one two three", 9), "one …hree"),
        (formats.cropped_inside("\u8a00" * 4 + "\u8449" * 5, 12), "\u8a00" * 3 + "…" + "\u8449" * 2),
    ],
)
def test_figures_are_written_for_people(written: str, meant: str) -> None:
    assert written == meant


@given(ROWS, st.integers(min_value=32, max_value=200))
def test_no_line_of_a_table_is_wider_than_the_window(rows: list[Row], width: int) -> None:
    for line in [*live_table(rows, width, 5), *final_table(rows, width)]:
        assert len(plain(line)) <= width


@given(ROWS)
def test_the_columns_do_not_move_while_the_numbers_grow(rows: list[Row]) -> None:
    small = [structs.replace(row, component=replace(row.component, emitted=0, acked=0)) for row in rows]
    assert live_table(rows, 80, 9)[0] == live_table(small, 80, 9)[0]


def test_each_row_shows_the_work_of_its_component() -> None:
    lines = [
        plain(line) for line in live_table([Row("lines", SPOUT, 1234.5), Row("split", BOLT, None)], 140, 9)
    ]
    assert lines[1].split() == [
        "lines", "spout", "2", "1,234,567", "1,234,000", "3", "564", "1,234", "0.42ms", "1.50s",
        "waiting", "for", "replays",
    ]  # fmt: skip
    assert lines[2].split() == ["split", "bolt", "2", "1,234,567", "1,234,567", "1,234,000", "0", "-"]


WIDE_REASON = "\u8a00\u8449" * 7  # 14 characters, 28 columns


@pytest.mark.parametrize("width", [140, NO_LIMIT])
def test_an_idle_reason_of_wide_characters_is_shown_in_full_below_the_table(width: int) -> None:
    row = Row("lines", replace(SPOUT, idle=WIDE_REASON), None)
    assert plain(table_without_rates([row], width)[-1]) == f"lines is idle: {WIDE_REASON}"


def test_in_a_pipe_every_idle_reason_is_shown_in_full() -> None:
    rows = [Row(f"bolt-{each}", replace(BOLT, idle="waits " * 300 + str(each)), None) for each in range(5)]
    lines = [plain(line) for line in table_without_rates(rows, NO_LIMIT)]
    assert lines[6:] == [f"{row.name}: {row.component.idle}" for row in rows]
    assert len(table_without_rates(rows, 140)) == 1 + 5 + 3


def test_an_idle_reason_cannot_command_the_terminal() -> None:
    row = Row("lines", replace(BOLT, idle="it waits for \x1b[2J the other side"), None)
    assert "\x1b" not in "".join(map(plain, table_without_rates([row], 140)))


def test_below_a_table_that_does_not_move_a_line_names_the_columns_that_do_not_fit() -> None:
    rows = [Row("lines", replace(SPOUT, idle=""), 1.0)]
    note = "The window is too narrow for TASKS, p50."
    assert plain(final_table(rows, 60)[-1]) == note
    assert len(final_table(rows, 80)) == len(live_table(rows, 60, 5)) == 2


def test_of_too_many_components_the_first_are_shown_and_the_others_counted() -> None:
    lines = live_table([Row(f"bolt-{number}", BOLT, 1.0) for number in range(30)], 120, 10)
    assert len(lines) == 11
    assert plain(lines[9]).startswith("bolt-8 ")
    assert plain(lines[10]) == "… and 21 more components"


def status(*components: ComponentStatus) -> TopologyStatus:
    return TopologyStatus(
        "numbers", "ACTIVE", {f"c{number}": one for number, one in enumerate(components)}, workers=1
    )


@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 40), (60, 10), (40, 5)])
def test_the_whole_picture_is_lower_than_the_window(width: int, height: int) -> None:
    for number in (1, 5, 100):
        moment = Moment(status(*[SPOUT] * number), 12.3, {}, left=4.2)
        assert len(picture(moment, width, height)) < height


def test_rates_cover_only_the_last_seconds() -> None:
    def at(count: int) -> dict[str, ComponentStatus]:
        return {"lines": replace(SPOUT, emitted=count), "split": replace(BOLT, executed=10 * count)}

    rates = Rates(0.0, at(0))
    assert rates.at(0.1, at(5)) == {"lines": None, "split": None}
    for second in range(1, 11):
        rates.record(float(second), at(100 * second))
    assert rates.at(10.0, at(1000)) == {"lines": 100.0, "split": 1000.0}
    for second in range(11, 11 + int(WINDOW)):
        rates.record(float(second), at(1000))
    assert rates.at(10.0 + WINDOW, at(1000)) == {"lines": 0.0, "split": 0.0}


def test_rates_are_steady_though_counters_come_once_a_second() -> None:
    def at(tick: int) -> dict[str, ComponentStatus]:
        lines, split = 1000 * (tick // 20), 1000 * ((tick + 7) // 20)  # the workers do not report together
        return {"lines": replace(SPOUT, emitted=lines), "split": replace(BOLT, executed=split)}

    rates = Rates(0.0, at(0))
    for tick in range(1, 400):
        rates.record(tick / 20, at(tick))
        found = rates.at(tick / 20, at(tick))
        if tick > 140:  # counts before the first report have left the window
            assert found == {"lines": pytest.approx(1000), "split": pytest.approx(1000)}


@pytest.mark.parametrize(
    ("idle", "style"), [("waits as it asked", "dim"), ("finished", "dim"), ("waiting for replays", "warn")]
)
def test_a_spout_that_rests_by_its_own_choice_is_not_highlighted(idle: str, style: str) -> None:
    lines = live_table([Row("s", replace(SPOUT, idle=idle), None)], 60, 5)
    assert lines[-1] == ((f"s is idle: {idle}", style),)


@pytest.mark.parametrize("width", [60, 140])
def test_the_wait_of_a_bolt_is_shown_in_full_below_the_table_and_no_column_grows(width: int) -> None:
    waits = replace(BOLT, idle="waiting for storage for 40 s: no DataNode answers")
    for made in (live_table, table_of_a_moment):
        lines = made([Row("s", SPOUT, None), Row("store", waits, None)], width, 5)
        without = made([Row("s", SPOUT, None), Row("store", BOLT, None)], width, 5)
        assert lines[-1] == (("store: waiting for storage for 40 s: no DataNode answers", "warn"),)
        assert (lines[0], len(lines)) == (without[0], len(without) + 1)


def table_of_a_moment(rows: list[Row], width: int, _: int) -> list[Line]:
    return table_without_rates(rows, width)


def test_a_plain_line_shows_what_a_bolt_waits_for() -> None:
    line = progress_line(Moment(status(replace(BOLT, idle="waiting for storage")), 1.0, {}))
    assert line.endswith("c0 1,234,567 executed, waiting for storage")


def test_a_plain_line_comes_every_few_seconds_and_shows_why_a_spout_is_idle() -> None:
    progress, notices = io.StringIO(), io.StringIO()
    lines = PlainLines(progress, notices)
    for tenth in range(int(EVERY * 10) * 2 + 1):
        lines.show(Moment(status(SPOUT, BOLT), tenth / 10, {"c0": 10.0, "c1": None}))
    assert progress.getvalue().count("\n") == 2
    assert progress.getvalue().splitlines()[0] == (
        "3.00 s  c0 1,234,567 emitted, 10/s, 3 failed, 1,234,000 acked, 564 pending, p50 0.42ms, p99 1.50s,"
        " idle: waiting for replays; c1 1,234,567 executed"
    )
    assert notices.getvalue() == ""


def test_a_plain_line_of_a_large_topology_is_bounded() -> None:
    line = progress_line(Moment(status(*[BOLT] * 100), 1.0, {}))
    assert line.endswith("; and 88 more")


# The screen


def screen() -> tuple[Screen, io.StringIO]:
    written = io.StringIO()
    return Screen(written, NO_COLOURS), written


def test_lines_are_erased_before_new_ones_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    shown, written = screen()
    monkeypatch.setattr(shown, "size", lambda: (20, 10))
    shown.draw([(("one", ""),), (("two", "head"),)])
    written.truncate(written.seek(0))
    shown.draw([(("three", ""),)], above="text\n")
    assert written.getvalue() == "\r\x1b[1A\x1b[Jtext\n\x1b[?7lthree\x1b[?7h"


def test_a_window_that_became_narrower_is_erased_as_far_as_its_lines_were_broken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown, _ = screen()
    monkeypatch.setattr(shown, "size", lambda: (40, 10))
    shown.draw([(("x" * 40, ""),), (("y" * 10, ""),)])
    monkeypatch.setattr(shown, "size", lambda: (15, 10))
    assert shown.erasure() == "\r\x1b[3A\x1b[J"


def test_unwanted_styles_leave_no_trace() -> None:
    line = (("good", "good"), (" ", ""), ("bad", "bad"))
    assert painted(line, {}) == "good bad"
    assert painted(line, NO_COLOURS) == "good \x1b[1mbad\x1b[0m"


def test_much_output_is_drawn_by_its_writer_and_an_incomplete_last_line_is_kept() -> None:
    shown, written = screen()
    gathered = Gathered()
    table = LiveTable(shown, gathered)
    gathered.show = table.show_output
    gathered.add("short")
    assert written.getvalue() == ""
    gathered.add("x" * MOST_WAITING + "\nrest")
    assert written.getvalue() == "short" + "x" * MOST_WAITING + "\n"
    table.close()
    assert written.getvalue().endswith("\nrest\n")
    assert not gathered.takes()
