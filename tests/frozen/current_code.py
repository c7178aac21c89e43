"""The present code of the product, by the names of the fixtures: stores, files of workers, state directories.

Only the modules `current_*.py` of `tests/frozen` know where the product's modules are; `current_wire.py` has messages, keys and
ids of trees. To move or rename a module of the product, change an import here, and no fixture. A reader takes bytes and returns
a value (`plain_values` defines the comparison of values), or raises an error of the product; a writer does the opposite.
Must not know: the contents of the fixtures.
"""

from __future__ import annotations

import atexit
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from functools import cache, partial
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, Final

from msgspec.structs import replace

from nimbus.counters import topology_counters
from squall import worker_files
from squall.clock import ManualClock
from squall.cluster import blobs, identity, numbering, paths, records, registry
from squall.cluster.counters import WorkerCounters
from squall.cluster.leadership import Leadership, presence_of_process
from squall.cluster.memory import InMemoryStore
from squall.cluster.numbering import next_number
from squall.cluster.records import (
    Assignment,
    NimbusRecord,
    SupervisorRecord,
    TopologyRecord,
    WorkerReport,
)
from squall.cluster.registry import Registry
from squall.cluster.sqlite import SqliteStore
from squall.cluster.store import Store
from squall.daemon.state_directory import StateDirectory
from squall.reports.error_reports import ErrorReport
from squall.reports.histogram import LatencyHistogram
from squall.security import sealing, tokens
from squall.security.sealing import KeyPair
from supervisor import artifacts, directories, worker_processes
from supervisor.directories import Directories
from supervisor.worker_processes import WorkerProcesses

Reader = Callable[[bytes], object]
Writer = Callable[[Any], bytes]

# The records of a store

RECORDS: Final[Mapping[str, type[Any]]] = {
    "TopologyRecord": TopologyRecord,
    "Assignment": Assignment,
    "SupervisorRecord": SupervisorRecord,
    "NimbusRecord": NimbusRecord,
    "WorkerReport": WorkerReport,
}


def read_record(kind: type[Any], data: bytes) -> object:
    """A record. Of its components' settings, those that these bytes name: its reader adds the topology's."""
    record = records.decode(kind, data)
    if kind is not TopologyRecord:
        return record
    named = json.loads(data)["component_confs"]
    own = {name: {key: conf[key] for key in named[name]} for name, conf in record.component_confs.items()}
    return replace(record, component_confs=own)


READ_RECORD: Final[Mapping[str, Reader]] = {
    name: partial(read_record, kind) for name, kind in RECORDS.items()
}


def written_again(kind: str, data: bytes) -> bytes:
    """A record as it is written while daemons of an earlier build are registered."""
    return records.encode(records.decode(RECORDS[kind], data), records.REPEATING)


# The content of a store


def store_of(values: Mapping[str, bytes]) -> Store:
    """A store with these values."""
    store = InMemoryStore()
    for path, data in values.items():
        store.put(path, data)
    return store


def sqlite_values(path: Path) -> dict[str, bytes]:
    """The content of a file of `squall dev --state`."""
    store = SqliteStore(path)
    try:
        return dict(_values(store, "/"))
    finally:
        store.close()


def _values(store: Store, path: str) -> Iterator[tuple[str, bytes]]:
    found = store.get(path)
    if found is not None:
        yield path, found[0]
    for name in store.children(path):
        yield from _values(store, f"{path.rstrip('/')}/{name}")


def _of_topologies(store: Store) -> dict[str, Any]:
    registry = Registry(store)
    told: dict[str, Any] = {}
    for record in registry.all_topologies():
        told[record.id] = {
            "record": record,
            "assignment": registry.assignments.get(record.id),
            "leaving": registry.leaving.get(record.id),
            "former": registry.former.get(record.id),
            "reports": registry.reports(record.id),
            "last workers": registry.last_workers(record.id),
        }
    return {"topologies": told, "bad": sorted(registry.bad), "ids": sorted(registry.known_ids()),
            "placed": sorted(registry.placed_ids())}  # fmt: skip


