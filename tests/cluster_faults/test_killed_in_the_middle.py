"""A supervisor is killed while it prepares a topology: the next one starts that step again, and no remains of the first stay.
Another topology runs all the time, and its ledger adds up in the end.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path

import pytest

from tests.cluster_faults.cluster_run import ClusterRun, ledger_cluster
from tests.cluster_faults.moments import MANY_BYTES, Moment, building, fetching, starting, unpacking
from tests.cluster_faults.test_supervisor_faults import check_slots
from tests.faults import leaks
from tests.faults.ledger import account, read
from tests.faults.ledger_topology import STOP
from tests.faults.running import Tally
from tests.supervisor.wheels import make_wheel
from tests.zookeeper_servers import ZooKeeperServer

pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.timeout(180)]

#: An archive that takes a moment to unpack.
MANY_FILES = 4000
#: How often a moment may be missed, for example because the test itself was not scheduled for that long.
ATTEMPTS = 3
#: Seconds for which the supervisor runs between two looks: a moment takes longer, and half of the time is left to its work.
SLICE = 0.005
#: Part of the name of something incomplete: it is being created or removed.
NOT_WHOLE = (".new-", ".gone-")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, zookeeper: ZooKeeperServer) -> Iterator[ClusterRun]:
    folder = tmp_path_factory.mktemp("middle")
    with ledger_cluster(folder, zookeeper.servers, supervisors=1, slots=6) as run:
        yield run


@pytest.fixture(scope="module")
def luggage(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A topology's files, large enough that their preparation takes a moment."""
    folder = tmp_path_factory.mktemp("luggage")
    (folder / "large").write_bytes(os.urandom(MANY_BYTES))
    (folder / "many").mkdir()
    for number in range(MANY_FILES):
        (folder / "many" / str(number)).write_bytes(b"%d" % number)
    (folder / "requirements.txt").write_text("brought_along==1.0\n")
    (folder / "wheels").mkdir()
    make_wheel(folder / "wheels", "brought_along")
    return folder


def submit_and_kill_at(moment: Moment, run: ClusterRun, name: str, *options: str) -> Path | None:
    """Submit a topology and kill the supervisor at that moment of its work; the ledger, or None if the moment passed unseen.

    From the submission on the supervisor runs in slices of `SLICE` seconds: each look at it finds it frozen, so a moment is
    missed only if it is shorter than a slice.
    """
    daemon = run.daemons.supervisors[0]
    state = run.daemons.folder / daemon.name

    def run_a_slice() -> bool:
        daemon.thaw()
        time.sleep(SLICE)
        daemon.freeze()
        run.wait_for(lambda: leaks.state_of(daemon.pid) == "T", "that it stands still", pace=SLICE / 10)
        return moment(state, name) or (submitted.done() and bool(Tally(submitted.result()).of("A")))

    with ThreadPoolExecutor(1) as beside:
        submitted = beside.submit(run.another, name, *options)
        run.wait_for(run_a_slice, f"{moment.__name__} {name}", pace=0.0)
        hit = moment(state, name)
        daemon.kill()
        books = submitted.result()
    return books if hit else None


@pytest.mark.parametrize(
    ("moment", "brings"),
    [
        (fetching, ("--resource", "large")),
        pytest.param(unpacking, ("--resource", "many"), marks=pytest.mark.soak),
        pytest.param(
            building,
            ("--requirements", "requirements.txt", "--wheels", "wheels"),
            marks=pytest.mark.soak,
        ),
        (starting, ()),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_the_next_supervisor_does_again_what_a_killed_one_left_unfinished(
    moment: Moment, brings: tuple[str, ...], run: ClusterRun, luggage: Path
) -> None:
    daemon = run.daemons.supervisors[0]
    state = run.daemons.folder / daemon.name
    before = {started.pid for started in run.daemons.processes().values()}
    kept = kept_files(state)
    options = [str(luggage / each) if (luggage / each).exists() else each for each in brings]
    for attempt in range(ATTEMPTS):
        name = f"{moment.__name__}-{attempt}"
        books = submit_and_kill_at(moment, run, name, *options)
        if books is not None:
            break
        if not daemon.runs:
            daemon.start()
        run.obey("kill", name, "-w", "0", "--wait")
        run.wait_for(lambda: kept_files(state) == kept, "that nothing of it is left")
    else:
        pytest.fail(f"in {ATTEMPTS} attempts it was never caught while {moment.__name__}")
    daemon.start()
    tally = Tally(books)
    run.wait_for(lambda: tally.of("A") > 50, "tuples of the topology that came")
    check_slots(run)
    run.wait_for(lambda: not strangers(run), f"the end of stray processes: {strangers(run)}")
    (books / STOP).touch()
    run.wait_for(lambda: run.status_of(name)["state"] == "COMPLETED", "its completion")
    assert not account(read(books)).problems
    run.wait_for(lambda: not not_whole(state), "that all there is is whole")
    run.obey("kill", name, "-w", "0", "--wait")
    run.wait_for(lambda: kept_files(state) == kept, "that nothing of it is left")
    assert {started.pid for started in run.daemons.processes().values()} == before
    assert run.failed() == 0


def not_whole(state: Path) -> list[str]:
    """Files that are being created or removed. Folders of ended workers may disappear during the walk."""
    found = [os.path.join(folder, name) for folder, *names in os.walk(state) for name in chain(*names)]
    return [path for path in found if any(part in os.path.basename(path) for part in NOT_WHOLE)]


def kept_files(state: Path) -> set[str]:
    """The files of topologies that the supervisor keeps, except the logs of those that have ended."""
    found = {path.relative_to(state) for path in state.glob("*/*")}
    return {path.as_posix() for path in found if path.parts[0] != "logs"}


def strangers(run: ClusterRun) -> list[leaks.Process]:
    """Processes of the cluster that are neither daemons nor workers."""
    daemons = {daemon.pid for daemon in (*run.daemons.nimbuses, *run.daemons.supervisors)}
    known = daemons | {process.pid for process in run.daemons.living_workers()}
    found = leaks.processes(run.daemons.mark, str(run.daemons.folder))
    return [process for process in found if process.pid not in known]
