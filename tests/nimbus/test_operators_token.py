"""The operators' token over the terms of several Nimbuses: shared, written where commands find it, renewed on demand."""

from __future__ import annotations

from pathlib import Path

import pytest

from nimbus.security.secrets import LOOK_SECS, Secrets
from squall.clock import ManualClock
from squall.cluster import paths
from squall.cluster.memory import InMemoryStore
from squall.cluster.records import NimbusRecord, encode
from squall.cluster.store import Unavailable
from squall.security.sealing import KeyPair
from squall.security.tokens import kept_token, read_token, write_token
from tests.flaky_store import FlakyStore


class Office:
    """The secrets of Nimbuses over one store, each with its own state."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = InMemoryStore()
        self.clock = ManualClock()
        self.pairs: dict[str, KeyPair] = {}

    def of(self, name: str, new_token: bool = False) -> Secrets:
        pair = self.pairs.setdefault(name, KeyPair.make())
        url = self.url(name)
        self.store.put(paths.nimbus(name), encode(NimbusRecord(name, url, "host", pair.public)))
        state = self.folder / name
        return Secrets(
            self.store, pair, name, dict, self.clock, state, [url], self.environ(name), {}, new_token
        )

    def url(self, name: str) -> str:
        return f"http://127.0.0.1:{6600 + int(name[1:])}"

    def environ(self, name: str) -> dict[str, str]:
        return {"HOME": str(self.folder / f"home of {name}")}

    def token_file(self, name: str) -> str | None:
        found = read_token(self.folder / name / "token")
        assert found == kept_token(self.url(name), self.environ(name))
        return found

    def tick(self, *all_of_them: Secrets) -> None:
        self.clock.move_to(self.clock.now() + LOOK_SECS)
        for secrets in all_of_them:
            secrets.tick(self.clock.now())


@pytest.fixture
def office(tmp_path: Path) -> Office:
    return Office(tmp_path)


def test_the_first_leader_makes_a_token_and_all_write_it_where_commands_find_it(office: Office) -> None:
    one, two = office.of("n1"), office.of("n2")
    one.begin(office.store)
    office.tick(one, two)
    assert one.token == two.token == office.token_file("n1") == office.token_file("n2") is not None


def test_the_next_leader_keeps_the_token(office: Office) -> None:
    one, two = office.of("n1"), office.of("n2")
    one.begin(office.store)
    office.tick(one, two)
    token = one.token
    one.end()
    two.begin(office.store)
    office.tick(two, one)
    assert one.token == two.token == token


def test_a_cluster_whose_store_was_lost_keeps_its_token(office: Office) -> None:
    one = office.of("n1")
    one.begin(office.store)
    token = one.token
    office.store = InMemoryStore()
    again = office.of("n1")
    again.begin(office.store)
    assert again.token == token


def test_a_token_that_an_operator_has_stored_is_used(office: Office) -> None:
    write_token("of-the-operator", office.folder / "n1", [], {}, {})
    one = office.of("n1")
    one.begin(office.store)
    assert one.token == "of-the-operator"


def test_a_token_file_that_others_could_read_is_not_trusted(
    office: Office, caplog: pytest.LogCaptureFixture
) -> None:
    path = office.folder / "n1" / "token"
    path.parent.mkdir()
    path.write_text("seen-by-others")
    path.chmod(0o644)
    one = office.of("n1")
    one.begin(office.store)
    assert one.token not in (None, "seen-by-others") and office.token_file("n1") == one.token
    assert "chmod 600" in caplog.text and "seen-by-others" not in caplog.text


def test_a_renewed_token_is_written_everywhere_once(office: Office) -> None:
    one, two = office.of("n1"), office.of("n2")
    one.begin(office.store)
    office.tick(one, two)
    old = one.token
    one.end()
    again = office.of("n1", new_token=True)
    again.begin(office.store)
    office.tick(again, two)
    new = again.token
    assert new != old and two.token == office.token_file("n1") == office.token_file("n2") == new
    again.end()
    again.begin(office.store)
    assert again.token == new


def test_a_disk_that_refuses_the_file_stops_no_nimbus(
    office: Office, caplog: pytest.LogCaptureFixture
) -> None:
    (office.folder / "n1").write_text("in the way")
    one = office.of("n1")
    one.begin(office.store)
    assert one.token is not None and one.token not in caplog.text
    assert "cannot be written" in caplog.text


def test_a_store_that_does_not_answer_the_first_read_of_a_term_is_asked_again(office: Office) -> None:
    one = office.of("n1")
    store = FlakyStore(office.store)
    one.begin(store)
    office.of("n2")  # the recipients of copies
    store.away = True
    office.clock.move_to(office.clock.now() + LOOK_SECS)
    with pytest.raises(Unavailable):
        one.tick(office.clock.now())
    assert one.aside is None
