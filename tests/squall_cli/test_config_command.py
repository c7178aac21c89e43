"""`squall config` shows the current settings with their sources, and names all problems."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from squall_cli.main import squall
from squall_cli.options import site
from topology_api.options import OPTIONS


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def config(*arguments: str, environ: dict[str, str] | None = None) -> Result:
    return CliRunner(env=environ).invoke(squall, ["config", *arguments], prog_name="squall")


def as_json(*arguments: str, environ: dict[str, str] | None = None) -> dict[str, dict[str, object]]:
    result = config("--json", *arguments, environ=environ)
    assert (result.exit_code, result.stderr) == (0, "")
    found: dict[str, dict[str, object]] = json.loads(result.stdout)
    return found


def test_without_any_setting_every_option_has_its_default() -> None:
    found = as_json()
    assert list(found) == list(OPTIONS)
    assert {entry["from"] for entry in found.values()} == {"default"}
    assert found["topology.message.timeout.secs"]["value"] == 30


def test_later_layers_override_earlier_ones_and_are_named(tmp_path: Path) -> None:
    names = ["topology.workers", "topology.queue.size", "topology.cycle.buffer"]
    (tmp_path / "site.yaml").write_text("".join(f"{name}: 100\n" for name in names))
    environ = {"SQUALL_TOPOLOGY_WORKERS": "200", "SQUALL_TOPOLOGY_QUEUE_SIZE": "200"}
    found = as_json("--config", "site.yaml", "-o", "topology.workers=300", environ=environ)
    assert [found[name] for name in names] == [
        {"value": 300, "from": "-o"},
        {"value": 200, "from": "environment"},
        {"value": 100, "from": "site file"},
    ]


def test_the_sites_file_is_the_first_of_its_places_that_exists(tmp_path: Path) -> None:
    there = {tmp_path / name / "squall.yaml": name for name in ("host", "squall", "variable", "option")}
    for number, (file, name) in enumerate(there.items(), 1):
        file.parent.mkdir()
        file.write_text(f"topology.workers: {number}\nshop.name: {name}\n")
    host, user, variable, option = map(str, there)
    environ = {"XDG_CONFIG_HOME": str(tmp_path), "SQUALL_CONFIG": ""}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(site, "HOST_FILE", Path(host))
        for expected, found in (
            (option, config("--config", option, environ={**environ, "SQUALL_CONFIG": variable})),
            (variable, config(environ={**environ, "SQUALL_CONFIG": variable})),
            (user, config(environ=environ)),
            (host, config(environ={"XDG_CONFIG_HOME": "relative", "HOME": "/nowhere"})),
        ):
            assert found.stdout.endswith(f"\nsite file: {expected}\n"), found.output
            assert f'"{there[Path(expected)]}"' in found.stdout, "one file, not a mixture"


def test_the_file_of_the_working_folder_sets_options_of_topologies(tmp_path: Path) -> None:
    (tmp_path / "site.yaml").write_text("topology.workers: 2\ntopology.queue.size: 100\n")
    (tmp_path / "squall").mkdir()
    (tmp_path / "squall" / "squall.yaml").write_text("topology.workers: 2\ntopology.queue.size: 100\n")
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "squall.yaml").write_text("topology.workers: 7\n")
    found = as_json(environ={"XDG_CONFIG_HOME": str(tmp_path)})
    assert found["topology.workers"] == {"value": 7, "from": "conf/squall.yaml"}
    assert found["topology.queue.size"] == {"value": 100, "from": "site file"}
    shown = config(environ={"XDG_CONFIG_HOME": str(tmp_path)}).stdout
    assert shown.endswith(f"\nsite file: {tmp_path}/squall/squall.yaml\nworking folder: conf/squall.yaml\n")
    found = as_json("--config", "site.yaml")
    assert found["topology.workers"] == {"value": 2, "from": "site file"}, "--config replaces both"
    found = as_json(environ={"SQUALL_CONFIG": str(tmp_path / "site.yaml")})
    assert found["topology.workers"] == {"value": 7, "from": "conf/squall.yaml"}


@pytest.mark.parametrize(
    "text", ["nimbus.url: http://h:1", "squall.token.file: /home/me/secret", "shop.name: corner"]
)
def test_anything_else_in_the_working_folder_is_refused_with_its_new_place(tmp_path: Path, text: str) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "squall.yaml").write_text(f"topology.workers: 7\n{text}\n")
    result = config(environ={"XDG_CONFIG_HOME": "/mine"})
    assert (result.exit_code, result.stdout) == (1, "")
    key = text.partition(":")[0]
    assert (
        f"conf/squall.yaml in the working folder may set topology.* only: move {key!r} to"
        " /mine/squall/squall.yaml (for you), /etc/squall/squall.yaml (for all users of this host), or to a file"
        " that you name by --config or SQUALL_CONFIG"
    ) in result.stderr
    assert config("--config", "conf/squall.yaml").exit_code == 0, "a file that the user names may set all"
    assert config(environ={"SQUALL_CONFIG": str(tmp_path / "conf" / "squall.yaml")}).exit_code == 0
    relative = config(environ={"SQUALL_CONFIG": "conf/squall.yaml"})
    assert (relative.exit_code, relative.stdout) == (1, "")
    assert "SQUALL_CONFIG=conf/squall.yaml: give an absolute path" in relative.stderr


def test_a_setting_of_one_component_is_separate() -> None:
    found = as_json("-o", "split:topology.queue.size=64")
    assert found["split:topology.queue.size"] == {"value": 64, "from": "-o"}
    assert found["topology.queue.size"]["from"] == "default"


def test_the_table_fits_a_terminal_and_shows_unit_and_origin() -> None:
    lines = config("-o", "topology.message.timeout.secs=5").stdout.splitlines()
    assert lines[0].split() == ["OPTION", "VALUE", "UNIT", "FROM"]
    row = next(line for line in lines if line.startswith("topology.message.timeout.secs "))
    assert row.split() == ["topology.message.timeout.secs", "5", "seconds", "-o"]
    assert max(map(len, lines)) <= 80


def test_a_value_is_printed_with_all_of_its_blanks() -> None:
    lines = config("-o", "my.text=two  blanks").stdout.splitlines()
    [row] = [line for line in lines if line.startswith("my.text ")]
    assert '  "two  blanks"  ' in row


def test_all_problems_are_named_with_their_place(tmp_path: Path) -> None:
    (tmp_path / "site.yaml").write_text("topology.wrokers: 2\n")
    result = config(
        *("--config", "site.yaml"),
        *("-o", "topology.queue.size=many", "-o", "split:topology.workers=2"),
        environ={"SQUALL_TOPOLOGY_ACKING": "perhaps"},
    )
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("squall config: the configuration has 4 problems:")
    for part in (
        "site.yaml: unknown configuration key 'topology.wrokers'; did you mean 'topology.workers'?",
        "SQUALL_TOPOLOGY_ACKING",
        "-o: 'topology.queue.size' ",
        "-o split: 'topology.workers' ",
    ):
        assert part in result.stderr


def test_a_wrong_value_of_a_setting_is_wrong_usage() -> None:
    result = config("-o", "topology.workers=many")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "-o: 'topology.workers' is 'many' (str): give a whole number" in result.stderr


def test_an_invalid_setting_is_answered_with_how_to_write_it() -> None:
    result = config("-o", "nonsense")
    assert result.exit_code == 2
    assert "-o nonsense: write -o key=value" in result.stderr


def test_a_missing_sites_file_is_named() -> None:
    result = config("--config", "nowhere.yaml")
    assert result.exit_code == 1
    assert "nowhere.yaml" in result.stderr


@pytest.mark.parametrize("text", ["foo", "=1", "topology.workers", "count:=3"])
@pytest.mark.parametrize("command", [["config"], ["run", "nowhere.py"]])
def test_an_invalid_setting_is_wrong_usage(command: list[str], text: str) -> None:
    result = CliRunner().invoke(squall, [*command, "-o", text], prog_name="squall")
    assert result.exit_code == 2
    assert text in result.output
