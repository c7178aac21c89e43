"""The options table: the permitted content of a configuration."""

from __future__ import annotations

import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topology_api.options import OPTIONS, PREFIXES, Scope, defaults, json_copy, problems_of

KEYS_OF_THE_PAGE: dict[str, object] = {
    "topology.dead.letters.days": 7,
    "topology.dead.letters.mb": 100,
    "topology.worker.memory.mb": None,
    "topology.workers": 1,
    "topology.max.spout.pending": 1000,
    "topology.message.timeout.secs": 30,
    "topology.enable.message.timeouts": True,
    "topology.tick.tuple.freq.secs": None,
    "topology.debug": False,
    "topology.worker.timeout.secs": 30,
    "topology.auto.task.hooks": [],
    "topology.acking": True,
    "topology.on.error": "fail",
    "topology.on.outage": "wait",
    "topology.outage.give.up.secs": 3600,
    "topology.state.groups": None,
    "topology.state.path": "auto",
    "topology.state.webhdfs": None,
    "topology.require": None,
    "topology.epoch.secs": None,
    "topology.epoch.uncommitted": 1_000_000,
    "topology.epoch.uncommitted.mb": 500,
    "topology.epoch.cycle.tuples": 100_000,
    "topology.epoch.keep": 10,
    "topology.bolt.hang.secs": 60,
    "topology.queue.size": 4096,
    "topology.cycle.buffer": 10_000,
    "topology.transport.codec": "pickle",
    "topology.sleep.spout.wait.strategy.time.ms": 1,
}


def test_the_defaults_are_those_of_the_page() -> None:
    assert defaults() == KEYS_OF_THE_PAGE


def test_the_defaults_are_valid_and_a_new_dict_each_time() -> None:
    assert problems_of(defaults()) == []
    hooks: Any = defaults()["topology.auto.task.hooks"]
    hooks.append("x")
    assert defaults()["topology.auto.task.hooks"] == []


def test_an_option_of_the_daemons_has_a_default_for_a_site_and_none_for_a_topology() -> None:
    assert defaults("daemon").items() >= (KEYS_OF_THE_PAGE | {"nimbus.supervisor.timeout.secs": 30}).items()
    assert problems_of(defaults("daemon"), "daemon") == []
    assert problems_of({"nimbus.supervisor.timeout.secs": 5})[0].endswith("set it in the site's file")


@pytest.mark.parametrize("option", OPTIONS.values(), ids=lambda option: option.name)
def test_each_option_is_documented_and_its_default_has_its_type(option: Any) -> None:
    assert option.name.startswith(PREFIXES)
    assert option.text.endswith(".")
    assert isinstance(defaults("daemon")[option.name], option.types)
    # An object of a user's class is valid for no option.
    assert option.problem(object()) is not None


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("topology.workers", 0, "from 1"),
        ("topology.workers", "2", "(str)"),
        ("topology.workers", True, "(bool)"),
        ("topology.workers", 1.5, "(float)"),
        ("topology.workers", None, "None"),
        ("topology.max.spout.pending", 0, "null for no limit"),
        ("topology.message.timeout.secs", "30s", "number of seconds"),
        ("topology.message.timeout.secs", 0, "more than 0"),
        ("topology.message.timeout.secs", 1e9, "at most"),
        ("topology.message.timeout.secs", float("nan"), "nan"),
        ("topology.message.timeout.secs", 10**400, "at most"),
        ("topology.message.timeout.secs", True, "(bool)"),
        ("topology.tick.tuple.freq.secs", "1m", "or null for none"),
        ("topology.enable.message.timeouts", "yes", "true or false"),
        ("topology.debug", 1, "true or false"),
        ("topology.on.error", "crahs", "did you mean 'crash'?"),
        ("topology.on.error", ["crash"], "'fail' or 'crash'"),
        ("topology.queue.size", 15, "from 16"),
        ("topology.transport.codec", "json", "'pickle' or 'msgpack'"),
        ("topology.auto.task.hooks", "a:B", "list"),
        ("topology.auto.task.hooks", ["a.B"], "package.module:Class"),
        ("topology.auto.task.hooks", [3], "package.module:Class"),
        ("topology.sleep.spout.wait.strategy.time.ms", -1, "milliseconds"),
    ],
)
def test_a_wrong_type_unit_or_range_names_the_key_and_the_expected_value(
    key: str, value: object, said: str
) -> None:
    (problem,) = problems_of({key: value})
    assert repr(key) in problem
    assert said in problem


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("topology.max.spout.pending", None),
        ("topology.message.timeout.secs", 0.5),
        ("topology.tick.tuple.freq.secs", 1),
        ("topology.bolt.hang.secs", 0),
        ("topology.queue.size", 16),
        ("topology.auto.task.hooks", ["package.module:Class", "m:Outer.Inner"]),
        ("topology.auto.task.hooks", ("m:C",)),
    ],
)
def test_valid_values_are_accepted(key: str, value: object) -> None:
    assert problems_of({key: value}) == []


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("topology.worker", "topology.workers"),
        ("topology.max.spout.pendng", "topology.max.spout.pending"),
        ("topology.on_error", "topology.on.error"),
        ("topology.message.timeout.seconds", "topology.message.timeout.secs"),
        # A typing error in the first word, which would make it a key of the user's own.
        ("topolgy.workers", "topology.workers"),
        ("Topology.Debug", "topology.debug"),
    ],
)
def test_an_unknown_key_is_refused_with_the_nearest_name(key: str, meant: str) -> None:
    (problem,) = problems_of({key: 1})
    assert f"unknown configuration key {key!r}" in problem
    assert f"did you mean {meant!r}?" in problem


