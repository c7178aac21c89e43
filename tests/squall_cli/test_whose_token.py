"""Which token a command sends where: a token belongs to the URLs that it was made for, and to no other."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from squall.security.private_files import BadPrivateFile, write_private
from squall.security.tokens import user_place
from squall_cli.cluster.cluster_client import urls_of
from squall_cli.cluster.credentials import Credentials, NotItsToken
from squall_cli.main import squall
from squall_cli.options.site import Layers, read_layers
from tests.squall_cli.fake_nimbus import FakeNimbus, topology

HERE = "http://127.0.0.1:6627"
ONE, TWO, FOREIGN = (
    "https://nimbus-1.example:6627",
    "https://nimbus-2.example:6627",
    "https://foreign.example",
)


class Operator:
    """A home with files of tokens, and what the site's file and the environment set."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.environ = {"HOME": str(home)}

    def token(self, name: str) -> str:
        """A file whose token is its name."""
        write_private(self.home / name, name)
        return str(self.home / name)

    def keep(self, url: str, token: str) -> None:
        place = user_place(url, self.environ)
        assert place is not None
        write_private(place, token)

    def asks(
        self,
        *urls: str,
        site: dict[str, object] | None = None,
        insecure: bool = False,
        environ: dict[str, str] | None = None,
    ) -> Credentials:
        variables = {**self.environ, **(environ or {})}
        read = read_layers(None, variables, ())
        layers = Layers(Path("site.yaml"), site or {}, None, {}, read.environment, read.overrides)
        return Credentials(urls, layers, urls_of((site or {}).get("nimbus.url")), variables, insecure)


@pytest.fixture
def operator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Operator:
    monkeypatch.chdir(tmp_path)
    return Operator(tmp_path)


def test_the_token_of_a_sites_file_belongs_to_the_urls_of_that_file(operator: Operator) -> None:
    site: dict[str, object] = {"squall.token.file": operator.token("of-site"), "nimbus.url": f"{ONE},{TWO}"}
    credentials = operator.asks(ONE, site=site)
    assert credentials.token_for(ONE) == "of-site"
    assert credentials.token_for("https://NIMBUS-1.example:6627/") == "of-site"
    assert credentials.token_for(TWO) == "of-site", "a redirect to a configured Nimbus"
    assert credentials.token_for(FOREIGN) is None, "a redirect to another host"
    assert credentials.token_for("https://nimbus-1.example") is None, "another port"
    assert credentials.token_for(ONE.replace("https", "http")) is None, "another scheme"


def test_another_url_from_the_command_line_does_not_get_it_and_the_error_says_what_to_do(
    operator: Operator,
) -> None:
    site: dict[str, object] = {"squall.token.file": operator.token("of-site"), "nimbus.url": ONE}
    with pytest.raises(NotItsToken) as refused:
        operator.asks(FOREIGN, site=site).token_for(FOREIGN)
    assert str(refused.value) == (
        f"the token in {operator.home}/of-site is not sent to {FOREIGN}: site.yaml names it (squall.token.file) as the token"
        f" of {ONE}. If {FOREIGN} belongs to the same cluster, add it to nimbus.url in site.yaml. Otherwise name its token"
        f" by SQUALL_TOKEN_FILE, or copy the token of that Nimbus to"
        f" {operator.home}/.local/state/squall/tokens/foreign.example_443"
    )
    operator.keep(FOREIGN, "its-own")
    assert operator.asks(FOREIGN, site=site).token_for(FOREIGN) == "its-own"


def test_the_token_of_a_sites_file_without_urls_stays_on_this_host(operator: Operator) -> None:
    site: dict[str, object] = {"squall.token.file": operator.token("of-site")}
    assert operator.asks(HERE, site=site).token_for(HERE) == "of-site"
    for url in (ONE, "http://localhost.evil.example:6627", "http://127.0.0.1.evil.example:6627"):
        with pytest.raises(NotItsToken, match="the token of a Nimbus on this host"):
            operator.asks(url, site=site).token_for(url)


@pytest.mark.parametrize("variable", ["SQUALL_TOKEN_FILE", "SQUALL_SQUALL_TOKEN_FILE"])
def test_the_token_of_the_environment_belongs_to_what_the_command_asks(
    operator: Operator, variable: str
) -> None:
    site: dict[str, object] = {"squall.token.file": operator.token("of-site"), "nimbus.url": ONE}
    of_shell = {variable: operator.token("of-shell")}
    assert operator.asks(FOREIGN, site=site, environ=of_shell).token_for(FOREIGN) == "of-shell"
    assert operator.asks(ONE, site=site, environ=of_shell).token_for(ONE) == "of-shell"
    assert operator.asks(FOREIGN, environ=of_shell).token_for(TWO) is None, "a redirect to another host"


def test_the_users_own_files_are_for_one_url_each(operator: Operator) -> None:
    operator.keep(ONE, "one")
    operator.keep(HERE, "here")
    credentials = operator.asks(ONE)
    assert [credentials.token_for(url) for url in (ONE, HERE, TWO, FOREIGN)] == ["one", "here", None, None]
    of_shell = operator.asks(ONE, environ={"SQUALL_TOKEN_FILE": operator.token("of-shell")})
    assert (of_shell.token_for(ONE), of_shell.token_for(HERE)) == ("of-shell", "here")


