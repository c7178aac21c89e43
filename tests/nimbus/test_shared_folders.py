"""Which hosts are asked whether they share a folder, and what their answers mean."""

from __future__ import annotations

import pytest
from msgspec import structs

from nimbus.submission.shared_folders import HostSight, hosts_to_ask, require_shared, state_folder
from squall.cluster.records import SupervisorRecord
from topology_api.errors import InvalidConfig

ONE = SupervisorRecord("s1", "alpha", 2, url="http://alpha:1")
TWO = SupervisorRecord("s2", "beta", 2, url="http://beta:1")


def test_folders_on_hosts_alone_are_asked_about() -> None:
    def folder(path: object) -> str:
        return state_folder({"topology.state.path": path}, "words")

    assert folder("file:///var/state/") == "/var/state/words"
    assert folder("hdfs://host:9000/state") == folder(None) == folder("file:///a/../b") == ""
    assert state_folder({}, "words") == ""


def test_one_supervisor_of_each_host_that_may_run_workers_is_asked() -> None:
    silent = structs.replace(ONE, id="s0", url="")
    assert hosts_to_ask([TWO, silent, ONE], ()) == [ONE, TWO]
    assert hosts_to_ask([silent, TWO], ()) == [silent, TWO]


def test_one_host_alone_is_not_asked() -> None:
    assert hosts_to_ask([ONE, structs.replace(ONE, id="s3")], ()) == []
    assert hosts_to_ask([ONE, TWO], {"s2"}) == []
    assert hosts_to_ask([ONE, structs.replace(TWO, cannot_start="its disk is full")], ()) == []


def test_a_host_that_does_not_see_the_folder_refuses_and_one_of_which_nothing_is_known_does_not() -> None:
    there = HostSight("alpha", "s1", True)
    away = HostSight("gamma", "s3", None, "no answer")
    require_shared("words", "file:///state", "/state", [there, structs.replace(there, host="beta"), away])
    require_shared("words", "file:///state", "/state", [away])
    with pytest.raises(InvalidConfig) as refused:
        require_shared("words", "file:///state", "/state", [there, HostSight("beta", "s2", False), away])
    assert str(refused.value).endswith(
        "topology.state.path is file:///state, which the hosts do not share: a file that was put into /state of host alpha is "
        "seen on host alpha, and not on host beta; of host gamma nothing is known: no answer. Give a folder of a file system "
        "that all hosts have at the same path, or hdfs://host:port/folder; or drain the hosts that do not see it: one "
        "worker, too, may be started on another host"
    )
