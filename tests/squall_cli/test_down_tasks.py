"""How `squall status` and `squall top` show bolt tasks that are down."""

from __future__ import annotations

from dataclasses import replace

from squall.api.answers import PreviousAnswer
from squall.status import ComponentStatus, DownTask, UndecidedTuples
from squall_cli.cluster.events import own_paths
from squall_cli.commands.status import heading
from squall_cli.terminal import formats
from squall_cli.terminal.component_table import Row, rows_of, table_without_rates, why_idle
from squall_cli.terminal.lines import NO_LIMIT, plain

SINCE = 1_790_000_000.0


def store(*down: DownTask, tasks: int = 2) -> ComponentStatus:
    return ComponentStatus("bolt", tasks, 0, 100, 90, 10, 0, 0, 5, down=down)


def last_line(component: ComponentStatus, width: int = NO_LIMIT) -> str:
    return plain(table_without_rates([Row("store", component, None)], width)[-1])


def test_a_bolt_whose_tasks_are_all_down_is_down() -> None:
    component = store(DownTask(3, SINCE + 5, "Away: no"), DownTask(4, SINCE, "Away: no answer"))
    assert last_line(component) == f"store has been down since {formats.moment(SINCE)}: Away: no answer"
    assert why_idle(component) == "down: Away: no answer"


def test_the_tasks_that_are_down_are_named_if_others_work() -> None:
    one, two = DownTask(3, SINCE, "Away: no answer"), DownTask(5, SINCE, "Away: no answer")
    assert last_line(store(one)).startswith("task 3 of store has been down since ")
    assert last_line(store(one, two, tasks=3)).startswith("tasks 3, 5 of store have been down since ")
    assert why_idle(store(one)) == "down (1 of 2): Away: no answer"


def test_what_is_down_comes_before_other_reasons_and_commands_no_terminal() -> None:
    idle = ComponentStatus(
        "spout", 1, 0, 0, 0, 0, 0, 0, 0, idle="waits for the license server of the other side"
    )
    rows = [Row("orders", idle, None), Row("store", store(DownTask(3, SINCE, "\x1b[2J\nno")), None)]
    lines = [plain(line) for line in table_without_rates(rows, NO_LIMIT)]
    assert lines[-2].endswith("\\x1b[2J no") and lines[-1].startswith("orders is idle")


def test_the_place_of_an_error_is_shown_without_the_hosts_folder_of_code() -> None:
    down = DownTask(3, SINCE, f"Away: no (/state/code/{'0' * 64}/orders.py:17, in execute)")
    assert why_idle(store(down), own_paths) == "down (1 of 2): Away: no (orders.py:17, in execute)"
    rows = rows_of({"store": store(down)}, {}, own_paths)
    assert plain(table_without_rates(rows, NO_LIMIT)[-1]).endswith("Away: no (orders.py:17, in execute)")


def test_the_head_of_a_previous_version_has_no_folder_of_code() -> None:
    why = f"keep[3] cannot start (/state/code/{'0' * 64}/orders.py:9)\nmore"
    ended = PreviousAnswer(
        id="a-1", name="a", how="rolled back", error=why, submitted=SINCE, ended=SINCE, components={},
        errors=[], workers=[],
    )  # fmt: skip
    assert heading(ended).endswith(": keep[3] cannot start (orders.py:9)")


def test_tuples_without_a_verdict_are_said_with_their_times_and_the_failure() -> None:
    tried = UndecidedTuples(1, 2, SINCE, SINCE + 3600, "store: ConnectionError: no answer")
    source = ComponentStatus("spout", 1, 0, 0, 0, 0, 0, 2, 0, idle="source empty", undecided=(tried,))
    said = plain(table_without_rates([Row("src", source, None)], NO_LIMIT)[-1])
    assert said == (
        f"2 tuples of src are tried again since {formats.moment(SINCE)} (store: ConnectionError: no answer); they are given up "
        f"at {formats.moment(SINCE + 3600)} (topology.outage.give.up.secs)"
    )
    assert why_idle(source) == "tries 2 tuples again: store: ConnectionError: no answer"
    endless = replace(source, undecided=(replace(tried, tuples=1, until=None),))
    said = plain(table_without_rates([Row("src", endless, None)], NO_LIMIT)[-1])
    assert said.startswith("1 tuple of src is tried again since") and said.endswith(
        "; they are tried without end"
    )
