"""A cluster of daemons that runs the ledger's topology, for the tests that make faults.

`with ledger_cluster(tmp_path, zookeeper, ...) as run:` starts the daemons, submits the topology with `squall submit`, and waits
until tuples flow. After the body the source ends, the topology completes, its ledger must add up, and `squall kill` must remove
everything: processes, files, and records in the store. Every wait is for an event, with a generous cap. Must not know: the
faults.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from squall.cluster import paths
from squall.cluster.zookeeper import ZooKeeperStore
from tests.cluster_faults.daemon_processes import CAP, CREDENTIALS, PACE, Daemons
from tests.faults.ledger import Account, account, read
from tests.faults.ledger_topology import STOP
from tests.faults.running import Tally

HERE = Path(__file__).parent
#: Seconds without an acked tuple that count as a pause: more than a loaded machine takes to run every process once.
GAP = 4.0
#: What remains in the store when there is no topology.
LASTING = ("cluster", "counters", "ended", "leadership", "nimbuses", "presence", "supervisors")


@dataclass
class ClusterRun:
    """A topology that runs in a cluster of daemons, and its ledger."""

    daemons: Daemons
    books: Path
    name: str
    #: The file that is submitted.
    file: Path
    tally: Tally
    total: Account = field(default_factory=Account)
    #: Processes that were suspended until their tasks had moved elsewhere, and when they were resumed.
    thawed: dict[int, int] = field(default_factory=dict)

    def status(self) -> Any:
        """The topology as the API shows it; None if no Nimbus answers."""
        return self.daemons.asked(lambda: self.status_of(self.name))

    def status_of(self, name: str) -> Any:
        """Any topology; it must exist."""
        return self.daemons.client.get(f"topologies/{name}")

    def state(self) -> str | None:
        return self.state_of(self.name)

    def state_of(self, name: str) -> str | None:
        """Any topology; None if no Nimbus answers or no topology has that name."""
        found = self.daemons.asked(lambda: self.status_of(name))
        return None if found is None else str(found["state"])

    def wait_for(self, question: Callable[[], Any], what: str, cap: float = CAP, pace: float = PACE) -> float:
        """Wait until a condition holds, checking every `pace` seconds; return how long it took in seconds."""
        began = time.monotonic()
        while not question():
            if time.monotonic() - began > cap:
                pytest.fail(f"{what}: not within {cap:g} s\n{self.report()}")
            time.sleep(pace)
        return time.monotonic() - began

    def flows(self, more: int = 50, cap: float = CAP) -> float:
        """Wait until this many more tuples are acked; return how long it took in seconds."""
        least = self.tally.of("A") + more
        return self.wait_for(lambda: self.tally.of("A") >= least, f"{more} more acked tuples", cap)

    def flows_for(self, seconds: float, longest_gap: float) -> None:
        """Check that tuples are acked without a pause of `longest_gap` seconds (this is the assertion, not a wait)."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.flows(1, longest_gap)

    def obey(self, *arguments: str) -> None:
        """Run a `squall` command that must succeed."""
        done = self.daemons.squall(*arguments)
        assert done.returncode == 0, f"{done.stdout}{done.stderr}\n{self.report()}"

    def rest_and_go_on(self) -> None:
        """Commands succeed, whichever Nimbus leads."""
        for command, state in (("deactivate", "INACTIVE"), ("activate", "ACTIVE")):
            self.obey(command, self.name)
            self.wait_for(lambda wanted=state: self.state() == wanted, state)  # type: ignore[misc]

    def another(self, name: str, *options: str) -> Path:
        """Submit another topology that writes a ledger; return the ledger's directory."""
        books = self.books.with_name(name)
        books.mkdir()
        self.obey("submit", *options, str(self.file), "--", f"books={books}", f"name={name}")
        return books

    def names(self) -> list[str] | None:
        """The listed topologies; None if no Nimbus answers."""
        found = self.daemons.asked(lambda: self.daemons.client.get("topologies")["topologies"])
        return None if found is None else [one["name"] for one in found]

    def is_gone(self, name: str) -> bool:
        """Whether a Nimbus answers that there is no such topology."""
        names = self.names()
        return names is not None and name not in names

    def is_whole(self, leader: int | None = None) -> None:
        """Wait until a Nimbus leads (this one, if given) and all daemons are registered."""
        wanted = range(len(self.daemons.nimbuses)) if leader is None else [leader]
        self.wait_for(lambda: self.daemons.leader() in wanted, "the lead")
        self.wait_for(lambda: self.daemons.nimbuses_there() == len(self.daemons.nimbuses), "all Nimbuses")
        self.wait_for(
            lambda: len(self.daemons.supervisors_there()) == len(self.daemons.supervisors), "all supervisors"
        )

    def pids(self) -> set[int]:
        """The worker processes that the supervisors have recorded."""
        return {started.pid for started in self.daemons.processes().values()}

    def failed(self) -> int:
        """How many emissions have failed so far."""
        return self.tally.of("F")

    def drain(self, cap: float = CAP) -> Account:
        """End the source, wait until the topology is completed, and return its ledger, which must be right."""
        (self.books / STOP).touch()
        self.wait_for(lambda: self.state() == "COMPLETED", f"the completion of {self.name}", cap)
        self.total = account(read(self.books), self.thawed)
        assert not self.total.problems, self.report()
        return self.total

    def kill(self) -> None:
        """`squall kill`: everything of the topology is removed."""
        self.obey("kill", self.name, "-w", "0", "--wait")
        self.wait_for(lambda: self.is_gone(self.name), f"the end of {self.name}")
        self.wait_for(lambda: not self.daemons.living_workers(), "the end of all workers")
        left = [
            path
            for daemon in self.daemons.supervisors
            for path in (self.daemons.folder / daemon.name).glob("topologies/*")
        ]
        self.wait_for(lambda: not any(path.exists() for path in left), "the removal of the workers' files")

    def report(self) -> str:
        """All that is known, for the message of a failed test."""
        lines = [f"the ledger so far: {account(read(self.books), self.thawed)}", f"status: {self.status()!r}"]
        for directory in self.daemons.processes():
            for path in (directory / "worker.log", directory / "output.log"):
                if path.exists():
                    text = path.read_text(errors="replace").splitlines()[-12:]
                    lines += [f"{directory.name}/{path.name}: {line}" for line in text]
        return "\n".join([*lines, self.daemons.report()])


