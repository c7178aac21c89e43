"""`squall stack` shows where a topology's calls are; what holds Python's own lock is named by `squall status`."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from squall.api.answers import StacksAnswer
from squall.reports.stacks import CallStack, StackFrame
from squall.values import Incarnation
from squall_cli.main import squall
from tests.squall_cli.fake_nimbus import FakeNimbus, fake_nimbus, topology, worker
from tests.squall_cli.small_cluster import small_cluster
from tests.zookeeper_servers import eventually

SICK = Path(__file__).parents[1] / "sick_bolts" / "sick_bolts.py"
W1 = worker("w1", host="host-1", tasks=[(1, "words", 0), (2, "count", 0)])
W2 = worker("w2", host="host-2", tasks=[(3, "count", 1)])


def call(task: int, seconds: float) -> CallStack:
    frame = StackFrame("/s/code/" + "0" * 64 + "/count.py", 12, "execute", "time.sleep(60)")
    return CallStack("MainThread", "count", task, seconds, "<Tuple words[1] default: word='a'>", (frame,))


IDLE = CallStack("of-a-library", "", None, None, "", (StackFrame("/lib/x.py", 3, "wait", "\x1b[2J"),))


def answer(nimbus: FakeNimbus, name: str, *stacks: CallStack, answered: bool = True) -> None:
    from msgspec import to_builtins

    found = StacksAnswer(name, Incarnation(1, 0), answered, 4711 if answered else None, stacks)
    nimbus.answers[f"topologies/words/workers/{name}/stacks"] = to_builtins(found)


def stack(nimbus: FakeNimbus, *arguments: str) -> Result:
    return CliRunner().invoke(squall, ["stack", "words", *arguments], env={"SQUALL_NIMBUS": nimbus.url})


def test_the_calls_of_all_workers_are_shown_with_task_tuple_and_lines() -> None:
    with fake_nimbus() as nimbus:
        nimbus.put(topology("words", workers=[W1, W2]))
        answer(nimbus, "w1", call(2, 12.3), IDLE)
        answer(nimbus, "w2", answered=False)
        found = stack(nimbus)
        assert found.exit_code == 0
        assert found.stdout == (
            "w1 on host-1, process 4711\n\n  count[2], in a call for 12.3 s\n    <Tuple words[1] default: word='a'>\n"
            "    count.py:12, in execute\n      time.sleep(60)\n\n"
            "  thread of-a-library, in no call of a component\n    /lib/x.py:3, in wait\n      \\x1b[2J\n\n"
        )
        assert "w2 on host-2 does not answer" in found.stderr


def test_a_task_or_a_component_selects_its_workers_and_calls() -> None:
    with fake_nimbus() as nimbus:
        nimbus.put(topology("words", workers=[W1, W2]))
        answer(nimbus, "w1", call(2, 12.3), IDLE)
        answer(nimbus, "w2", IDLE)
        found = json.loads(stack(nimbus, "--task", "2", "--json").stdout)
        assert [(each["worker"], [one["task"] for one in each["stacks"]]) for each in found["workers"]] == [
            ("w1", [2])
        ]
        text = stack(nimbus, "--component", "count").stdout
        assert "count[2]" in text and "w2 on host-2" in text and "no such call runs" in text
        assert "of-a-library" not in text


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--task", "9"], "words has no running task '9'; there are: '1', '2', '3'"),
        (["--component", "cuont"], "words has no running component 'cuont'; did you mean 'count'?"),
        (["--worker", "w2", "--task", "1"], "no worker of words runs what you have asked for"),
        ([], "no worker of words could be asked"),
    ],
)
def test_what_cannot_be_shown_is_said(arguments: list[str], text: str) -> None:
    with fake_nimbus() as nimbus:
        nimbus.put(topology("words", workers=[W1, W2]))
        found = stack(nimbus, *arguments)
        assert found.exit_code == 1
        assert text in found.stderr


@pytest.mark.slow
def test_a_hung_call_and_one_that_holds_pythons_lock_are_found_in_a_cluster(tmp_path: Path) -> None:
    file = shutil.copy(SICK, tmp_path)
    with small_cluster(tmp_path, hurried=True) as cluster:
        for kind in ("hung", "holding"):
            done = cluster.squall("submit", str(file), "--wait", "--", kind)
            assert done.returncode == 0, done.stderr

        def hung() -> str:
            return cluster.squall("stack", "sick-hung", "--component", "sick").stdout

        eventually(lambda: "threading.Event().wait()" in hung())
        assert "key='key-5', number=25" in hung()

        def notes() -> list[str]:
            status = json.loads(cluster.squall("status", "sick-holding", "--json").stdout)
            return list(status["notes"])

        eventually(lambda: any("(the GIL)" in text and "in execute" in text for text in notes()))
        found = cluster.squall("stack", "sick-holding")
        assert (found.returncode, "does not answer" in found.stderr) == (1, True)
