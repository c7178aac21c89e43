"""Nimbus and the supervisors carry pickles, and never open one: only workers do."""

from __future__ import annotations

import ast
import os
import pickle
import select
import subprocess
import sys
from pathlib import Path

import pytest

from local_cluster import LocalCluster
from nimbus.submission.submission import Submission
from squall.cluster.blobs import get_bundle, read_bundle, write_bundle
from squall.cluster.counters import BadCounters, WorkerCounters
from squall.cluster.records import (
    Assignment,
    BadRecord,
    NimbusRecord,
    SupervisorRecord,
    TopologyRecord,
    WorkerReport,
    decode,
)
from squall.worker_files import BadFile, read_end, read_heartbeat, read_orders
from tests.security.canaries import canary, full_of_canaries, heard
from tests.supervisor.hosts import Hosts
from topology_api.options import defaults

ROOT = Path(__file__).resolve().parents[2]
#: Functions that open pickles, or execute their argument.
OPENERS = {"pickle", "_pickle", "cPickle", "cloudpickle", "dill", "marshal", "shelve", "runpy"}
#: The modules below the daemons that open pickles, each for workers or for the packing side: the daemons import none of them.
FOR_WORKERS = {"squall.transport.columns", "topology_api.packing"}
DAEMONS = ("nimbus", "supervisor", "squall/cluster")


def imported(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def calls(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    named = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return {func.id for func in named if isinstance(func, ast.Name)} | {
        func.attr for func in named if isinstance(func, ast.Attribute)
    }


@pytest.fixture(scope="module")
def sources() -> list[Path]:
    found = [path for folder in DAEMONS for path in sorted((ROOT / folder).rglob("*.py"))]
    assert len(found) > 20
    return found


def test_no_module_of_the_daemons_can_open_pickles(sources: list[Path]) -> None:
    for path in sources:
        names = imported(path)
        assert not {name.partition(".")[0] for name in names} & OPENERS, path
        assert not names & FOR_WORKERS, path
        assert not calls(path) & {"eval", "exec"}, path


def test_no_module_of_the_daemons_loads_anything_but_json_and_counters(sources: list[Path]) -> None:
    for path in sources:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr in ("load", "loads")
            ):
                of = ast.unparse(node.func.value)
                assert of == "json" or of.lower().endswith("counters"), (
                    f"{path}:{node.lineno}: {of}.{node.func.attr}: Topology.load() opens a pickle"
                )


def test_a_daemon_that_has_imported_all_its_modules_has_no_cloudpickle_and_no_worker() -> None:
    program = (
        "import pkgutil, importlib, sys\n"
        "for package in ('nimbus', 'supervisor'):\n"
        "    for each in pkgutil.walk_packages(importlib.import_module(package).__path__, package + '.'):\n"
        "        importlib.import_module(each.name)\n"
        "print(*sorted({'cloudpickle', 'worker', 'squall.transport.columns'} & set(sys.modules)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout.strip()) == (0, ""), done.stderr


def test_a_canary_sings_when_it_is_opened(tmp_path: Path) -> None:
    pickle.loads(canary(tmp_path / "mark"))
    assert len(heard(tmp_path / "mark")) == 1


@pytest.mark.slow
def test_a_topology_full_of_canaries_lives_its_whole_life_unopened_by_nimbus_and_supervisor(
    tmp_path: Path,
) -> None:
    mark = tmp_path / "mark"
    hosts = Hosts(tmp_path / "state", supervisors=2)
    try:
        topology = full_of_canaries(mark)
        conf = {**defaults(), "topology.workers": 2, "fake": {}}
        record = hosts.nimbus.submit(Submission(topology, conf, {"words": conf, "count": conf}))
        hosts.until(lambda: hosts.opened("w1") and hosts.opened("w2"), "workers")
        hosts.nimbus.deactivate("words")
        hosts.nimbus.activate("words")
        hosts.nimbus.rebalance("words", workers=1, parallelism={"count": 3})
        hosts.until(lambda: hosts.state_of() == "ACTIVE", "the rebalance")
        bundle = get_bundle(hosts.store, record.id)
        write_bundle(hosts.store, record.id, tmp_path)
        assert bundle == read_bundle(tmp_path)
        hosts.nimbus.kill("words")
        hosts.until(lambda: hosts.state_of() is None, "its end")
    finally:
        hosts.end()
    assert heard(mark) == []


@pytest.mark.slow
def test_only_workers_open_them(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    os.mkfifo(mark)  # so that the first song wakes us
    with open(os.open(mark, os.O_RDONLY | os.O_NONBLOCK), encoding="utf-8") as songs:
        with LocalCluster(processes=True) as cluster:
            cluster.submit(full_of_canaries(mark))
            assert select.select([songs], [], [], 60.0)[0], "no worker has opened it"
        heard_of = songs.read().splitlines()
    assert heard_of and all("worker/__main__.py" in line for line in heard_of), heard_of


def test_pickles_in_place_of_records_and_reports_are_refused_closed(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    data = canary(mark)
    for kind in (TopologyRecord, Assignment, SupervisorRecord, NimbusRecord, WorkerReport):
        with pytest.raises(BadRecord):
            decode(kind, data)
    with pytest.raises(BadCounters):
        WorkerCounters.from_bytes(data)
    for name, read in {
        "orders.json": read_orders,
        "pulse.json": read_heartbeat,
        "end.json": read_end,
    }.items():
        (tmp_path / name).write_bytes(data)
        with pytest.raises(BadFile):
            read(tmp_path)
    assert heard(mark) == []
