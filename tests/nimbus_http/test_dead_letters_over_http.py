"""Dead letters through Nimbus: from every host, with their host; a host that is away or silent is named; nothing but an
operators' token opens them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from nimbus.daemon import NimbusDaemon
from squall.cluster.memory import InMemoryStore
from squall.cluster.records import HeldLetters
from squall.cluster.registry import Registry
from squall.http.client import Refused
from squall_cli.main import squall
from supervisor.directories import Directories
from supervisor.host_letters import HostLetters
from supervisor.log_server import LogServer
from tests.letter_samples import kept_letter
from tests.nimbus_http.nimbuses import (
    Cluster,
    PlayedSupervisor,
    client_of,
    closing,
    submission,
    text_at,
    words,
)


class Host:
    """A supervisor whose HTTP server is real, with letters of the topology "words"."""

    def __init__(self, folder: Path, store: InMemoryStore, nimbus: NimbusDaemon, name: str) -> None:
        directories = Directories(folder / name)
        self.letters = HostLetters(directories.letters)
        self.server = LogServer("127.0.0.1", 0, directories, lambda topology: None, lambda header: True)
        self.server.start()
        self.played = PlayedSupervisor(store, nimbus, name, url=f"http://127.0.0.1:{self.server.port}")

    def give(self, *numbers: int, **others: object) -> None:
        row = (f"line {numbers[0]}",) if "row" not in others else others.pop("row")
        facts = {"topology": "words", "fields": ("line",), **others}
        letters = [kept_letter(number, row, **facts) for number in numbers]  # type: ignore[arg-type]
        self.letters.folder("words").add(letters, 1000.0)

    @property
    def waiting(self) -> list[tuple[int, str]]:
        """The letters that were handed to tasks."""
        return [(task, id) for task, id, _ in self.letters.folder("words").resends()]


class There:
    """A leader, two hosts, and the command."""

    def __init__(self, cluster: Cluster, store: InMemoryStore, folder: Path) -> None:
        self.store, self.folder = store, folder
        self.nimbus = cluster.start_leader()
        self.one = Host(folder, store, self.nimbus, "s1")
        (folder / "token").write_text(self.nimbus.token or "")
        os.chmod(folder / "token", 0o600)

    def run(self, line: str) -> Result:
        environ = {"SQUALL_NIMBUS": self.nimbus.url, "SQUALL_TOKEN_FILE": str(self.folder / "token")}
        return CliRunner().invoke(squall, ["dead-letters", "words", *line.split()], env=environ)

    def submit(self) -> None:
        with closing(client_of(self.nimbus)) as client:
            client.post("topologies", submission(words()))
        self.one.played.assignment()
        self.one.played.say()


@pytest.fixture
def there(cluster: Cluster, store: InMemoryStore, tmp_path: Path) -> Iterator[There]:
    with ExitStack() as stack:
        found = There(cluster, store, tmp_path)
        stack.callback(found.one.server.stop)
        yield found


def id_of(number: int) -> str:
    return f"{number:012x}"


def test_letters_of_all_hosts_are_listed_with_their_host_also_without_a_topology(there: There) -> None:
    two = Host(there.folder, there.store, there.nimbus, "s2")
    there.one.give(1)
    two.give(2)
    two.give(1)
    try:
        found = json.loads(there.run("list --json").stdout)
    finally:
        two.server.stop()
    places = [(each["host"], each["id"], "values" in each) for each in found["letters"]]
    one, first, second = (
        ("host-s1", id_of(1), False),
        ("host-s2", id_of(2), False),
        ("host-s2", id_of(1), False),
    )
    assert sorted(places) == sorted([one, first, second]) and found["hosts_not_asked"] == {}


def test_a_host_that_does_not_answer_is_named_and_the_others_are_not_hidden(there: There) -> None:
    two = Host(there.folder, there.store, there.nimbus, "s2")
    two.server.stop()
    gone = HeldLetters("s3", "host-s3", {"words": 12, "other": 1}, None)
    Registry(there.store).letters.put(gone)
    there.one.give(1)
    for action in ("list", "export", "resend --all", "drop --all --yes"):
        done = there.run(action)
        assert "host host-s2 (supervisor s2) could not be asked" in done.stderr
        assert (
            "host host-s3 (supervisor s3) could not be asked: its supervisor is away; it had 12 dead letters"
            in (done.stderr)
        )
        assert done.exit_code == (0 if action == "list" else 1), action
        assert id_of(1) in done.stdout or action in ("resend --all", "drop --all --yes")
    assert there.one.letters.page("words").letters == []
    with closing(client_of(there.nimbus)) as client:
        assert 'squall_dead_letters{topology="words",supervisor="s3"} 12' in text_at(client, "/metrics")


def test_a_record_of_letters_that_have_expired_is_not_shown(there: There) -> None:
    Registry(there.store).letters.put(HeldLetters("s3", "host-s3", {"words": 12}, 1000.0))
    there.one.give(1)
    assert "host-s3" not in there.run("list").output


def test_a_letter_of_a_bolt_is_handed_to_its_task_if_the_bolt_still_reads_its_stream(there: There) -> None:
    there.submit()
    of_count: dict[str, object] = {"component": "count", "task": 2, "message_id": "", "source": "lines"}
    there.one.give(1, **of_count)
    there.one.give(2, **{**of_count, "task": 77})  # it is gone: another one looks who owns the key
    there.one.give(3, stream="gone", **of_count)
    there.one.give(4, fields=("other",), **of_count)
    there.one.give(
        5, stream="", fields=("key", "timer", "time"), row=("a", "late", 1.0), **{**of_count, "source": ""}
    )
    done = there.run("resend --all")
    tasks = {id: task for task, id in there.one.waiting}
    assert tasks.keys() == {id_of(1), id_of(2), id_of(5)} and tasks[id_of(1)] == tasks[id_of(5)] == 2
    assert f"not sent again: {id_of(3)}: count reads no stream 'gone' of lines any more" in done.stderr
    assert "the fields of stream 'default' of lines are (line) now, and were (other)" in done.stderr


def test_a_letter_is_handed_to_a_task_of_the_spout_on_its_host(there: There) -> None:
    there.submit()
    there.one.give(1)
    there.one.give(2, stream="gone")
    there.one.give(3, component="count")
    done = there.run("resend --all")
    assert there.one.waiting == [(1, id_of(1))] and done.exit_code == 1
    assert done.stdout == "1 dead letter of words being sent again.\n"
    assert f"not sent again: {id_of(2)}: lines has no stream 'gone' any more" in done.stderr
    assert f"not sent again: {id_of(3)}: words has no spout count any more" in done.stderr
    shown = there.run(f"show {id_of(1)}")
    assert "sent again:     now, by task 1" in shown.stdout and 'line = "line 1"' in shown.stdout
    assert there.run(f"drop {id_of(1)} --yes").exit_code == 0 and there.one.waiting == []


def test_a_letter_moves_to_the_host_of_its_spout_unless_it_is_pickled(there: There) -> None:
    there.submit()
    two = Host(there.folder, there.store, there.nimbus, "s2")
    two.give(1)
    two.give(2, row=({1, 2},))
    try:
        done = there.run("resend --all")
    finally:
        two.server.stop()
    assert there.one.waiting == [(1, id_of(1))]
    assert [each.id for each in two.letters.page("words").letters] == [id_of(2)]
    assert (
        "its values are pickled, so they do not leave supervisor s2, and lines runs on s1 only" in done.stderr
    )


def test_only_operators_reach_dead_letters_and_each_change_is_recorded(there: There) -> None:
    there.one.give(1)
    with closing(there.one.played.client()) as client:
        for path in ("dead-letters", "dead-letters/s1"):
            with pytest.raises(Refused) as refused:
                client.get(f"topologies/words/{path}")
            assert refused.value.status == 401
        for action in ("drop", "resend"):
            with pytest.raises(Refused) as refused:
                client.post(f"topologies/words/dead-letters/s1/{action}", {"ids": [id_of(1)]})
            assert refused.value.status == 401
    assert there.run("drop --all --yes").exit_code == 0
    changes = "".join(path.read_text() for path in there.folder.rglob("changes.jsonl*"))
    assert "drop_letters" in changes and id_of(1) in changes


@pytest.mark.parametrize("ids", [["../../etc"], ["A" * 12], [id_of(1)] * 101, "all", None])
def test_what_is_no_list_of_ids_is_refused(there: There, ids: object) -> None:
    with closing(client_of(there.nimbus)) as client, pytest.raises(Refused) as refused:
        client.post("topologies/words/dead-letters/s1/drop", {"ids": ids})
    assert refused.value.status == 400


def test_an_id_or_a_place_that_is_none_is_refused(there: There) -> None:
    there.one.give(1)
    with closing(client_of(there.nimbus)) as client:
        for query in ({"id": "../x"}, {"after": "../x"}, {"values": "maybe"}):
            with pytest.raises(Refused) as refused:
                client.get("topologies/words/dead-letters/s1", **query)
            assert refused.value.status in (400, 409)
        with pytest.raises(Refused) as refused:
            client.get("topologies/words/dead-letters/s9")
        assert refused.value.status == 404


def test_an_export_is_json_lines_that_say_which_values_are_texts(there: There) -> None:
    there.one.give(1)
    there.one.give(2, row=({1},))
    target = there.folder / "letters.jsonl"
    done = there.run(f"export --output {target}")
    lines = [json.loads(line) for line in target.read_text().splitlines()]
    assert [(each["values"], each["as_text"]) for each in lines] == [(["line 1"], []), (["{1}"], [0])] or [
        each["id"] for each in lines
    ] == [id_of(2), id_of(1)]
    assert "1 letter with values that are texts only" in done.stderr
    assert "exists: give the name of a new file" in there.run(f"export --output {target}").stderr
