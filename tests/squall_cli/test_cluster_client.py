"""How a command finds its cluster, which credentials it shows, and its error if that fails."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from squall import __version__
from squall.api.cluster_answers import DrainAnswer
from squall_cli.cluster import nimbus_client
from squall_cli.cluster.cluster_client import DEFAULT_URL, addresses
from squall_cli.cluster.nimbus_client import NimbusClient
from squall_cli.main import squall
from tests.squall_cli.fake_nimbus import FakeNimbus, Refusal, fake_nimbus, topology
from tests.squall_cli.run_process import CAP, environment


@pytest.fixture
def nimbus() -> Iterator[FakeNimbus]:
    with fake_nimbus() as there:
        there.put(topology("word_count"))
        yield there


@pytest.fixture(autouse=True)
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing in the surroundings of the command names a cluster."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("SQUALL_NIMBUS", "SQUALL_TOKEN_FILE", "SQUALL_CONFIG", "XDG_STATE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(squall, arguments, prog_name="squall")


def test_the_option_overrides_the_variable_which_overrides_the_site() -> None:
    site, environ = {"nimbus.url": "http://site:1"}, {"SQUALL_NIMBUS": "http://variable:1"}
    assert addresses("http://option:1", site, environ) == ["http://option:1"]
    assert addresses(None, site, environ) == ["http://variable:1"]
    assert addresses(None, site, {"SQUALL_NIMBUS": ""}) == ["http://site:1"]
    assert addresses(None, {"nimbus.url": None}, {}) == [DEFAULT_URL]


def test_several_addresses_are_separated_by_commas_and_the_scheme_is_optional() -> None:
    assert addresses("a:1, https://b:2,", {}, {}) == ["http://a:1", "https://b:2"]


def test_a_host_alone_means_the_usual_port() -> None:
    assert addresses("a,[::1],[::1]:7,http://b", {}, {}) == [
        "http://a:6627",
        "http://[::1]:6627",
        "http://[::1]:7",
        "http://b",
    ]


def test_https_to_a_nimbus_without_it_is_recognised(nimbus: FakeNimbus) -> None:
    result = run("list", "--nimbus", nimbus.url.replace("http:", "https:"))
    assert "it does not speak TLS" in result.stderr
    assert result.stderr.count("\n") == 1


def test_the_site_file_names_nimbus(nimbus: FakeNimbus, tmp_path: Path) -> None:
    (tmp_path / "site.yaml").write_text(f"nimbus.url: {nimbus.url}\n")
    assert run("list", "--config", str(tmp_path / "site.yaml")).exit_code == 0
    (tmp_path / ".config" / "squall").mkdir(parents=True)
    (tmp_path / "site.yaml").rename(tmp_path / ".config" / "squall" / "squall.yaml")
    assert "word_count" in run("list").stdout


def test_a_wrong_site_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "site.yaml").write_text("nimbus.ulr: http://h:1\n")
    result = run("list", "--config", str(tmp_path / "site.yaml"))
    assert result.exit_code == 1
    assert "site.yaml" in result.stderr
    assert "nimbus.url" in result.stderr


def test_the_second_address_is_asked_when_the_first_does_not_answer(nimbus: FakeNimbus) -> None:
    assert "word_count" in run("list", "--nimbus", f"http://127.0.0.1:1,{nimbus.url}").stdout


def test_an_absent_nimbus_is_reported_in_one_sentence_with_advice() -> None:
    result = run("list", "--nimbus", "http://127.0.0.1:1")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("squall list: Nimbus at http://127.0.0.1:1 cannot be reached: ")
    assert "squall nimbus" in result.stderr
    assert "squall dev" in result.stderr
    assert "--nimbus" in result.stderr
    assert result.stderr.count("\n") == 1


def test_of_several_absent_ones_each_is_named() -> None:
    result = run("list", "--nimbus", "http://127.0.0.1:1,http://127.0.0.1:2")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith(
        "squall list: Nimbus at http://127.0.0.1:1 cannot be reached: connection refused;"
        " Nimbus at http://127.0.0.1:2 cannot be reached: connection refused; is it running?"
    )
    assert result.stderr.count("is it running?") == result.stderr.count("\n") == 1


@pytest.mark.parametrize("address", ["ftp://h:1", "http://", "http://h:x", "http://user:secret@h:1"])
def test_an_invalid_address_is_refused_and_no_password_is_shown(address: str) -> None:
    result = run("list", "--nimbus", address)
    assert result.exit_code == 1
    assert "secret" not in result.stderr
    assert result.stderr.count("\n") == 1


def test_another_program_that_listens_there_is_recognised(nimbus: FakeNimbus) -> None:
    nimbus.refusal = Refusal(500, "Oops", "a bug")
    assert run("list", "--nimbus", nimbus.url).stderr == "squall list: a bug\n"


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ([], "is list, not an object"),
        (None, "is NoneType, not an object"),
        ({}, "does not fit (Object missing required field `topologies`)"),
    ],
)
def test_json_of_another_program_is_recognised(nimbus: FakeNimbus, answer: object, problem: str) -> None:
    nimbus.answers["topologies"] = answer
    result = run("list", "--nimbus", nimbus.url)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == (
        f"squall list: the answer to 'topologies' {problem}:"
        f" is a Nimbus of Squall {__version__} listening there?\n"
    )


def test_the_token_of_the_users_own_nimbus_is_used_by_default(nimbus: FakeNimbus, tmp_path: Path) -> None:
    port = nimbus.url.rpartition(":")[2]
    place = tmp_path / ".local" / "state" / "squall" / "tokens" / f"localhost_{port}"
    place.parent.mkdir(parents=True)
    place.write_text("a-token")
    place.chmod(0o600)
    run("list", "--nimbus", nimbus.url)
    assert nimbus.headers[-1]["Authorization"] == "Bearer a-token"


def test_a_token_that_others_may_read_is_refused(
    nimbus: FakeNimbus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "token"
    file.write_text("a-token")
    file.chmod(0o644)
    monkeypatch.setenv("SQUALL_TOKEN_FILE", str(file))
    result = run("list", "--nimbus", nimbus.url)
    assert result.exit_code == 1
    assert "chmod" in result.stderr
    assert "a-token" not in result.stderr
    assert nimbus.asked == []


def test_without_a_token_the_refusal_names_the_places_that_were_searched(nimbus: FakeNimbus) -> None:
    nimbus.refusal = Refusal(401, "Unauthorized", "this needs the operators' token")
    result = run("list", "--nimbus", nimbus.url)
    assert result.exit_code == 1
    assert result.stderr.startswith("squall list: this needs the operators' token; ")
    assert "SQUALL_TOKEN_FILE" in result.stderr


def test_only_changes_that_may_be_made_twice_are_sent_again(
    nimbus: FakeNimbus, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: dict[str, bool] = {}

    class Noting(NimbusClient):
        def post(
            self, path: str, body: object = None, repeatable: bool = False, timeout: float | None = None
        ) -> Any:
            sent[path] = repeatable
            return super().post(path, body, repeatable, timeout)

    monkeypatch.setattr(nimbus_client, "NimbusClient", Noting)
    for line in ("activate word_count", "deactivate word_count", "rebalance word_count -n 1", "drain host-1"):
        assert run(*line.split(), "--nimbus", nimbus.url).exit_code == 0
    assert sent == {
        "topologies/word_count/activate": True,
        "topologies/word_count/deactivate": True,
        "topologies/word_count/rebalance": False,
        "supervisors/id-of-host-1/drain": True,
    }
    sent.clear()
    with closing(Noting([nimbus.url], lambda url: None, None, CAP)) as client:
        client.change("word_count", "activate")
        client.post_json(DrainAnswer, "supervisors", "id-of-host-2", "drain")
    assert sent == {"topologies/word_count/activate": False, "supervisors/id-of-host-2/drain": False}


READS_ANSWERS = ("msgspec", "http.client", "rich", "yaml")


@pytest.mark.parametrize(
    ("line", "heavy"),
    [("completion bash", READS_ANSWERS), ("kill --help", READS_ANSWERS), ("run --help", ("nacl", "kazoo"))],
)
def test_what_asks_no_cluster_loads_nothing_that_only_clusters_need(
    line: str, heavy: tuple[str, ...]
) -> None:
    code = (
        "import sys; from squall_cli.main import squall\n"
        f"try: squall.main({line.split()!r}, prog_name='squall')\n"
        f"finally: print(sorted(sys.modules.keys() & set({heavy!r})))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code],
        env=environment(),
        cwd="/",
        capture_output=True,
        text=True,
        timeout=CAP,
        check=True,
    )
    assert result.stdout.splitlines()[-1] == "[]"


def test_list_in_a_pipe_loads_nothing_unnecessary(nimbus: FakeNimbus) -> None:
    heavy = (
        "rich",
        "yaml",
        "zmq",
        "cloudpickle",
        "asyncio",
        "local_cluster",
        "nimbus",
        "supervisor",
        "nacl",
        "kazoo",
    )
    code = (
        "import sys; from squall_cli.main import squall\n"
        f"try: squall.main(['list', '--nimbus', {nimbus.url!r}], prog_name='squall')\n"
        f"finally: print(sorted(sys.modules.keys() & set({heavy!r})))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code],
        env=environment(),
        cwd="/",
        capture_output=True,
        text=True,
        timeout=CAP,
        check=True,
    )
    assert "word_count" in result.stdout
    assert result.stdout.splitlines()[-1] == "[]"
