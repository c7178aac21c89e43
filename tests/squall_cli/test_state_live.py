"""`squall state get NAME` asks the running task of a key; what cannot be asked is named, and nothing is guessed."""

from __future__ import annotations

import json
import os
import signal
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from msgspec import to_builtins

from squall.api.answers import ConfigurationsAnswer, LiveStateAnswer
from squall.reports.live_state import LiveRow, TaskState
from squall_cli.main import squall
from tests.squall_cli.fake_nimbus import FakeNimbus, Refusal, component, fake_nimbus, topology, worker
from tests.squall_cli.small_cluster import small_cluster
from tests.zookeeper_servers import eventually

W1 = worker("w1", host="host-1", tasks=[(1, "words", 0), (2, "count", 0)])
W2 = worker("w2", host="host-2", tasks=[(3, "count", 1)])
ROW = LiveRow("times", "ValueState", '"be"', "3")
TIMED = LiveRow("fresh", "ListState", '"be"', "[1, 2]", [10.0, 20.0], [70.0, 80.0], "5 further elements")


def answer(
    nimbus: FakeNimbus, name: str, *tasks: TaskState, refusal: str = "", answered: bool = True
) -> None:
    found = LiveStateAnswer(name, answered, tasks, ("times", "fresh"), refusal)
    nimbus.answers[f"topologies/words/workers/{name}/state"] = to_builtins(found)


def get(nimbus: FakeNimbus, *arguments: str) -> Result:
    return CliRunner().invoke(squall, ["state", "get", *arguments], env={"SQUALL_NIMBUS": nimbus.url})


def running(nimbus: FakeNimbus, *workers: dict[str, object], state: str = "ACTIVE") -> None:
    components = {"words": component("spout"), "count": component()}
    nimbus.put(topology("words", state=state, components=components, workers=list(workers or (W1, W2))))
    conf = to_builtins(ConfigurationsAnswer({"topology.state.path": "file:///states"}, {}))
    nimbus.answers["topologies/words/configuration"] = conf


def test_the_value_of_the_running_task_is_shown_with_the_last_commit() -> None:
    with fake_nimbus() as nimbus:
        running(nimbus)
        answer(nimbus, "w1", TaskState(2, 0, 41))
        answer(nimbus, "w2", TaskState(3, 1, 42, (ROW, TIMED)))
        found = get(nimbus, "words", "count", "be")
        assert found.exit_code == 0, found.stderr
        lines = found.stdout.splitlines()
        assert lines[0] == '"be" in count, live, after commit 42:'
        assert lines[2].split() == ["times", "ValueState", "1", "3"]
        assert "fresh: without 5 further elements" in found.stderr
        shown = json.loads(get(nimbus, "words", "count", "be", "--json").stdout)
        assert (shown["live"], shown["epoch"]) == (True, 42)
        assert shown["rows"][1] == {
            "component": "count", "task": 1, "state": "fresh", "kind": "ListState", "key": "be", "value": [1, 2],
            "written": [10.0, 20.0], "expires": [70.0, 80.0], "omitted": "5 further elements",
        }  # fmt: skip


def test_several_keys_are_the_fields_of_one() -> None:
    with fake_nimbus() as nimbus:
        running(nimbus, W2)
        answer(nimbus, "w2", TaskState(3, 1, 0, (ROW,)))
        assert "live, before the first commit" in get(nimbus, "words", "count", "hall", "7").stdout
        [asked] = [body for _, path, _, body in nimbus.asked if path.endswith("/state")]
        assert asked == {"component": "count", "key": '["hall", 7]', "state": ""}


@pytest.mark.parametrize(
    ("tasks", "arguments", "text"),
    [
        ((TaskState(3, 1),), ["count", "be"], 'count has no state for the key "be" at the moment'),
        (
            (TaskState(3, 1),),
            ["count", "be", "--state", "tims"],
            "count has no state 'tims', and the key \"be\" no timer of this name; did you mean 'times'?",
        ),
        (
            (TaskState(3, 1, why="count[3] is in a call"),),
            ["count", "be"],
            'the task that has the key "be" of count was not reached; count[3] is in a call',
        ),
        ((), ["cuont", "be"], "words has no component 'cuont'; did you mean 'count'?"),
    ],
)
def test_a_key_that_no_task_shows_is_named(
    tasks: tuple[TaskState, ...], arguments: list[str], text: str
) -> None:
    with fake_nimbus() as nimbus:
        running(nimbus, W2)
        answer(nimbus, "w2", *tasks)
        found = get(nimbus, "words", *arguments)
        assert (found.exit_code, text in found.stderr) == (1, True), found.stderr


def test_hosts_that_could_not_be_asked_are_named() -> None:
    with fake_nimbus() as nimbus:
        running(nimbus)
        answer(nimbus, "w1", answered=False)
        nimbus.answers["topologies/words/workers/w2/state"] = Refusal(
            404, "NotFound", "there is no such worker"
        )
        found = get(nimbus, "words", "count", "be")
        assert found.exit_code == 1
        assert "w1 on host-1 does not answer: it is starting" in found.stderr
        assert "w2 on host-2 could not be asked: " in found.stderr


