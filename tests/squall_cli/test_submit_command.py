"""The command sends each file once and each topology once, whatever messages get lost, and --wait reports how it comes up."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from squall.cluster.records import SetOptions
from squall.http.client import Unreachable
from squall.packages.archives import check
from squall.reports.events import Event
from squall_cli.cluster.nimbus_client import NimbusClient
from squall_cli.packing import submission as sending
from tests.squall_cli.fake_nimbus import Refusal, happened, worker
from tests.squall_cli.run_process import environment
from tests.squall_cli.taking_nimbus import TakingNimbus, acked, scheduled, taking_nimbus, up
from tests.squall_cli.terminal import ESCAPE, squall_on_terminal
from topology_api.errors import NameTaken

SECONDS = 60
TOPOLOGY = """
import pathlib
import my_helper
from topology_api import Fields, Spout, TopologyBuilder

class Words(Spout):
    outputs = Fields("word")
    def next_tuple(self):
        self.finish()

def topology(name="words", size="0"):
    print("the user's file is loaded")
    builder = TopologyBuilder(name)
    words = Words()
    words.ballast = b"x" * int(size)
    builder.set_spout("words", words)
    return builder.build()
"""


@pytest.fixture
def nimbus(tmp_path: Path) -> Iterator[TakingNimbus]:
    (tmp_path / "files").mkdir()
    with taking_nimbus(tmp_path / "files") as running:
        yield running


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "my_words.py").write_text(TOPOLOGY)
    (folder / "my_helper.py").write_text("")
    (folder / "words.txt").write_text("a b c\n")
    (folder / "requirements.txt").write_text("six==1.16.0\n")
    return folder


def submit(nimbus: TakingNimbus, project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "squall_cli", "submit", "my_words.py", *arguments],
        cwd=project,
        env=environment(SQUALL_NIMBUS=nimbus.url, HOME=str(project), XDG_STATE_HOME=str(project)),
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
        stdin=subprocess.DEVNULL,
    )


def only(nimbus: TakingNimbus) -> Any:
    (submission,) = nimbus.submissions.values()
    return submission


# What is sent


def test_nimbus_accepts_the_submission_with_its_settings_and_files(
    nimbus: TakingNimbus, project: Path
) -> None:
    done = submit(
        nimbus, project, "--resource", "words.txt", "--requirements", "requirements.txt", "--inactive", "--name", "mine",
        "-o", "topology.workers=3", "-o", "words:topology.max.spout.pending=7",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    submission = only(nimbus)
    assert submission.topology.name == "mine"
    assert not submission.active
    assert submission.conf["topology.workers"] == 3
    assert submission.component_confs["words"]["topology.max.spout.pending"] == 7
    code = check(nimbus.folder / submission.files["code"], 1 << 20, 1 << 20)
    assert code.names == ("my_helper.py", "my_words.py", "words.txt")
    assert (nimbus.folder / submission.files["requirements"]).read_text() == "six==1.16.0\n"
    assert submission.versions["python"] == f"{sys.version_info[0]}.{sys.version_info[1]}"
    assert "packed: 2 modules, 1 other file, requirements" in done.stderr
    assert done.stdout.splitlines()[-1] == f"mine is INACTIVE at {nimbus.url}: `squall status mine`"


def test_files_that_are_already_there_are_not_sent_again(nimbus: TakingNimbus, project: Path) -> None:
    assert submit(nimbus, project).returncode == 0
    assert len(nimbus.puts) == 1
    done = submit(nimbus, project, "--name", "again")
    assert done.returncode == 0
    assert len(nimbus.puts) == 1
    assert "nothing to upload" in done.stderr


def test_an_import_that_finds_nothing_is_named_with_advice(nimbus: TakingNimbus, project: Path) -> None:
    code = TOPOLOGY.replace("        self.finish()", "        import no_such_module\n        self.finish()")
    (project / "my_words.py").write_text(code)
    said = "imported, but not found on this machine: no_such_module (my_words.py:9); "
    assert f"{said}--include PATH ships" in submit(nimbus, project).stderr
    again = submit(nimbus, project, "--requirements", "requirements.txt", "--name", "again")
    assert f"{said}list it in --requirements" in again.stderr


def test_where_state_is_kept_is_named_and_that_it_ends_with_its_worker_unless_it_is_meant_so(
    nimbus: TakingNimbus, project: Path
) -> None:
    code = TOPOLOGY.replace("import Fields", "import StatefulBolt, ValueState, Fields").replace(
        "def topology",
        "class Count(StatefulBolt):\n    key = 'word'\n    times = ValueState(int, default=0)\n"
        "    def execute(self, tup): self.times.value += 1\n\ndef topology",
    )
    code = code.replace(
        "    return builder",
        "    builder.set_bolt('count', Count()).fields_grouping('words', 'word')\n    return builder",
    )
    (project / "my_words.py").write_text(code)
    said = "the state of 'count' is in memory and ends with its worker: set topology.state.path"
    twice = "spout 'words' cannot rewind: what such a spout emits again"
    assert said in submit(nimbus, project).stderr
    bodies = [body for method, _, _, body in nimbus.asked if method == "POST"]
    assert "topology.state.path" not in bodies[0]["conf"], "an earlier Nimbus does not know the word"
    meant = submit(nimbus, project, "--name", "meant", "-o", "topology.state.path=null")
    assert meant.returncode == 0 and said not in meant.stderr and twice not in meant.stderr
    kept = submit(nimbus, project, "--name", "kept", "-o", f"topology.state.path=file://{project}/state")
    assert kept.returncode == 0 and said not in kept.stderr and kept.stderr.count(twice) == 1
    nimbus.settings = {"state_path": "file:///var/kept"}
    chosen = submit(nimbus, project, "--name", "chosen").stderr
    assert "kept in /var/kept/chosen; it goes on from what is there" in chosen and twice in chosen


def test_with_json_stdout_has_nothing_else(nimbus: TakingNimbus, project: Path) -> None:
    done = submit(nimbus, project, "--json", "--", "other")
    assert done.returncode == 0
    told = json.loads(done.stdout)
    assert (told["name"], told["id"], told["state"], told["failure"]) == ("other", "other-1", "ACTIVE", None)
    assert told["files"]["code"] == nimbus.puts[0]
    assert told["uploaded"] == (nimbus.folder / nimbus.puts[0]).stat().st_size
    assert "the user's file is loaded" in done.stderr


def test_a_file_that_changes_the_working_folder_does_not_affect_typed_paths(
    nimbus: TakingNimbus, project: Path
) -> None:
    (project / "my_helper.py").write_text("import os\nos.chdir('/')\n")
    done = submit(nimbus, project, "--resource", "words.txt", "--requirements", "requirements.txt")
    assert done.returncode == 0, done.stderr
    code = check(nimbus.folder / only(nimbus).files["code"], 1 << 20, 1 << 20)
    assert code.names == ("my_helper.py", "my_words.py", "words.txt")


def test_replace_is_sent_with_the_drain_time_of_the_old_one(nimbus: TakingNimbus, project: Path) -> None:
    assert submit(nimbus, project, "--replace", "-w", "5").returncode == 0
    assert (only(nimbus).replace, only(nimbus).wait_secs) == (True, 5.0)


def test_what_a_new_version_keeps_and_changes_is_shown_and_can_be_reset(
    nimbus: TakingNimbus, project: Path
) -> None:
    nimbus.settings = {
        "kept": {"topology.workers": 4, "count:tasks": 8},
        "changed": {"topology.max.spout.pending": [None, 100], "db.url": ["a", "b"]},
    }
    done = submit(nimbus, project, "--replace", "-o", "topology.max.spout.pending=100", "-o", "words:x=1")
    assert done.returncode == 0
    lines = done.stderr.splitlines()
    assert (
        "kept from the running version: topology.workers=4, count:tasks=8 (--reset-options forgets what -o and rebalance set)"
        in lines
    )
    assert "changed: topology.max.spout.pending: not set -> 100" in lines
    assert 'changed: db.url: "a" -> "b"' in lines
    sent = only(nimbus)
    assert sent.options == SetOptions({"topology.max.spout.pending": 100}, {"words": {"x": 1}})
    assert not sent.reset_options
    assert submit(nimbus, project, "--replace", "--reset-options").returncode == 0
    assert list(nimbus.submissions.values())[-1].reset_options
    done = submit(nimbus, project, "--reset-options")
    assert done.returncode == 2 and "needs --replace" in done.stderr


# Lost messages

LOST = ("lost on the way", Refusal(503, "Busy", "not done in time"))


@pytest.mark.slow
@pytest.mark.parametrize(
    "fault", ["answer lost", *(pytest.param(each, marks=pytest.mark.soak) for each in LOST)]
)
def test_a_lost_answer_still_makes_one_topology(nimbus: TakingNimbus, project: Path, fault: Any) -> None:
    nimbus.faults.extend([fault, Refusal(503, "NoLeader", "no Nimbus leads"), fault])
    done = submit(nimbus, project, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["id"] == "words-1"
    assert list(nimbus.topologies) == ["words"]
    keys = {
        body["submission"]
        for method, path, _, body in nimbus.asked
        if (method, path) == ("POST", "topologies")
    }
    assert keys == {only(nimbus).key}


def test_a_nimbus_that_took_over_and_lacks_the_files_gets_them(nimbus: TakingNimbus, project: Path) -> None:
    nimbus.faults.append(Refusal(422, "FileMissing", "the file of 'code' is not here"))
    assert submit(nimbus, project).returncode == 0
    assert only(nimbus).files["code"] in nimbus.puts


def test_a_store_that_was_unavailable_for_a_moment_is_asked_again(
    nimbus: TakingNimbus, project: Path
) -> None:
    nimbus.faults.append(Refusal(503, "StoreUnavailable", "ZooKeeper does not answer"))
    done = submit(nimbus, project)
    assert done.returncode == 0, done.stderr
    assert list(nimbus.topologies) == ["words"]


@pytest.mark.slow
def test_a_store_that_stays_unavailable_is_reported_soon_with_the_unknown_outcome(
    nimbus: TakingNimbus, project: Path
) -> None:
    nimbus.faults.extend([Refusal(503, "StoreUnavailable", "ZooKeeper does not answer")] * 10)
    done = submit(nimbus, project)
    assert done.returncode == 1
    said = (
        "squall submit: it is not known whether topology 'words' was submitted: ZooKeeper does not answer; "
    )
    assert done.stderr.splitlines()[-1].startswith(said), done.stderr
    assert 1 < len([each for each in nimbus.asked if each[0] == "POST"]) < 5


def test_while_leadership_moves_to_another_nimbus_it_is_tried_again(
    nimbus: TakingNimbus, project: Path
) -> None:
    nimbus.faults.append(Refusal(503, "NoLeader", "nobody leads at the moment"))
    done = submit(nimbus, project)
    assert done.returncode == 0, done.stderr
    assert "submitting again: nobody leads at the moment" in done.stderr
    assert len([each for each in nimbus.asked if each[0] == "POST"]) == 2


def test_a_file_is_sent_again_while_no_nimbus_leads(nimbus: TakingNimbus, project: Path) -> None:
    nimbus.leaderless = 2  # the question whether it is there, whose refusal has no body, and the file
    done = submit(nimbus, project)
    assert done.returncode == 0, done.stderr
    assert "sending code again: nobody leads" in done.stderr


class Lost(NimbusClient):
    """A client whose submissions all get lost."""

    def __init__(self) -> None:
        self.times = 0
        self.repeatable = False

    def post(
        self, path: str, body: object = None, repeatable: bool = False, timeout: float | None = None
    ) -> Any:
        self.times += 1
        self.repeatable = repeatable
        raise Unreachable("no answer", sent=True)


def test_when_no_answer_ever_comes_the_unknown_outcome_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    times = count(step=10)
    monkeypatch.setattr(
        sending, "time", SimpleNamespace(monotonic=lambda: next(times), sleep=lambda secs: None)
    )
    client = Lost()
    with pytest.raises(sending.NotSubmitted, match="it is not known whether topology 'lost' was submitted"):
        sending.submit(
            client,
            sending.OutgoingSubmission("lost", {"submission": "key"}),
            print,
            print,
        )
    assert client.times > 2
    assert client.repeatable, "the submission has a key, so Nimbus may receive it twice"


# Refusals


def refused(nimbus: TakingNimbus, project: Path, *arguments: str, status: int = 1) -> str:
    done = submit(nimbus, project, *arguments)
    assert done.returncode == status, done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr


def test_a_name_in_use_is_reported_by_nimbus(nimbus: TakingNimbus, project: Path) -> None:
    assert submit(nimbus, project).returncode == 0
    said = refused(nimbus, project)
    assert "squall submit: a topology named 'words' exists already" in said
    assert said.rstrip().endswith("(--name NAME), or replace the running one (--replace)")


def test_a_name_that_becomes_free_is_reported_with_the_option_for_another(
    nimbus: TakingNimbus, project: Path
) -> None:
    assert submit(nimbus, project).returncode == 0
    nimbus.topologies["words"]["state"] = "KILLED"
    being_killed = str(NameTaken("words", being_killed=True))
    nimbus.faults.append(Refusal(409, "NameTaken", being_killed))
    said = refused(nimbus, project)
    assert said.endswith("submit again when it is gone, or under another name (--name NAME)\n"), said


def test_an_archive_over_the_limit_is_refused_with_the_largest_files(
    nimbus: TakingNimbus, project: Path
) -> None:
    nimbus.limit = 10
    text = refused(nimbus, project, "--resource", "words.txt")
    assert "the file is too large; the largest files of the package: 'my_words.py (" in text


def test_pickles_over_the_limit_are_refused_with_advice(nimbus: TakingNimbus, project: Path) -> None:
    text = refused(nimbus, project, "--", "words", "5000000")
    assert "the largest is 'words'" in text
    assert "--resource" in text
    assert not nimbus.asked


def test_another_python_is_named_before_anything_is_sent(nimbus: TakingNimbus, project: Path) -> None:
    nimbus.supervisors[1]["versions"] = {"python": "3.99.1", "cloudpickle": "1.0.0"}
    text = refused(nimbus, project)
    assert "supervisor id-of-host-2 on host-2 has Python 3.99: submit it with Python 3.99" in text
    assert "cloudpickle 1.0" in text
    assert not nimbus.puts
    assert not nimbus.submissions


def test_wrong_settings_are_refused_before_anything_is_sent(nimbus: TakingNimbus, project: Path) -> None:
    assert "topology.workers" in refused(nimbus, project, "-o", "topology.wokers=1", status=2)
    assert not nimbus.asked


def test_a_topology_that_gives_less_than_is_required_is_refused_before_anything_is_sent(
    nimbus: TakingNimbus, project: Path
) -> None:
    bolt = """