def _of_replacements(store: Store) -> dict[str, Any]:
    registry = Registry(store)
    return {
        "waiting": {name: registry.replacements.get(name) for name in registry.replacements.names()},
        "replaced": {name: registry.replaced.get(name) for name in registry.replaced.names()},
    }


def _of_daemons(store: Store) -> dict[str, Any]:
    registry = Registry(store)
    return {
        "supervisors": registry.all_supervisors(),
        "drained": registry.drained_supervisors(),
        "unread": registry.unread_supervisors,
        "nimbuses": registry.all_nimbuses(),
        "leader": Leadership(store, "nobody", ManualClock()).leader(),
    }


def _of_bundles(store: Store) -> dict[str, Any]:
    ids = map(paths.unquoted, store.children(paths.BLOBS))
    return {each: described(blobs.get_bundle(store, each)) for each in ids}


def described(topology: Any) -> dict[str, Any]:
    """A topology as values: all except the objects in its pickles."""
    return {"description": topology.describe(), "pickles": dict(topology.pickles)}


READ_STORE: Final[Mapping[str, Callable[[Store], object]]] = {
    "cluster": lambda store: identity.check(store, None),
    "topologies": _of_topologies,
    "replacements": _of_replacements,
    "daemons": _of_daemons,
    "bundles": _of_bundles,
    "next submission": lambda store: next_number(store, numbering.SUBMISSIONS),
    "next assignment": lambda store: next_number(store, numbering.ASSIGNMENTS),
}


def read_cluster(data: bytes) -> object:
    """The id of a cluster, from the value at its path."""
    return identity.check(store_of({paths.CLUSTER: data}), None)


def read_number(counter: str, data: bytes, values: Mapping[str, bytes]) -> int:
    """The next number of a counter with these bytes, among other values."""
    return next_number(store_of({**values, paths.counter(counter): data}), counter)


def read_blob(manifest: bytes, chunks: Mapping[int, bytes]) -> bytes:
    """A blob by its manifest and its chunks."""
    pieces = {f"/blobs/a/description/{number:04}": data for number, data in chunks.items()}
    return blobs.get_blob(store_of({"/blobs/a/description": manifest, **pieces}), "/blobs/a/description")


def stands_already(data: bytes, mark: str) -> bool:
    """Whether a presence node is that of an earlier process of the same state directory, so that a new one replaces it."""
    store = InMemoryStore()
    store.session().create(paths.presence("s1"), data, ephemeral=True)
    presence = presence_of_process(store, "s1", mark)
    return presence.keep(0.0) and not presence.occupied


quoted: Callable[[str], str] = paths.quoted
unquoted: Callable[[str], str] = paths.unquoted
name_of_topology: Callable[[str], str] = registry.name_of
number_of_topology: Callable[[str], int] = registry.number_of

# Secrets


def open_sealed(secret: bytes, data: bytes, purpose: str) -> dict[str, str]:
    """Open a text sealed for the owner of a key pair."""
    return KeyPair(secret).open_texts(data, purpose)


def token_between(secret: bytes, public: str, context: str) -> str:
    """How two daemons identify each other."""
    return KeyPair(secret).token_with(public, context)


def public_key(secret: bytes) -> str:
    """The public half of a key pair."""
    return KeyPair(secret).public


sealed_to: Callable[[bytes], str] = sealing.sealed_to
daemon_header: Callable[[str, str], str] = sealing.daemon_header
read_daemon_header: Callable[[str], tuple[str, str] | None] = sealing.read_daemon_header

# Files of workers and of state directories


@cache
def _folder() -> Path:
    """A folder of this process, where files are cheapest: thousands of them are written and read."""
    memory = "/dev/shm"
    folder = mkdtemp(prefix="squall-frozen-", dir=memory if os.access(memory, os.W_OK) else None)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


def file_reader(name: str, read: Callable[[Path], object]) -> Reader:
    """A reader of a file of this name in a folder, as a reader of its bytes."""

    def from_bytes(data: bytes) -> object:
        (_folder() / name).write_bytes(data)
        return read(_folder())

    return from_bytes


