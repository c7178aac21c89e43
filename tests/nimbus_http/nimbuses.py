"""Nimbuses in this process with real HTTP, and a simulated supervisor: it registers, and reports what tests want.

The pickles of its topologies are bytes that no unpickler accepts.
"""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any
from uuid import uuid4

from nimbus.daemon import NimbusDaemon, NimbusSettings
from squall.cluster.counters import ComponentCounters, WorkerCounters
from squall.cluster.records import Assignment, SupervisorRecord, WorkerReport, encode
from squall.cluster.registry import Registry
from squall.cluster.store import Store
from squall.http.client import Client, at
from squall.packages.versions import own_versions
from squall.reports.error_reports import ErrorReport
from squall.security.sealing import SUPERVISOR_TO_NIMBUS, KeyPair, daemon_header
from squall.security.tokens import bearer
from topology_api.topology import ComponentSpec, GroupingSpec, StreamSpec, Subscription, Topology

CAP_SECS = 60.0
PICKLE = b"this is no pickle"
OWN = own_versions()


def until(condition: Callable[[], Any], what: str = "it") -> Any:
    """The value of a condition once it holds."""
    deadline = time.monotonic() + CAP_SECS
    while not (found := condition()):
        assert time.monotonic() < deadline, f"{what} did not happen within {CAP_SECS:g} s"
        threading.Event().wait(0.01)
    return found


class Cluster:
    """Nimbuses over sessions of one store, each with a state directory below `folder`."""

    def __init__(self, store: Store, folder: Path) -> None:
        self.store = store
        self.folder = folder
        self.environ = {"HOME": str(folder), "XDG_STATE_HOME": str(folder / "xdg")}
        self.running: list[NimbusDaemon] = []

    def start(self, name: str, store: Store | None = None, **settings: Any) -> NimbusDaemon:
        """A Nimbus that answers, leading or not."""
        daemon = NimbusDaemon(
            self.store if store is None else store,
            NimbusSettings(self.folder / name, environ=self.environ, **settings),
        )
        self.running.append(daemon)
        daemon.start()
        return daemon

    def start_leader(self, name: str = "nimbus", store: Store | None = None, **settings: Any) -> NimbusDaemon:
        """A Nimbus that leads."""
        daemon = self.start(name, store, **settings)
        until(lambda: daemon.leading and daemon.token, "the lead")
        return daemon

    def start_standby(self, name: str, store: Store, **settings: Any) -> NimbusDaemon:
        """A standby Nimbus that could lead."""
        daemon = self.start(name, store, **settings)
        until(lambda: daemon.token, "its copy of the token")
        assert not daemon.leading
        return daemon

    def stop(self) -> None:
        for daemon in self.running:
            daemon.stop()


def client_of(*daemons: NimbusDaemon) -> Client:
    """An operator's client."""
    return Client([daemon.url for daemon in daemons], lambda url: bearer(daemons[0].token or ""))


@contextmanager
def closing(client: Client) -> Iterator[Client]:
    try:
        yield client
    finally:
        client.close()


def text_at(client: Client, path: str) -> str:
    """The value at a path, of any kind."""
    page = BytesIO()
    client.get_file(path, page)
    return page.getvalue().decode("utf-8", "replace")


def words(name: str = "words", conf: Mapping[str, object] | None = None, padding: int = 0) -> Topology:
    """A spout "lines" of one task, a bolt "count" of two."""
    spout = ComponentSpec("lines", "spout", 1, {}, {"default": StreamSpec(("line",))})
    subscription = Subscription("lines", "default", GroupingSpec("shuffle"))
    bolt = ComponentSpec("count", "bolt", 2, {}, {}, (subscription,))
    return Topology(name, conf or {}, (spout, bolt), {"lines": PICKLE, "count": PICKLE + bytes(padding)})


def submission(topology: Topology | None = None, **changes: Any) -> dict[str, Any]:
    """The body of a submission, as `squall submit` sends it."""
    topology = words() if topology is None else topology
    body = {
        "submission": uuid4().hex,
        "description": topology.describe(),
        "pickles": {
            component: base64.b64encode(data).decode() for component, data in topology.pickles.items()
        },
        "conf": {"topology.workers": 1, **topology.conf},
        "component_confs": {},
        "python": OWN["python"],
        "cloudpickle": OWN["cloudpickle"],
        "squall": OWN["squall"],
    }
    return {**body, **changes}


class PlayedSupervisor:
    """A supervisor in whose name a test reports."""

    def __init__(self, store: Store, daemon: NimbusDaemon, supervisor_id: str = "s1", **fields: Any) -> None:
        self.pair = KeyPair.make()
        self.id = supervisor_id
        self.registry = Registry(store)
        record = SupervisorRecord(
            supervisor_id,
            f"host-{supervisor_id}",
            2,
            beats=True,
            public_key=self.pair.public,
            versions=OWN,
            **fields,
        )
        self.registry.supervisors.put(record)
        self.daemon = daemon

    def client(self, daemon: NimbusDaemon | None = None) -> Client:
        """Its client."""
        nimbus = self.daemon if daemon is None else daemon
        keys = {record.url: record.public_key for record in self.registry.all_nimbuses()}
        return Client(
            [nimbus.url],
            lambda url: daemon_header(self.id, self.pair.token_with(keys[url], SUPERVISOR_TO_NIMBUS)),
        )

    def assignment(self, name: str = "words") -> Assignment:
        """The workers of a topology, once it has any."""

        def found() -> Assignment | None:
            record = self.registry.topologies.get(name)
            return None if record is None else self.registry.assignments.get(record.id)

        assignment = until(found, f"an assignment of {name}")
        assert isinstance(assignment, Assignment)
        return assignment

    def send(
        self,
        reports: Mapping[str, list[WorkerReport]] | None = None,
        counters: list[dict[str, Any]] | None = None,
        daemon: NimbusDaemon | None = None,
    ) -> list[dict[str, Any]]:
        """Report about its workers; return the refused reports."""
        rows = [
            {"topology": name, "report": json.loads(encode(report))}
            for name, said in (reports or {}).items()
            for report in said
        ]
        with closing(self.client(daemon)) as client:
            answer = client.post(
                at("supervisors", self.id, "reports"), {"reports": rows, "counters": counters or []}
            )
        refused: list[dict[str, Any]] = answer["refused"]
        return refused

    def say(self, name: str = "words", **flags: Any) -> list[dict[str, Any]]:
        """The same for all its workers, leaving ones included."""
        record = self.registry.topologies.get(name)
        assert record is not None
        placements = [
            placement
            for assignment in (self.registry.assignments.get(record.id), self.registry.leaving.get(record.id))
            if assignment is not None
            for placement in assignment.placements
        ]
        said = {"opened": True, "ended": False, "drained": False, "stopped": False, "crash": None, **flags}
        reports = [WorkerReport(each.worker, each.incarnation, **said) for each in placements]
        return self.send({name: reports})


def counters_of(
    supervisor: PlayedSupervisor, emitted: int, reports: tuple[ErrorReport, ...] = (), number: int = 1
) -> list[dict[str, Any]]:
    """The counters of the worker of "words", as a supervisor sends them."""
    assignment = supervisor.assignment()
    place = assignment.placements[0]
    counted = WorkerCounters({"lines": ComponentCounters(emitted=emitted, acked=emitted)}, reports, number)
    return [
        {
            "topology_id": assignment.topology_id,
            "worker": place.worker,
            "incarnation": list(place.incarnation),
            "counters": json.loads(counted.to_bytes()),
        }
    ]