class Print(Bolt):
    def execute(self, tup):
        print(tup)
"""
    code = TOPOLOGY.replace("import Fields", "import Bolt, Fields").replace(
        "class Words", f"{bolt}\nclass Words"
    )
    code = code.replace(
        "    return", '    builder.set_bolt("print", Print()).shuffle_grouping("words")\n    return'
    )
    (project / "my_words.py").write_text(code)
    text = refused(nimbus, project, "-o", "topology.require=exactly-once")
    assert "topology.require is exactly-once, but topology.state.path is not set" in text
    assert not nimbus.submissions


def test_components_that_cannot_travel_are_refused_before_anything_is_sent(
    nimbus: TakingNimbus, project: Path
) -> None:
    (project.parent / "more").mkdir()
    (project.parent / "more/worker.py").write_text("")
    text = refused(nimbus, project, "--include", "../more/worker.py")
    assert (
        "a module named 'worker' cannot be shipped, because Squall has a package of that name; rename it"
        in text
    )
    assert "--resource nothing.txt: there is no such file" in refused(
        nimbus, project, "--resource", "nothing.txt"
    )
    assert "--requirements missing.txt: No such file" in refused(
        nimbus, project, "--requirements", "missing.txt"
    )
    assert not nimbus.asked


@pytest.mark.parametrize("arguments", [("-w", "5"), ("--wheels", "w"), ("--", "a", "b", "c")])
def test_wrong_usage_has_a_status_of_its_own(
    nimbus: TakingNimbus, project: Path, arguments: tuple[str, ...]
) -> None:
    assert "Usage: squall submit" in refused(nimbus, project, *arguments, status=2)


# --wait


def test_wait_shows_each_step_and_ends_with_the_first_ack(nimbus: TakingNimbus, project: Path) -> None:
    nimbus.story.extend([lambda status: None, scheduled, lambda status: None, up, acked])
    done = submit(nimbus, project, "--wait")
    assert done.returncode == 0, done.stderr
    steps = [
        "packed: ",
        "uploaded: ",
        "submitted: words as words-1",
        "scheduled: 2 workers on 2 hosts",
        "2 workers up",
        "first ack: ",
    ]
    places = [done.stderr.find(step) for step in steps]
    assert places == sorted(places), done.stderr
    assert -1 not in places, done.stderr
    assert done.stderr.count("starting: 0 of 2 workers up") == 1
    assert "packing" not in done.stderr, "a short wait gets no line"


def test_wait_ends_with_the_reason_when_it_fails(nimbus: TakingNimbus, project: Path) -> None:
    def fails(status: dict[str, Any]) -> None:
        status.update(state="FAILED", error="ValueError: no such thing")

    nimbus.story.extend([scheduled, fails])
    done = submit(nimbus, project, "--wait", "--json")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "squall submit: topology 'words' failed: ValueError: no such thing"
    told = json.loads(done.stdout)
    assert (told["state"], told["failure"]) == (
        "FAILED",
        "topology 'words' failed: ValueError: no such thing",
    )


def test_a_wait_with_a_timeout_ends_although_nothing_has_failed(nimbus: TakingNimbus, project: Path) -> None:
    done = submit(nimbus, project, "--wait", "--timeout", "0.5", "-n", "3")
    assert done.returncode == 1
    assert "stopped waiting after 0.5 s: words is not up yet: " in done.stderr
    assert done.stderr.rstrip().endswith("; the cluster continues the work")
    assert only(nimbus).conf["topology.workers"] == 3


def test_a_number_of_workers_is_given_once(nimbus: TakingNimbus, project: Path) -> None:
    done = submit(nimbus, project, "-n", "3", "-o", "topology.workers=4")
    assert done.returncode == 2
    assert "--workers 3 and -o topology.workers=4 contradict each other" in done.stderr


def test_wait_reports_that_a_replacement_was_rolled_back(nimbus: TakingNimbus, project: Path) -> None:
    assert submit(nimbus, project).returncode == 0

    def rolled_back(status: dict[str, Any]) -> None:
        back = Event("rolled_back", version="words-2", successor="words-1", error="w1 died three times")
        status.update(happened(back), id="words-1", workers=[worker("w1")])

    def cannot_be_built(status: dict[str, Any]) -> None:
        failed = Event(
            "not_started", topology="words", worker="w1", part="environment", error="no such package"
        )
        status.update(happened(failed), stands_by={"id": "words-1", "secs": 50.0})

    nimbus.story.extend([scheduled, cannot_be_built, rolled_back])
    done = submit(nimbus, project, "--wait", "--replace")
    assert done.returncode == 1
    assert done.stderr.count("the previous version (words-1) runs again unless") == 1
    assert (
        "the new version of 'words' was rolled back, the previous version has the name again: w1 died"
        in done.stderr
    )


def test_on_a_terminal_the_steps_stay_and_the_waiting_line_disappears(
    nimbus: TakingNimbus, project: Path
) -> None:
    nimbus.story.extend([lambda status: None, scheduled, lambda status: None, up, acked])
    arguments = ("submit", str(project / "my_words.py"), "--wait")
    with squall_on_terminal(100, 30, *arguments, SQUALL_NIMBUS=nimbus.url, HOME=str(project)) as terminal:
        assert terminal.end() == 0, terminal.plain
    stays = [line.rpartition("\x1b[2K")[2] for line in terminal.text.split("\r\n")]
    plain = [ESCAPE.sub("", line).split(" (")[0] for line in stays]
    lines = [
        line for line in plain if line.strip() and line[0] < "\u2800"
    ]  # the spinner's own last line is removed
    size = (nimbus.folder / nimbus.puts[0]).stat().st_size
    assert lines == [
        "the user's file is loaded", f"packed: 2 modules, {size} bytes", f"uploaded: {size} bytes",
        "submitted: words as words-1", "scheduled: 2 workers on 2 hosts", "2 workers up", "first ack: 7 acked",
        f"words is ACTIVE at {nimbus.url}: `squall status words`",
    ]  # fmt: skip
    assert "starting: 0 of 2 workers up" in terminal.plain
