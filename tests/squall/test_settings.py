"""Settings: which layer wins, and the source of a wrong value in its error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from scripts.options_pages import defaults_yaml, reference_table
from squall.settings import (
    Overrides,
    environment_conf,
    load_site,
    merged,
    parse_override,
    parse_overrides,
)
from topology_api import InvalidConfig, Spout, Topology, TopologyBuilder
from topology_api.options import OPTIONS, defaults
from topology_api.topology import ComponentSpec

ROOT = Path(__file__).parents[2]
PENDING = "topology.max.spout.pending"


class Source(Spout):
    outputs = "a"

    def next_tuple(self) -> None:
        pass


def topology(conf: dict[str, object] | None = None, own: dict[str, object] | None = None) -> Topology:
    builder = TopologyBuilder("t", conf)
    builder.set_spout("s", Source(), conf=own)
    builder.set_spout("other", Source())
    return builder.build()


def problems(call: Any, *arguments: Any, **named: Any) -> tuple[str, ...]:
    with pytest.raises(InvalidConfig) as caught:
        call(*arguments, **named)
    return caught.value.problems


def test_the_file_of_defaults_is_up_to_date() -> None:
    text = (ROOT / "conf" / "defaults.yaml").read_text(encoding="utf-8")
    assert text == defaults_yaml(), "run: python scripts/reference_pages.py"


def test_the_file_of_defaults_has_the_defaults_and_documents_each() -> None:
    text = defaults_yaml()
    assert yaml.safe_load(text) == defaults("daemon")
    assert max(len(line) for line in text.splitlines()) <= 110
    for option in OPTIONS.values():
        before = text[: text.index(f"\n{option.name}:")].rsplit("\n\n", 1)[1]
        assert option.text.split()[0] in before
        assert option.unit in before


def test_the_reference_has_a_row_for_each_option() -> None:
    rows = reference_table().splitlines()[2:]
    assert [row.split("`")[1] for row in rows] == list(OPTIONS)
    assert all(row.count("|") == 6 for row in rows)


def test_without_any_layer_the_defaults_apply() -> None:
    conf, components = merged(topology())
    assert conf == defaults()
    assert components == {"s": defaults(), "other": defaults()}


LAYERS = ("site", "env", "topology", "component", "override", "component override")


@given(st.sets(st.sampled_from(LAYERS)))
def test_the_later_layer_overrides_the_earlier_one(present: set[str]) -> None:
    def layer(name: str) -> dict[str, object]:
        return {PENDING: LAYERS.index(name) + 1} if name in present else {}

    overrides = Overrides(layer("override"), {"s": layer("component override")})
    conf, components = merged(
        topology(layer("topology"), layer("component")), layer("site"), layer("env"), overrides
    )

    def winner(names: tuple[str, ...]) -> object:
        return max((LAYERS.index(name) + 1 for name in names if name in present), default=1000)

    of_topology = ("site", "env", "topology", "override")
    assert conf[PENDING] == winner(of_topology)
    assert components["other"][PENDING] == winner(of_topology)
    assert components["s"][PENDING] == winner(LAYERS)


def test_users_own_keys_go_through_all_layers() -> None:
    conf, components = merged(
        topology({"my.a": 1}, {"my.b": [2]}), {"my.c": 3}, None, parse_overrides(["s:my.d={x: 4}"])
    )
    assert {key: conf.get(key) for key in ("my.a", "my.b", "my.c", "my.d")} == {
        "my.a": 1, "my.b": None, "my.c": 3, "my.d": None,
    }  # fmt: skip
    assert (components["s"]["my.b"], components["s"]["my.d"]) == ([2], {"x": 4})


def test_the_merged_configuration_belongs_to_the_caller() -> None:
    site: dict[str, object] = {"my.list": [1]}
    conf, components = merged(topology(), site)
    conf["my.list"].append(2)  # type: ignore[attr-defined]
    assert site["my.list"] == components["s"]["my.list"] == [1]


def test_all_problems_of_all_layers_come_at_once_with_their_sources() -> None:
    sound = topology()
    spec = ComponentSpec("s", "spout", conf={"topology.workers": 1}, outputs=sound.components[0].outputs)
    wrong = Topology("t", {"topology.debug": 1}, (spec, sound.components[1]), sound.pickles)
    overrides = parse_overrides(["topology.wrokers=2", "s:topology.workers=2", "x:my.key=1", "othr:my.key=1"])
    found = problems(merged, wrong, {"topology.debug": 2}, {"topology.debug": 3}, overrides)
    assert [problem.split(":")[0] for problem in found] == [
        "the site's file",
        "the environment",
        "the topology's conf",
        "the conf of spout 's'",
        "-o",
        "-o s",
        "-o x",
        "-o othr",
    ]
    assert "did you mean 'topology.workers'?" in found[4]
    assert "whole topology only" in found[5]
    assert "there is no component 'x' (there are: 's', 'other')" in found[6]
    assert "did you mean 'other'?" in found[7]


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("topology.workers=2", (None, "topology.workers", 2)),
        ("count:topology.debug=true", ("count", "topology.debug", True)),
        ("my.url=http://host:1/?a=b", (None, "my.url", "http://host:1/?a=b")),
        ("count:my.url=a:b=c", ("count", "my.url", "a:b=c")),
        ("my.key=", (None, "my.key", None)),
        ("my.key=[1, {a: x}]", (None, "my.key", [1, {"a": "x"}])),
        ("my.key='2'", (None, "my.key", "2")),
        ("my.day=2026-01-02", (None, "my.day", "2026-01-02")),
        (" my.key = 1.5 ", (None, "my.key", 1.5)),
    ],
)
def test_an_override_is_read_with_a_yaml_value(text: str, parsed: tuple[str | None, str, object]) -> None:
    assert parse_override(text) == parsed


@pytest.mark.parametrize(
    "text",
    [
        "",
        "topology.workers",
        "=2",
        ":a=2",
        "count:=2",
        "my.key=[1",
        "my.key={a: b: c}",
        "a=!!python/object:x {}",
    ],
)
def test_a_malformed_override_is_refused_with_its_text(text: str) -> None:
    (problem,) = problems(parse_override, text)
    assert f"-o {text}" in problem
    assert "\n" not in problem


@given(st.text())
def test_any_text_is_an_override_or_an_invalid_config(text: str) -> None:
    try:
        _, key, _ = parse_override(text)
    except InvalidConfig as error:
        assert error.problems
    else:
        assert key


def test_later_overrides_win_over_earlier_ones_and_all_problems_are_reported() -> None:
    overrides = parse_overrides(["a.b=1", "c:a.b=2", "a.b=3", "c:x=4"])
    assert overrides == Overrides({"a.b": 3}, {"c": {"a.b": 2, "x": 4}})
    assert len(problems(parse_overrides, ["a", "b=1", "c"])) == 2


def test_the_environment_sets_options_by_their_upper_case_names() -> None:
    environ = {
        "SQUALL_TOPOLOGY_WORKERS": "2",
        "SQUALL_TOPOLOGY_MAX_SPOUT_PENDING": "null",
        "SQUALL_TOPOLOGY_ON_ERROR": "crash",
        "SQUALL_NIMBUS": "http://host:6627",
        "SQUALL_HOME": "/opt",
        "PATH": "/bin",
    }
    assert environment_conf(environ) == {"topology.workers": 2, PENDING: None, "topology.on.error": "crash"}


def test_every_option_has_a_name_of_its_own_in_the_environment() -> None:
    names = {"SQUALL_" + key.upper().replace(".", "_") for key in OPTIONS}
    assert len(names) == len(OPTIONS)


def test_a_wrong_variable_is_named_with_the_nearest_or_with_its_value() -> None:
    found = problems(
        environment_conf,
        {
            "SQUALL_TOPOLOGY_WROKERS": "2",
            "SQUALL_TOPOLOGY_DEBUG": "30s",
            "SQUALL_TOPOLOGY_WORKERS": "[",
            "X": "[",
        },
    )
    assert len(found) == 3
    assert "SQUALL_TOPOLOGY_DEBUG: 'topology.debug' is '30s'" in found[0]
    assert "SQUALL_TOPOLOGY_WORKERS=[" in found[1]
    assert "did you mean 'SQUALL_TOPOLOGY_WORKERS'?" in found[2]


def site(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "squall.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_site_file_holds_full_keys(tmp_path: Path) -> None:
    path = site(tmp_path, "# ours\ntopology.workers: 3\nmy.hosts: [a, b]\n")
    assert load_site(path) == {"topology.workers": 3, "my.hosts": ["a", "b"]}
    assert load_site(site(tmp_path, "# nothing set\n")) == {}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "topology.workers: 2\ntopology.workers: 3\n",
            "line 2, column 1: the key 'topology.workers' is there twice",
        ),
        ("topology.workers: [1\n", "line 2"),
        ("topology:\n  workers: 2\n", "write full keys, such as 'topology.workers: ...'"),
        ("- topology.workers\n", "'key: value'"),
        ("just text\n", "'key: value'"),
        ("topology.wrokers: 2\n", "did you mean 'topology.workers'?"),
        ("topology.message.timeout.secs: 30s\n", "number of seconds"),
        ("3: 4\n", "non-empty str"),
        ("a: !!python/name:os.system x\n", "line 1"),
        ("? [1, 2]\n: 3\n", ""),
    ],
)
def test_a_wrong_site_file_is_reported_with_its_path_and_the_problem(
    tmp_path: Path, text: str, said: str
) -> None:
    path = site(tmp_path, text)
    with pytest.raises(InvalidConfig) as caught:
        load_site(path)
    assert str(path) in str(caught.value)
    assert said in str(caught.value)


def test_an_unreadable_site_file_is_reported_with_the_reason(tmp_path: Path) -> None:
    assert "No such file" in problems(load_site, tmp_path / "none.yaml")[0]
    (tmp_path / "bytes.yaml").write_bytes(b"\xff\xfe\x00")
    assert "UTF-8" in problems(load_site, tmp_path / "bytes.yaml")[0]
    assert "directory" in problems(load_site, tmp_path)[0]


@pytest.mark.parametrize(
    ("conf", "text"),
    [
        ({"topology.state.path": "file:///a/../b"}, "it has '..' in it"),
        ({"topology.state.path": "hdfs://me:secret@host/state"}, "it contains a password"),
        ({"topology.state.path": "hdfs://host:port/state"}, "'port' is not a port"),
    ],
)
def test_a_path_that_cannot_hold_state_is_refused(conf: dict[str, object], text: str) -> None:
    (problem,) = problems(merged, topology(), overrides=Overrides(topology=conf))
    assert text in problem
    assert "secret" not in problem
    merged(topology(), overrides=Overrides(topology={"topology.state.path": "hdfs://host:9000/state"}))