def test_a_refusal_of_the_worker_is_the_error() -> None:
    with fake_nimbus() as nimbus:
        running(nimbus, W2)
        answer(nimbus, "w2", refusal="a key of count has 2 fields (room, row)")
        assert (
            get(nimbus, "words", "count", "be").stderr
            == "squall state: a key of count has 2 fields (room, row)\n"
        )


def test_a_topology_that_does_not_run_leads_to_its_commits() -> None:
    with fake_nimbus() as nimbus:
        running(nimbus, W2, state="COMPLETED")
        found = get(nimbus, "words", "count", "be")
        assert found.exit_code == 1
        assert (
            "words is COMPLETED and no task of count runs, so nothing can be asked; --epoch N shows"
            in found.stderr
        )
        assert "`squall state list /states/words` lists the epochs" in found.stderr
        assert (
            "there is no folder /states/words" in get(nimbus, "words", "count", "be", "--epoch", "3").stderr
        )


GATED = """
import pathlib
from squall_io.files import FileSpout
from topology_api import Replay, StatefulBolt, TopologyBuilder, ValueState

class Lines(FileSpout):
    replay = Replay(max_attempts=2, first_delay=0.01, max_delay=0.05)

class Count(StatefulBolt):
    key = "line"
    times = ValueState(int, default=0)
    def __init__(self, gate):
        self.gate = pathlib.Path(gate)
    def execute(self, tup):
        self.times.value += 1
        if tup["line"] == "poison" and not self.gate.exists():
            raise ValueError("not yet")

def topology(folder):
    conf = {"topology.epoch.secs": 0.2, "topology.on.outage": "give-up"}
    builder = TopologyBuilder("gated", conf=conf)
    builder.set_spout("lines", Lines(f"{folder}/lines.txt"))
    builder.set_bolt("count", Count(f"{folder}/gate"), parallelism=2).fields_grouping("lines", "line")
    return builder.build()
"""


@pytest.mark.slow
def test_real_workers_keep_state_without_a_path_show_it_and_take_letters_of_bolts_again(
    tmp_path: Path,
) -> None:
    (tmp_path / "gated.py").write_text(GATED)
    (tmp_path / "lines.txt").write_text("be\npoison\nbe\npoison\nbe\n")
    with small_cluster(tmp_path, hurried=True) as cluster:
        submit = partial(cluster.squall, "submit", "gated.py", cwd=tmp_path)
        kept = f"its state is kept in {tmp_path}/supervisor/kept/gated; it goes on from what is there"
        done = submit("--", str(tmp_path))
        assert done.returncode == 0 and kept in done.stderr, done.stderr

        def live(key: str) -> object:
            done = cluster.squall("state", "get", "gated", "count", key, "--json")
            return json.loads(done.stdout)["rows"][0]["value"] if done.returncode == 0 else done.stderr

        def letters() -> list[dict[str, object]]:
            done = cluster.squall("dead-letters", "gated", "list", "--json")
            return json.loads(done.stdout)["letters"]  # type: ignore[no-any-return]

        eventually(lambda: live("be") == 3 and len(letters()) == 2)
        assert 'count has no state for the key "poison" at the moment' in str(live("poison"))
        (tmp_path / "gate").touch()
        assert cluster.squall("dead-letters", "gated", "resend", "--all").returncode == 0
        eventually(lambda: live("poison") == 2 and letters() == [])
        assert "live, after commit" in cluster.squall("state", "get", "gated", "count", "be").stdout
        folder = str(tmp_path / "supervisor" / "kept" / "gated")
        committed = json.loads(cluster.squall("state", "get", folder, "count", "poison", "--json").stdout)
        assert [row["value"] for row in committed["rows"]] == [2]
        by_name = cluster.squall(
            "state", "get", "gated", "count", "poison", "--epoch", str(committed["epoch"])
        )
        assert f"epoch {committed['epoch']} of gated" in by_name.stdout, by_name.stderr

        # A worker that is killed, and a topology that is killed and submitted again, go on from what is kept.
        [worker] = json.loads(cluster.squall("status", "gated", "--json").stdout)["workers"]
        os.kill(worker["pid"], signal.SIGKILL)
        with (tmp_path / "lines.txt").open("a") as lines:
            lines.write("be\n")
        eventually(lambda: live("be") == 4)
        assert live("poison") == 2
        assert cluster.squall("kill", "gated", "--wait").returncode == 0
        assert "gated" in cluster.squall("state", "list", "gated").stdout
        assert kept in submit("--", str(tmp_path)).stderr
        with (tmp_path / "lines.txt").open("a") as lines:
            lines.write("be\n")
        eventually(lambda: live("be") == 5)
        assert live("poison") == 2