def test_the_users_own_file_for_one_nimbus_serves_all_that_the_sites_file_names(operator: Operator) -> None:
    operator.keep(ONE, "kept")
    site: dict[str, object] = {"nimbus.url": f"{ONE},{TWO}"}
    credentials = operator.asks(ONE, TWO, site=site)
    assert (credentials.token_for(TWO), credentials.token_for(FOREIGN)) == ("kept", None)
    assert operator.asks(FOREIGN, site=site).token_for(FOREIGN) is None
    assert operator.asks(ONE, TWO).token_for(TWO) is None, "a command line makes no cluster"


def test_no_token_goes_unencrypted_to_another_host_unless_the_user_says_so(operator: Operator) -> None:
    url = "http://nimbus-1.example:6627"
    environ = {"SQUALL_TOKEN_FILE": operator.token("of-shell")}
    with pytest.raises(NotItsToken, match=f"is not sent to {url}.*write https://, or add --insecure"):
        operator.asks(url, environ=environ).token_for(url)
    assert operator.asks(url, insecure=True, environ=environ).token_for(url) == "of-shell"
    assert operator.asks(url).token_for(url) is None, "without a token there is nothing to lose"
    for here in (HERE, "http://localhost:1", "http://[::1]:1", "http://0.0.0.0:1"):
        assert operator.asks(here, environ=environ).token_for(here) == "of-shell"
    for elsewhere in (
        "http://localhost.example:1",
        "http://127.1:1",
        "http://2130706433:1",
        "http://10.0.0.1:1",
    ):
        with pytest.raises(NotItsToken):
            operator.asks(elsewhere, environ=environ).token_for(elsewhere)


def test_a_named_file_that_does_not_exist_is_reported(operator: Operator) -> None:
    nowhere = str(operator.home / "nowhere")
    with pytest.raises(BadPrivateFile, match=f"SQUALL_TOKEN_FILE names {nowhere}"):
        operator.asks(ONE, environ={"SQUALL_TOKEN_FILE": nowhere}).token_for(ONE)
    with pytest.raises(BadPrivateFile, match=rf"squall\.token\.file names {nowhere}"):
        operator.asks(HERE, site={"squall.token.file": nowhere}).token_for(HERE)


# Commands


def run(*arguments: str, **environ: str) -> Result:
    return CliRunner(env=environ).invoke(squall, arguments, prog_name="squall")


@pytest.fixture
def stranger(nimbus: FakeNimbus, operator: Operator, monkeypatch: pytest.MonkeyPatch) -> FakeNimbus:
    """A server that records what it is sent."""
    monkeypatch.setenv("HOME", str(operator.home))
    for name in ("SQUALL_NIMBUS", "SQUALL_TOKEN_FILE", "SQUALL_CONFIG", "XDG_STATE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    nimbus.put(topology("word_count"))
    return nimbus


@pytest.mark.parametrize("line", ["list", "kill word_count", "submit nothing.py", "config word_count", "top"])
def test_a_strangers_folder_sends_no_private_file_to_the_strangers_server(
    operator: Operator, stranger: FakeNimbus, line: str
) -> None:
    conf = operator.home / "conf" / "squall.yaml"
    conf.parent.mkdir()
    conf.write_text(f"nimbus.url: {stranger.url}\nsquall.token.file: {operator.token('private')}\n")
    result = run(*line.split())
    assert result.exit_code == 1
    assert "move 'nimbus.url', 'squall.token.file' to" in result.stderr
    assert stranger.asked == []


def test_the_sites_token_is_not_sent_to_a_server_that_the_command_line_names(
    operator: Operator, stranger: FakeNimbus
) -> None:
    site = operator.home / "site.yaml"
    site.write_text(f"nimbus.url: https://nimbus.example\nsquall.token.file: {operator.token('private')}\n")
    for arguments, environ in ((("--nimbus", stranger.url), {}), ((), {"SQUALL_NIMBUS": stranger.url})):
        result = run("list", "--config", str(site), *arguments, **environ)
        assert result.exit_code == 1
        assert f"is not sent to {stranger.url}" in result.stderr
    assert stranger.asked == []
    site.write_text(f"nimbus.url: {stranger.url}\nsquall.token.file: {operator.token('private')}\n")
    assert run("list", "--config", str(site)).exit_code == 0
    assert stranger.headers[-1]["Authorization"] == "Bearer private"


def test_an_unencrypted_address_of_another_host_is_refused_before_anything_is_sent(
    operator: Operator,
) -> None:
    environ = {"SQUALL_TOKEN_FILE": operator.token("of-shell"), "HOME": str(operator.home)}
    result = run("list", "--nimbus", "http://192.0.2.1:6627", **environ)
    assert result.exit_code == 1
    assert "is not sent to http://192.0.2.1:6627" in result.stderr
