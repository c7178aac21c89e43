"""How `squall status`, `squall top`, `squall run` and `squall submit --wait` show epochs, and what they wait for."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from squall.epoch_status import EpochStatus, EpochWait, SlowTask
from squall.status import ComponentStatus, TopologyStatus
from squall_cli.commands.top import ClusterMoment, picture
from squall_cli.local.local_run import Ended
from squall_cli.local.summary import as_json
from squall_cli.packing.coming_up import outages
from squall_cli.terminal import formats, live_table
from squall_cli.terminal.busy_table import Busy
from squall_cli.terminal.epoch_lines import commit_text, rewinds_text, short_commit, wait_sentences
from squall_cli.terminal.lines import plain
from squall_cli.terminal.views import Moment, progress_line
from tests.squall_cli.fake_nimbus import FakeNimbus, Squall, component, status_of, topology
from tests.squall_cli.test_busy_table import CLUSTER, MOMENT, NOW

EPOCH = EpochStatus(
    19, 0.42, 0.0352, 0.08, 12_345, SlowTask("count", 5, 0.0201), rewinds=2, rewound=NOW,
    rewind_reason="the process of worker words-w2 has ended",
)  # fmt: skip
STORE = EpochWait("store", NOW, "cannot write /state/words/log/000000000020: No space left on device")
ALIGNMENT = (
    EpochWait("alignment", NOW, "no barrier from words[1]", "count", 5),
    EpochWait("alignment", NOW, "", "count", 6),
)
WAITING = replace(EPOCH, waits=(STORE, *ALIGNMENT), more_waits=2)
SAID = [
    f"the topology waits for the state store since {formats.moment(NOW)}: cannot write /state/words/log/000000000020: No space "
    "left on device",
    f"the topology waits for alignment since {formats.moment(NOW)}: count[5]: no barrier from words[1]; count[6]; and 2 more "
    "tasks",
]


def counting(epoch: EpochStatus | None) -> dict[str, Any]:
    """The status of a topology that keeps its state."""
    parts = {
        "words": component("spout", uncommitted=1_200),
        "count": component("bolt", tasks=2, keys=12_345, parked=3),
    }
    return topology("counting", components=parts, epoch=msgspec.to_builtins(epoch))


def test_status_shows_the_last_commit_the_state_and_the_rewinds(nimbus: FakeNimbus, run: Squall) -> None:
    nimbus.put({**counting(EPOCH), "state_path": "file:///var/kept"})
    lines = run("status counting").stdout.splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("EPOCH"))
    assert lines[start - 1] == "" and lines[start : start + 4] == [
        "EPOCH    epoch 19 committed 0.42 s ago; took 35.2ms (at most 80.0ms lately); 12.3 kB; slowest task count[5] with "
        "20.1ms",
        "STATE    count 12,345 keys, count 3 parked, words 1,200 uncommitted",
        "KEPT IN  /var/kept/counting",
        f"REWINDS  2 rewinds, the last at {formats.moment(NOW)}: the process of worker words-w2 has ended",
    ]
    assert json.loads(run("status counting --json").stdout)["epoch"]["slowest"] == {
        "component": "count",
        "task": 5,
        "secs": 0.0201,
    }


def test_status_says_that_the_commits_of_a_version_on_trial_wait(nimbus: FakeNimbus, run: Squall) -> None:
    nimbus.put(counting(EpochStatus(19, 42.0, began=19, on_trial=True)))
    text = run("status counting").stdout
    assert "EPOCH    epoch 19 committed 42.0 s ago; commits wait for the end of the trial\n" in text
    first = EpochStatus(0, began=0, on_trial=True)
    assert commit_text(first) == "no epoch is committed yet; commits wait for the end of the trial"
    assert short_commit(first) == "no epoch committed, commits wait for the trial"


def test_status_says_what_is_waited_for(nimbus: FakeNimbus, run: Squall) -> None:
    nimbus.put(counting(WAITING))
    text = run("status counting").stdout
    assert all(sentence in text for sentence in SAID)


def test_without_a_state_path_no_line_is_shown(nimbus: FakeNimbus, run: Squall) -> None:
    for command in ("status word_count", "top --delay 0.2"):
        text = run(command).stdout.lower()
        assert not any(word in text for word in ("epoch", "rewind", "keys", "uncommitted")), command


def test_top_shows_the_last_commit_of_each_topology_its_keys_and_what_it_waits_for(
    nimbus: FakeNimbus, run: Squall
) -> None:
    nimbus.put(counting(WAITING))
    lines = run("top --delay 0.2").stdout.splitlines()
    head, row = (next(line for line in lines if part in line) for part in ("KEYS", "12,345"))
    assert head.index("KEYS") + 4 == row.index("12,345") + 6
    assert f"counting: {commit_text(EPOCH)}" in lines
    assert [line for line in lines if "waits for" in line] == [f"counting: {each}" for each in SAID]
    [found] = json.loads(run("top --delay 0.2 --json").stdout)["epochs"]
    assert (found["topology"], found["number"], len(found["waits"])) == ("counting", 19, 3)


@pytest.mark.parametrize("width", [80, 200])
def test_a_window_of_top_keeps_its_components_beside_many_topologies_with_state(width: int) -> None:
    busy = [
        *MOMENT.busy,
        Busy("t5", "count", ComponentStatus("bolt", 1, 0, 0, 0, 0, 0, 0, 0, keys=3), 1.0, NOW),
    ]
    epochs = {f"t{number}": replace(WAITING, age=float(number)) for number in range(9)}
    lines = [plain(line) for line in picture(ClusterMoment(CLUSTER, tuple(busy), (), epochs), "", width, 24)]
    assert len(lines) <= 24 and all(formats.columns_of(line.rstrip()) <= width for line in lines)
    assert sum(line.startswith("orders") for line in lines) >= 3
    assert any(line.startswith("t8: epoch 19") for line in lines), "the oldest commit comes first"


def test_a_run_shows_the_last_commit_and_what_it_waits_for() -> None:
    count = ComponentStatus("bolt", 1, 0, 9, 9, 0, 0, 0, 0, keys=3)
    status = TopologyStatus("counting", "ACTIVE", {"count": count}, 1, epoch=WAITING)
    moment = Moment(status, 12.0, {})
    assert progress_line(moment).endswith("; epoch 19 0s ago; " + "; ".join(SAID))
    drawn = [plain(line) for line in live_table.picture(moment, 200, 30)]
    assert commit_text(EPOCH) in drawn and set(SAID) <= set(drawn)
    assert as_json(Ended("drained", status, 12.0), 0, None)["epoch"]["number"] == 19
    without = replace(status, epoch=None)
    assert "epoch" not in as_json(Ended("drained", without, 12.0), 0, None)
    assert "epoch" not in progress_line(Moment(without, 12.0, {}))


def test_a_submission_that_waits_says_what_its_topology_waits_for() -> None:
    found = outages(status_of(counting(WAITING)))
    assert list(found.values()) == SAID and set(found) == {"waits for store", "waits for alignment"}


def test_what_is_not_known_is_left_out() -> None:
    assert commit_text(EpochStatus(0)) == "no epoch is committed yet"
    assert commit_text(EpochStatus(19)) == "epoch 19"
    assert commit_text(EpochStatus(19, 65.0, quiet=True)) == (
        "epoch 19 committed 1 min 05 s ago, and nothing has happened since"
    )
    assert rewinds_text(EpochStatus(19)) == ""
    assert rewinds_text(EpochStatus(19, rewinds=1, rewound=12.0)) == "1 rewind", (
        "a simulated clock tells no time of day"
    )


def test_a_rewind_and_a_full_spout_are_said_and_command_no_terminal() -> None:
    waits = (
        EpochWait("rewind", NOW, "its snapshot is being read", "count", 5),
        EpochWait(
            "commit", NOW, "10,000 tuples wait for their commit (topology.epoch.uncommitted)", "words", 1
        ),
        EpochWait("store", 12.0, "\x1b[2J\naway"),
    )
    since = f"since {formats.moment(NOW)}"
    assert wait_sentences(replace(EPOCH, waits=waits)) == {
        "rewind": f"the topology returns to epoch 19, and has waited {since}: count[5]: its snapshot is being read",
        "commit 1": f"words[1] has emitted nothing {since}: 10,000 tuples wait for their commit (topology.epoch.uncommitted)",
        "store": "the topology waits for the state store: \\x1b[2J away",
    }
