"""Every argument of a local cluster is checked by the call that gets it; a refused call changes nothing."""

from __future__ import annotations

from typing import Any

import pytest

from local_cluster import LocalCluster
from tests.local_cluster.small_topologies import Idle, Split
from topology_api import (
    InvalidConfig,
    InvalidTopology,
    NoSuchTopology,
    SquallError,
    Topology,
    TopologyBuilder,
)

NAN, INF = float("nan"), float("inf")
#: A call with a wrong argument, and what its error says.
WRONG: list[tuple[str, tuple[Any, ...], dict[str, Any], type[SquallError], str]] = [
    ("kill", ("words", True), {}, InvalidConfig, r"wait_secs is True \(bool\): give a number of seconds"),
    ("kill", ("words", "5"), {}, InvalidConfig, r"wait_secs is '5' \(str\)"),
    ("kill", ("words", NAN), {}, InvalidConfig, "wait_secs is nan"),
    ("kill", ("words", -1), {}, InvalidConfig, "wait_secs is -1"),
    ("kill", ("words", 10**400), {}, InvalidConfig, "wait_secs is 1000"),
    ("rebalance", ("words",), {"workers": True}, InvalidConfig, r"workers is True \(bool\)"),
    ("rebalance", ("words",), {"workers": 1.0}, InvalidConfig, r"workers is 1.0 \(float\)"),
    ("rebalance", ("words",), {"parallelism": 2}, InvalidConfig, r"the parallelism is 2 \(int\)"),
    ("rebalance", ("words",), {"parallelism": {"lines": True}}, InvalidConfig, r"parallelism is True \(bool\)"),
    ("fail", ("words", b"x"), {}, InvalidConfig, r"the error is b'x' \(bytes\): give a text"),
    ("wait", ("words", True), {}, InvalidConfig, r"wait\(\): timeout is True \(bool\)"),
    ("wait", ("words", "1"), {}, InvalidConfig, r"wait\(\): timeout is '1' \(str\)"),
    ("advance", (True,), {}, InvalidConfig, r"advance\(\): seconds is True \(bool\)"),
    ("advance", (INF,), {}, InvalidConfig, r"advance\(\): seconds is inf"),
    ("advance", ("1",), {}, InvalidConfig, r"advance\(\): seconds is '1' \(str\)"),
    ("hurry", (None,), {}, InvalidConfig, r"hurry\(\): seconds is None"),
    ("submit", (None,), {}, SquallError, r"submit\(\) takes a Topology"),
    *(
        (method, (name, *more), {}, InvalidConfig, r"the name of the topology is .*: give a str")
        for method, *more in (
            ("kill",), ("activate",), ("deactivate",), ("rebalance",), ("status",), ("last_status",), ("wait",),
            ("workers",), ("fail", "x"),
        )
        for name in (5, None, b"words", ["words"])
    ),
    *(
        (method, (name, *more), {}, NoSuchTopology, "there is no topology named")
        for method, *more in (
            ("kill",), ("activate",), ("deactivate",), ("rebalance",), ("status",), ("last_status",), ("wait",),
            ("fail", "x"),
        )
        for name in ("", "\0", "\ud800", "x" * 300, "..")
    ),
]  # fmt: skip
#: Arguments of `submit` besides the topology.
WRONG_SUBMISSIONS: list[tuple[dict[str, Any], type[SquallError], str]] = [
    ({"active": "no"}, InvalidConfig, r"active is 'no' \(str\): give True or False"),
    ({"active": None}, InvalidConfig, r"active is None"),
    ({"name": 5}, InvalidTopology, r"the topology's name is 5 \(int\)"),
    ({"name": "a/b"}, InvalidTopology, "contains '/'"),
    ({"conf": 5}, InvalidConfig, r"conf is 5 \(int\): give a dict"),
    ({"conf": [("topology.workers", 2)]}, InvalidConfig, "conf is .*: give a dict"),
    ({"conf": {"topology.workers": True}}, InvalidConfig, r"'topology.workers' is True \(bool\)"),
    ({"conf": {"mine": 10**5000}}, InvalidConfig, "'mine' holds a whole number of more than"),
    ({"conf": {"mine": {1: 2}}}, InvalidConfig, "the key 1"),
]


def idle(name: str) -> Topology:
    builder = TopologyBuilder(name)
    builder.set_spout("lines", Idle())
    builder.set_bolt("split", Split()).shuffle_grouping("lines")
    return builder.build()


@pytest.mark.parametrize("simulated", [True, False])
def test_a_wrong_argument_is_refused_and_changes_nothing(simulated: bool) -> None:
    with LocalCluster(simulated_time=simulated) as cluster:
        cluster.submit(idle("words"))
        for method, arguments, named, kind, text in WRONG:
            if method == "advance" and not simulated:
                continue
            with pytest.raises(kind, match=text):
                getattr(cluster, method)(*arguments, **named)
        for named, kind, text in WRONG_SUBMISSIONS:
            with pytest.raises(kind, match=text):
                cluster.submit(idle("other"), **named)
        assert cluster.topologies() == ["words"]
        assert cluster.status("words").state == "ACTIVE"


def test_wait_takes_infinity_as_no_timeout() -> None:
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(idle("words"))
        with pytest.raises(TimeoutError, match="is not completed"):
            cluster.wait("words", INF)
        with pytest.raises(InvalidConfig, match="timeout is -inf"):
            cluster.wait("words", -INF)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"seed": "1"}, r"LocalCluster\(seed='1'\): it must be a whole number, or None"),
        ({"seed": True}, r"LocalCluster\(seed=True\)"),
        ({"observers": object}, r"LocalCluster\(observers=<class 'object'>\): it must be a tuple of hooks"),
        ({"slots": True}, r"LocalCluster\(slots=True\): it must be a whole number"),
        ({"slots": 10**9}, r"LocalCluster\(slots=1000000000\): it must be a whole number from 1 to 65,535"),
        ({"supervisors": 10**5000}, r"LocalCluster\(supervisors=<int whose repr raises ValueError>\)"),
        ({"simulated_time": 1}, r"LocalCluster\(simulated_time=1\): it must be True or False"),
        (
            {"settings": True},
            r"LocalCluster\(settings=True\): it must be two dicts, of the site and the environment",
        ),
        ({"settings": ({},)}, r"LocalCluster\(settings=\({},\)\): it must be two dicts"),
        ({"settings": ({}, "x")}, r"LocalCluster\(settings=\({}, 'x'\)\): it must be two dicts"),
    ],
)
def test_a_wrong_argument_of_the_cluster_itself_is_refused(arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidConfig, match=text):
        LocalCluster(**arguments)