@pytest.mark.parametrize(
    "key", ["topology.x", "nimbus.seeds", "supervisor.slots", "squall.x", "storm.zookeeper.servers"]
)
def test_every_key_with_a_prefix_of_ours_must_be_known(key: str) -> None:
    assert len(problems_of({key: 1})) == 1


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(["db.url", "my.key", "threshold", "app.topology.debug"]), json_values))
def test_a_users_own_key_may_have_any_value_that_json_has(conf: dict[str, object]) -> None:
    assert problems_of(conf) == []
    assert problems_of(conf, "component") == []
    assert json_copy(conf) == conf


@pytest.mark.parametrize(
    "value",
    [object(), {1: 2}, {1, 2}, b"x", [float("inf")], {"a": [datetime.date(2020, 1, 1)]}],
    ids=["an object", "an int as key", "a set", "bytes", "infinity", "a date inside"],
)
def test_a_users_own_key_may_not_have_a_value_that_json_lacks(value: object) -> None:
    (problem,) = problems_of({"my.key": value})
    assert "'my.key'" in problem


def test_a_value_that_contains_itself_is_a_problem_and_no_recursion_error() -> None:
    endless: list[Any] = []
    endless.append(endless)
    assert "levels deep" in problems_of({"my.key": endless})[0]


def test_some_options_are_for_the_whole_topology_only() -> None:
    scopes: tuple[Scope, ...] = ("topology", "daemon")
    assert [problems_of({"topology.workers": 2}, scope) for scope in scopes] == [[], []]
    (problem,) = problems_of({"topology.workers": 2}, "component")
    assert "whole topology only" in problem
    assert problems_of({"topology.max.spout.pending": 5}, "component") == []


@pytest.mark.parametrize("conf", [None, 3, "topology.workers=2", [("a", 1)]])
def test_a_configuration_that_is_no_mapping_is_one_problem(conf: object) -> None:
    assert len(problems_of(conf)) == 1


def test_all_problems_come_at_once_including_wrong_keys() -> None:
    conf: dict[Any, Any] = {"topology.workers": 0, 3: 4, "": 1, "topology.nope": 1, "mine": {1}}
    assert len(problems_of(conf)) == 5


@pytest.mark.parametrize(
    "path", ["auto", "file:///state", "hdfs://namenode:9000/squall/state", "hdfs:///state", "hdfs://ha/s"]
)
def test_the_state_may_be_on_this_machine_or_on_hdfs_or_where_nimbus_chooses(path: str) -> None:
    assert not problems_of({"topology.state.path": path}, "topology")


@pytest.mark.parametrize(
    "path", ["state", "/state", "file:///", "file://host/a", "s3://bucket/a", "hdfs://host", "hdfs:///"]
)
def test_other_places_of_the_state_are_refused(path: str) -> None:
    [problem] = problems_of({"topology.state.path": path}, "topology")
    assert (
        f"{path!r}: give a folder as file:///path or hdfs://host:port/path, or auto for a folder of the cluster"
        in problem
    )


def test_addresses_of_webhdfs_are_checked() -> None:
    for good in ("nn:9870", "http://nn:9870", "https://[::1]:9871/", "nn1:9870, nn2:9870"):
        assert not problems_of({"topology.state.webhdfs": good}, "topology"), good
    for bad in ("nn", "ftp://nn:1", "nn:9870/webhdfs", "nn1:9870,", "nn:web", ""):
        [problem] = problems_of({"topology.state.webhdfs": bad}, "topology")
        assert "give HOST:PORT, http://HOST:PORT or https://HOST:PORT" in problem
