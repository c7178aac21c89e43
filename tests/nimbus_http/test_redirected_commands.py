"""A command that asks a standby is redirected to the leader, and sends the token there if that Nimbus is configured."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from nimbus.daemon import NimbusDaemon
from squall.cluster.memory import InMemoryStore
from squall.security.private_files import write_private
from squall.security.tokens import user_place
from squall_cli.main import squall
from tests.nimbus_http.nimbuses import Cluster, client_of, closing, submission


@pytest.fixture
def pair(cluster: Cluster, store: InMemoryStore) -> tuple[NimbusDaemon, NimbusDaemon]:
    """A leader with a topology, and a standby."""
    leader = cluster.start_leader("leading", store.session())
    standby = cluster.start_standby("standing-by", store.session())
    with closing(client_of(leader)) as client:
        client.post("topologies", submission())
    return leader, standby


@pytest.fixture
def environ(pair: tuple[NimbusDaemon, NimbusDaemon], tmp_path: Path) -> dict[str, str | None]:
    """An operator with a copy of the token, and with no other files."""
    home = tmp_path / "operator"
    write_private(home / "token", pair[0].token or "")
    unset = ("SQUALL_NIMBUS", "SQUALL_CONFIG", "XDG_STATE_HOME", "XDG_CONFIG_HOME")
    return {**dict.fromkeys(unset), "HOME": str(home), "SQUALL_TOKEN_FILE": str(home / "token")}


def deactivate(environ: dict[str, str | None], *urls: str) -> Result:
    return CliRunner(env=environ).invoke(squall, ["deactivate", "words", "--nimbus", ",".join(urls)])


def test_a_redirect_to_a_configured_nimbus_is_followed_with_the_token(
    pair: tuple[NimbusDaemon, NimbusDaemon], environ: dict[str, str | None]
) -> None:
    leader, standby = pair
    assert deactivate(environ, standby.url, leader.url).output == "words is INACTIVE.\n"


def test_a_redirect_to_a_nimbus_that_is_not_configured_gets_no_token(
    pair: tuple[NimbusDaemon, NimbusDaemon], environ: dict[str, str | None]
) -> None:
    leader, standby = pair
    result = deactivate(environ, standby.url)
    assert result.exit_code == 1
    assert (
        f"{standby.url} redirects to the leader at {leader.url}, for which there are no credentials"
        in result.output
    )
    assert "name all Nimbuses in nimbus.url" in result.output
    assert leader.views.topology("words").state == "ACTIVE"


def test_the_users_own_file_for_the_leader_configures_it_too(
    pair: tuple[NimbusDaemon, NimbusDaemon], environ: dict[str, str | None]
) -> None:
    leader, standby = pair
    place = user_place(leader.url, {"HOME": str(environ["HOME"])})
    assert place is not None
    write_private(place, leader.token or "")
    assert deactivate(environ, standby.url).output == "words is INACTIVE.\n"