def file_to_submit(folder: Path) -> Path:
    """Return a copy of the topology's file, in a folder with the modules that it needs. A package is shipped whole: each
    submission of the original would read, pack and unpack all tests.
    """
    package = folder / "tests" / "faults"
    package.mkdir(parents=True)
    for above in (package, package.parent):
        (above / "__init__.py").touch()
    for name in ("ledger.py", "ledger_topology.py", "mixed_topology.py"):
        shutil.copy2(HERE.parent / "faults" / name, package)
    return Path(shutil.copy2(HERE / "cluster_topology.py", folder))


@contextmanager
def ledger_cluster(
    tmp_path: Path,
    zookeeper: str | Sequence[str],
    *,
    direct: str | None = None,
    site: Mapping[str, object] = {},
    nimbuses: int = 1,
    supervisors: int = 2,
    slots: int = 2,
    **options: object,
) -> Iterator[ClusterRun]:
    """`direct`: ZooKeeper's address for the final check, when daemons reach it another way. `options`: those of
    `cluster_topology.topology`.
    """
    books = tmp_path / "books"
    books.mkdir()
    daemons = Daemons(
        tmp_path / "cluster", zookeeper, nimbuses=nimbuses, supervisors=supervisors, slots=slots, site=site
    )
    with daemons:
        file = file_to_submit(tmp_path / "submitted")
        run = ClusterRun(daemons, books, str(options.get("name", "ledger")), file, Tally(books))
        arguments = [f"books={books}", *(f"{name}={value}" for name, value in options.items())]
        run.obey("submit", str(file), "--wait", "--", *arguments)
        run.flows()
        yield run
        if not run.total.emitted:
            run.drain()
        if run.state() is not None:
            run.kill()
        if direct or isinstance(zookeeper, str):
            check_store(run, direct or str(zookeeper))


@contextmanager
def store_of(run: ClusterRun, servers: str) -> Iterator[ZooKeeperStore]:
    """The content of ZooKeeper as the cluster sees it."""
    store = ZooKeeperStore(servers, root=run.daemons.root, credentials=CREDENTIALS)
    store.start(CAP)
    try:
        yield store
    finally:
        store.close()


def check_store(run: ClusterRun, servers: str) -> None:
    """Nothing of the topology remains in the store."""
    with store_of(run, servers) as store:
        run.wait_for(
            lambda: (
                set(store.children("/")) <= {*LASTING, paths.KEYS.strip("/")}
                and store.children(paths.KEYS) in ([], [paths.OPERATOR])
            ),
            f"an empty store (there are {store.children('/')})",
        )
