"""conf/squall.yaml: an example that sets nothing, and whose every line would take effect."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from squall.settings import load_site
from topology_api.errors import InvalidConfig
from topology_api.options import OPTIONS

EXAMPLE = Path(__file__).resolve().parents[2] / "conf" / "squall.yaml"
SETTING = re.compile(r"#([a-z][\w.]*:.*)")


def settings() -> list[str]:
    return [found[1] for line in EXAMPLE.read_text().splitlines() if (found := SETTING.fullmatch(line))]


def test_the_example_sets_nothing_unedited() -> None:
    assert load_site(EXAMPLE) == {}


def test_every_line_of_the_example_is_an_option_with_an_accepted_value(tmp_path: Path) -> None:
    site = tmp_path / "squall.yaml"
    site.write_text("\n".join(settings()))
    loaded = load_site(site)
    assert [name for name in loaded if name not in OPTIONS] == ["orders.database.host"]
    assert len(loaded) == len(settings()) > 15


def test_all_daemon_options_are_in_the_example() -> None:
    named = {line.partition(":")[0] for line in settings()}
    assert {option.name for option in OPTIONS.values() if option.scope == "daemon"} <= named


@pytest.mark.parametrize("name", sorted(OPTIONS))
def test_the_usual_values_in_the_example_are_the_defaults(name: str, tmp_path: Path) -> None:
    site = tmp_path / "squall.yaml"
    site.write_text("\n".join(line for line in settings() if line.startswith(f"{name}:")))
    for value in load_site(site).values():
        assert OPTIONS[name].default in (None, value)


def test_a_misspelt_line_would_be_found(tmp_path: Path) -> None:
    site = tmp_path / "squall.yaml"
    site.write_text("squall.zookeeper.sever: zoo-1:2181")
    with pytest.raises(InvalidConfig, match=r"squall\.zookeeper\.servers"):
        load_site(site)
