"""`squall nimbuses`: a table of the masters and of everyone who can open the operators' token, and the same as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from nimbus.daemon import NimbusDaemon
from squall.api.cluster_answers import NimbusMember
from squall.cluster import paths
from squall.cluster.memory import InMemoryStore
from squall.cluster.records import NimbusRecord
from squall.cluster.registry import Registry
from squall.security.sealing import KeyPair, fingerprint, seal_texts
from squall_cli.commands.nimbuses import summary
from squall_cli.main import squall
from squall_cli.terminal.formats import known_moment
from tests.nimbus_http.nimbuses import Cluster


@pytest.fixture
def leader(tmp_path: Path) -> Iterator[NimbusDaemon]:
    cluster = Cluster(InMemoryStore(), tmp_path)
    yield cluster.start_leader()
    cluster.stop()


def run(leader: NimbusDaemon, tmp_path: Path, *arguments: str) -> Result:
    environ = {"SQUALL_NIMBUS": leader.url, "XDG_STATE_HOME": str(tmp_path / "xdg")}
    return CliRunner().invoke(squall, ["nimbuses", *arguments], prog_name="squall", env=environ)


def test_the_table_shows_key_state_address_and_time_of_each(leader: NimbusDaemon, tmp_path: Path) -> None:
    gone, stranger = KeyPair.make(), KeyPair.make()
    registry = Registry(leader._store)
    registry.save_sealed_keys(paths.OPERATOR, "gone", seal_texts(gone.public, paths.OPERATOR, {}))
    # A time that no calendar has, and an address that would change a terminal.
    registry.nimbuses.put(NimbusRecord("odd", "http://\x1b[2J:1", "there", stranger.public, started=1e300))
    result = run(leader, tmp_path)
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[0].split() == ["ID", "STATE", "SINCE", "ADDRESS", "TOKEN", "SQUALL", "KEY"]
    rows = {line.split()[0]: line for line in lines[1:]}
    assert rows.keys() == {"gone", "odd", leader.me.id}
    mine = rows[leader.me.id]
    assert "leading" in mine and leader.url in mine and fingerprint(leader.me.public_key) in mine
    assert "away" in rows["gone"] and fingerprint(gone.public) in rows["gone"] and "yes" in rows["gone"]
    assert "standby" in rows["odd"] and "\x1b" not in result.output
    assert f"2 Nimbuses; {leader.me.id} leads; 1 other can open the operators' token" in result.stderr


def test_json_is_the_answer_of_the_api(leader: NimbusDaemon, tmp_path: Path) -> None:
    [found] = json.loads(run(leader, tmp_path, "--json").stdout)["nimbuses"]
    assert (found["id"], found["state"], found["key"]) == (
        leader.me.id, "leading", fingerprint(leader.me.public_key),
    )  # fmt: skip


def test_the_summary_says_when_none_leads() -> None:
    one = NimbusMember("n1", "http://n1", "n1", "standby", None, "-", False, {})
    assert summary([one]) == "1 Nimbus; none leads"
    assert (
        summary([one], "/squall is open to strangers") == "1 Nimbus; none leads. /squall is open to strangers"
    )
    assert known_moment(one.since) == "-"