def file_writer(name: str, write: Callable[[Path, Any], object]) -> Writer:
    """A writer of a file of this name into a folder, as a function that returns its bytes."""

    def to_bytes(value: Any) -> bytes:
        write(_folder(), value)
        return (_folder() / name).read_bytes()

    return to_bytes


READ_FILE: Final[Mapping[str, Reader]] = {
    "orders": file_reader("orders.json", worker_files.read_orders),
    "pulse": file_reader("pulse.json", worker_files.read_heartbeat),
    "end": file_reader("end.json", worker_files.read_end),
    "keys": file_reader("keys.json", worker_files.read_keys),
    "lease": file_reader("lease.json", worker_processes._lease_in),
    "process": file_reader("process.json", directories.read_started),
    "needs": file_reader("needs.json", artifacts.read_needs),
    "counters": WorkerCounters.from_bytes,
    "counters of a topology": topology_counters.decode,
}
WRITE_FILE: Final[Mapping[str, Writer]] = {
    "orders": file_writer("orders.json", lambda at, each: worker_files.write(at, worker_files.ORDERS, each)),
    "pulse": file_writer("pulse.json", lambda at, each: worker_files.write(at, worker_files.HEARTBEAT, each)),
    "end": file_writer("end.json", lambda at, each: worker_files.write(at, worker_files.END, each)),
    "keys": file_writer("keys.json", lambda at, each: worker_files.write(at, worker_files.KEYS, each)),
    "lease": file_writer(
        "lease.json", lambda at, each: worker_files.write(at, "lease.json", {"number": each})
    ),
    "process": file_writer("process.json", directories.write_started),
    "needs": file_writer(
        "needs.json", lambda at, each: worker_files.write(at, "needs.json", {"needs": each})
    ),
    "counters": WorkerCounters.to_bytes,
    "counters of a topology": lambda each: topology_counters.encode(
        topology_counters.base_of(each), each.folded, each.workers
    ),
}


def read_report(data: bytes) -> object:
    """An error report, from the JSON of its fields."""
    return ErrorReport.from_dict(json.loads(data))


def read_histogram(data: bytes) -> object:
    """A histogram, from its JSON; with its statistics."""
    found = LatencyHistogram.from_dict(json.loads(data))
    return {"histogram": found, "percentiles": [found.percentile(each) for each in (0, 25, 50, 99, 100)]}


READ_PART: Final[Mapping[str, Reader]] = {"error report": read_report, "histogram": read_histogram}


def found_worker(directory: Path) -> object:
    """The worker that a supervisor finds in the directory of an earlier one."""
    processes = WorkerProcesses(_folder(), Registry(InMemoryStore()), "s1")
    found = processes._recover(directory)
    if found is None:
        return None
    orders = found.orders
    key = (orders.topology_id, orders.worker)
    return [*key, orders.topology, list(orders.incarnation), found.slot, found.life]


def worker_directory(state: Path, topology_id: str, worker: str) -> Path:
    """The directory that a supervisor and a worker share."""
    return Directories(state).worker(topology_id, worker)


def nimbus_state(folder: Path) -> dict[str, object]:
    """The identity of a Nimbus by its state directory."""
    state = StateDirectory(folder, "Nimbus", "nimbus-host")
    try:
        token = tokens.read_token(folder / tokens.FILE)
        counted = topology_counters.read_all(folder / "counters")
        return {
            "id": state.id,
            "key": state.pair.public,
            "cluster": state.cluster.id,
            "token": token,
            "counters": counted,
        }
    finally:
        state.close()


def supervisor_state(folder: Path, cluster: bytes) -> dict[str, object]:
    """The identity of a supervisor by its state directory; over a store whose cluster has this record."""
    with closing(StateDirectory(folder, "supervisor", "host")) as state:
        state.cluster.admit(store_of({paths.CLUSTER: cluster}))
        return {"id": state.id, "key": state.pair.public}
