"""A supervisor gets a file from any Nimbus that has the right one, whatever the leader delivers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path

import pytest

from squall.clock import ManualClock
from squall.cluster import paths
from squall.cluster.memory import InMemoryStore
from squall.cluster.records import SupervisorRecord
from squall.cluster.registry import Registry
from squall.packages.file_sources import SILENT_SECS, WRONG_SECS, FileSources
from squall.security.sealing import KeyPair
from supervisor.nimbus_http import Nimbuses, NimbusFiles
from tests.supervisor.nimbus_over_http import FakeNimbus
from topology_api.errors import SquallError

FILE = b"modules"
NAME = sha256(FILE).hexdigest()
WRONG = b"something else"


class Site:
    """A supervisor, and Nimbuses of which n1 leads."""

    def __init__(self, folder: Path) -> None:
        self.store = InMemoryStore()
        self.clock = ManualClock(1000.0)
        self.target = folder / "file"
        pair = KeyPair.make()
        Registry(self.store).supervisors.put(SupervisorRecord("s1", "h", 1, public_key=pair.public))
        self.leader, self.standby = (FakeNimbus(self.store, name, leads=False) for name in ("n1", "n2"))
        self.store.put(paths.LEADER, b"n1")
        nimbuses = Nimbuses(self.store, "s1", pair)
        self.files = NimbusFiles(nimbuses, 1000, sources=FileSources(self.clock.now))

    def fetch(self) -> bytes:
        self.files.fetch(NAME, self.target)
        return self.target.read_bytes()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path)
    yield made
    made.leader.close()
    made.standby.close()


@pytest.fixture
def asked(site: Site, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """The Nimbuses that were asked for the file since the last call."""
    seen: list[str] = []

    class Noting(dict[str, bytes]):
        def __init__(self, name: str, files: dict[str, bytes]) -> None:
            super().__init__(files)
            self.name = name

        def get(self, key: str, default: object = None) -> object:  # type: ignore[override]
            seen.append(self.name)
            return super().get(key, default)

    for nimbus in (site.leader, site.standby):
        monkeypatch.setattr(nimbus, "files", Noting(nimbus.id, nimbus.files))

    def since() -> list[str]:
        found = list(seen)
        seen.clear()
        return found

    return since


def test_a_leader_that_delivers_a_wrong_file_is_named_and_the_others_are_asked(
    site: Site, asked: Callable[[], list[str]], caplog: pytest.LogCaptureFixture
) -> None:
    site.leader.files[NAME], site.standby.files[NAME] = WRONG, FILE
    assert site.fetch() == FILE
    assert asked() == ["n1", "n2"]
    (told,) = [record.getMessage() for record in caplog.records if "delivered" in record.getMessage()]
    assert f"Nimbus n1 at {site.leader.record.url}" in told and sha256(WRONG).hexdigest() in told
    assert site.fetch() == FILE
    assert asked() == ["n2"], "the leader is not asked for a while"
    site.clock.move_to(site.clock.now() + WRONG_SECS)
    site.leader.files[NAME] = FILE
    assert site.fetch() == FILE
    assert asked() == ["n1"], "and asked again"


def test_a_file_that_no_nimbus_has_right_is_an_error_that_says_so(site: Site) -> None:
    site.leader.files[NAME] = WRONG
    site.standby.files[NAME] = WRONG
    with pytest.raises(SquallError, match="delivered a wrong file instead"):
        site.fetch()
    with pytest.raises(SquallError, match="every Nimbus delivered a wrong file instead"):
        site.fetch()


def test_a_leader_that_does_not_answer_is_asked_last_the_next_time(
    site: Site, asked: Callable[[], list[str]]
) -> None:
    site.leader.files[NAME] = site.standby.files[NAME] = FILE
    site.leader.down()
    assert site.fetch() == FILE
    site.leader.up()
    asked()
    assert site.fetch() == FILE
    assert asked() == ["n2"]
    site.clock.move_to(site.clock.now() + SILENT_SECS)
    assert site.fetch() == FILE
    assert asked() == ["n1"]
