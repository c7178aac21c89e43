"""The invariants: after every step, after the last fault, and when everything was killed.

A `Watcher` sees every write to the store and every start of a process. The first broken promise ends the run with `Broken`.
Must not know: which faults there are.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

from nimbus.lifecycle.states import TABLE
from squall import worker_files
from squall.cluster import paths
from squall.cluster.records import Assignment, BadRecord, Placement, TopologyRecord, decode
from squall.cluster.registry import Registry
from squall.cluster.store import Guard, below
from squall.values import Incarnation
from tests.simulation.daemons import Agent, Candidate
from tests.simulation.machines import VirtualProcess
from tests.simulation.sessions import Observer
from tests.simulation.timeline import Actor

if TYPE_CHECKING:
    from tests.simulation.world import World

#: Records that a Nimbus writes without leading.
WITHOUT_GUARD: Final = (paths.LEADER, paths.EPOCH, paths.NIMBUSES, paths.PRESENCE)
#: Records that a supervisor writes.
OF_SUPERVISORS: Final = (paths.SUPERVISORS, paths.PRESENCE)
#: Records that remain when there is no topology.
STAYS: Final = (
    "/leadership",
    paths.NIMBUSES,
    paths.SUPERVISORS,
    paths.PRESENCE,
    paths.ENDED,
    paths.DRAINED,
    paths.COUNTERS,
    paths.CLUSTER,
    paths.keys(paths.OPERATOR),
)
#: States in which workers are asked to drain before their places change.
DRAINING: Final = ("REBALANCING", "REPLACING", "KILLED")


class Broken(AssertionError):
    """A broken promise."""


class Watcher(Observer):
    """Checks every write and every start."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.assignments: dict[tuple[str, int], tuple[Placement, ...]] = {}
        self.versions: dict[str, int] = {}
        #: The workers of each topology by its last assignment.
        self.workers: dict[str, tuple[Placement, ...]] = {}
        self.records: dict[str, TopologyRecord] = {}
        #: Ids of topologies by the submitter's key.
        self.submissions: dict[str, set[str]] = defaultdict(set)
        #: Topologies with an unreadable record, by id or name.
        self.unreadable: set[str] = set()
        #: Moments at which the leader changed, the number of started workers, and of writes.
        self.leaders: list[str] = []
        self.starts = 0
        self.writes = 0
        self.first: Broken | None = None
        #: The process of each incarnation (topology id, worker, incarnation) that ever existed.
        self.incarnations: dict[tuple[str, str, Incarnation], str] = {}
        #: Withdrawn places (topology id, worker, version) with their slots; and those of them that are not waited for: their
        #: supervisor was not there by then, or was given up later. Processes there end when it is back.
        self.withdrawn: dict[tuple[str, str, int], str] = {}
        self.unawaited: set[tuple[str, str, int]] = set()

    def broken(self, text: str) -> Broken:
        """The end of a run. A daemon may catch an exception in the middle of its work, so it is raised again afterwards."""
        found = Broken(f"at {self.world.line.now:.3f} s: {text}")
        self.first = self.first or found
        return found

    def damaged(self, path: str) -> None:
        """See `Observer`. No promise depends on an unreadable record."""
        self.records.pop(path, None)
        self.unreadable.add(path.split("/")[2])
        for name, record in self.records.items():
            if name.split("/")[2] == path.split("/")[2] or record.id == paths.unquoted(path.split("/")[2]):
                self.unreadable.add(record.id)

    # Writes

    def wrote(self, actor: Actor, kind: str, path: str, guard: Guard | None) -> None:
        """See `Observer`."""
        self.writes += 1
        self.check_writer(actor, kind, path, guard)
        value = self.world.server.store._tree.values.get(path)
        if below(paths.TOPOLOGIES, path):
            self.check_record(path, None if value is None else value[0])
        elif below(paths.ASSIGNMENTS, path):
            topology_id = paths.unquoted(path.rpartition("/")[2])
            self.check_drained(actor, topology_id)
            before = self.workers.get(topology_id, ())
            self.workers[topology_id] = () if value is None else self.check_assignment(value[0])
            self.note_superseded(topology_id, before, self.workers[topology_id])
        elif below(paths.SUPERVISORS, path) and value is None:
            self.note_given_up(paths.unquoted(path.rpartition("/")[2]))
        elif path == paths.LEADER and value is not None:
            self.leaders.append(value[0].decode())

    def check_writer(self, actor: Actor, kind: str, path: str, guard: Guard | None) -> None:
        """A Nimbus writes under the guard of its term, a supervisor only its own records."""
        if isinstance(actor, Candidate):
            if any(below(each, path) for each in WITHOUT_GUARD):
                return
            if guard is None:
                raise self.broken(f"{actor.name} has done {kind} {path} without a guard")
            epoch = self.world.server.store._tree.version(paths.EPOCH)
            if guard.path != paths.EPOCH or guard.version != epoch:
                raise self.broken(
                    f"{actor.name} has done {kind} {path} in term {guard.version}; it is {epoch}"
                )
        elif isinstance(actor, Agent) and not any(below(each, path) for each in OF_SUPERVISORS):
            raise self.broken(f"supervisor {actor.name} has done {kind} {path}")

    def check_record(self, path: str, data: bytes | None) -> None:
        """States change by the table only; a name passes to another topology only when it was free, or by a replacement."""
        before = self.records.pop(path, None)
        if data is None:
            self.check_removed(before)
            return
        record = self.records[path] = decode(TopologyRecord, data)
        if record.state == "KILLED":
            # A retry that comes after a kill starts again; the kill also ends the version that was replaced.
            ended = {record.id, record.id if before is None else before.replaces}
            for key in [key for key, ids in self.submissions.items() if ids & ended]:
                del self.submissions[key]
        elif record.submission:
            self.submissions[record.submission].add(record.id)
            if len(self.submissions[record.submission]) > 1:
                raise self.broken(
                    f"submission {record.submission} became {sorted(self.submissions[record.submission])}"
                )
        if before is None or before.id != record.id:
            return
        if before.state != record.state and not any(
            state == before.state and (becomes == record.state or becomes == "(previous)")
            for (state, _), becomes in TABLE.items()
        ):
            raise self.broken(f"{record.name}: {before.state} -> {record.state} is no step of the table")
        if set(before.finished) - set(record.finished) and before.tasks == record.tasks:
            raise self.broken(f"{record.name}: finished tasks {before.finished} became {record.finished}")
        if record.version < before.version:
            raise self.broken(f"{record.name}: version {before.version} -> {record.version}")

    def check_removed(self, before: TopologyRecord | None) -> None:
        """When a name becomes free, no reachable process works under it."""
        if before is None or self.unreadable & {before.id, before.name}:
            return
        # A registry without a cache: a damaged record counts as absent, as for a new leader.
        there = {record.id for record in Registry(self.world.server.store).all_supervisors()}
        for process in self.world.processes.all():
            orders = process.orders
            if orders is None or orders.topology_id != before.id or process.machine.name not in there:
                continue
            if (orders.topology_id, orders.worker, orders.incarnation.version) not in self.unawaited:
                raise self.broken(f"{before.name} is gone, and {process.name} of it still runs")

    def check_drained(self, actor: Actor, topology_id: str) -> None:
        """Workers that were asked to drain lose their places when they have drained, or at the deadline."""
        record = next((each for each in self.records.values() if each.id == topology_id), None)
        if record is None or record.state not in DRAINING or topology_id in self.unreadable:
            return
        if not isinstance(actor, Candidate) or (
            record.deadline is not None and actor.now() >= record.deadline
        ):
            return
        reports = Registry(self.world.server.store).reports(topology_id)
        for place in self.workers.get(topology_id, ()):
            report = reports.get(place.worker)
            if report is None or report.incarnation.version != place.incarnation.version or not report.opened:
                continue  # it never ran, and may be skipped
            done = report.drained or report.ended or report.stopped or report.crash
            if not done and place.supervisor in actor.supervisors:  # the others are not waited for
                raise self.broken(f"{topology_id}: {place.worker} has not drained, and loses its place")

    def note_superseded(
        self, topology_id: str, before: tuple[Placement, ...], placements: tuple[Placement, ...]
    ) -> None:
        """Processes whose tasks belong to others from now on, and places that are free."""
        there = {(place.worker, place.incarnation.version) for place in placements}
        for process in self.world.processes.all():
            if process.identity is None or process.identity[0] != topology_id:
                continue
            _, worker, incarnation = process.identity
            if (worker, incarnation.version) not in there:
                self.world.superseded(process)
        for place in before:
            if (place.worker, place.incarnation.version) not in there:
                key = topology_id, place.worker, place.incarnation.version
                self.withdrawn[key] = place.supervisor
                if self.world.server.store.get(paths.supervisor(place.supervisor)) is None:
                    self.unawaited.add(key)

    def note_given_up(self, supervisor: str) -> None:
        """The processes there are not waited for any more, even if the supervisor comes back."""
        self.unawaited.update(key for key, where in self.withdrawn.items() if where == supervisor)

    def check_assignment(self, data: bytes) -> tuple[Placement, ...]:
        """Each task has one owner in an assignment; a version is given once; no slot has two workers."""
        found = decode(Assignment, data)
        tasks = [task for place in found.placements for task in place.tasks]
        if len(tasks) != len(set(tasks)):
            raise self.broken(f"assignment {found.version} of {found.topology_id} has tasks twice: {tasks}")
        names = [place.worker for place in found.placements]
        if len(names) != len(set(names)):
            raise self.broken(f"assignment {found.version} of {found.topology_id} has a worker twice")
        key = found.topology_id, found.version
        if self.assignments.setdefault(key, found.placements) != found.placements:
            raise self.broken(
                f"assignment {found.version} of {found.topology_id} was written twice, differently"
            )
        for other, version in self.versions.items():
            if other != found.topology_id and version == found.version:
                raise self.broken(f"{other} and {found.topology_id} both have assignment {version}")
        if self.versions.get(found.topology_id, 0) > found.version:
            raise self.broken(f"{found.topology_id}: assignment {found.version} after a later one")
        self.versions[found.topology_id] = found.version
        self.check_slots()
        return found.placements

    def check_slots(self) -> None:
        """No two topologies have the same slot, unless a Nimbus could not know that it was taken."""
        slots: dict[tuple[str, int], str] = {}
        for name in self.world.server.store.children(paths.ASSIGNMENTS):
            value = self.world.server.store.get(f"{paths.ASSIGNMENTS}/{name}")
            try:
                found = None if value is None else decode(Assignment, value[0])
            except BadRecord:
                continue
            for place in () if found is None else found.placements:
                slot = place.supervisor, place.slot
                if slot in slots and not self.unreadable & {slots[slot], name}:
                    raise self.broken(f"slot {slot} is {slots[slot]}'s and {name}'s")
                slots[slot] = name

    # Processes

    def started(self, process: VirtualProcess) -> None:
        """No slot has two processes, and no two processes are ever the same incarnation of a worker."""
        self.starts += 1
        orders = worker_files.read_orders(process.directory)
        assert orders is not None
        process.slot, process.topology = own_slot(orders), orders.topology
        process.identity = (orders.topology_id, orders.worker, orders.incarnation)
        before = self.incarnations.setdefault(process.identity, process.name)
        if before != process.name:
            raise self.broken(f"{process.name} and {before} are both {process.identity}")
        for other in self.world.processes.all():
            if other is process or other.identity is None:
                continue
            if other.machine is process.machine and other.slot == process.slot:
                raise self.broken(
                    f"{process.name} {process.identity} is started in slot {process.slot} of {process.machine.name}, where"
                    f" {other.name} {other.identity} still runs"
                )

    # Leaders

    def step(self) -> None:
        """After each event: no promise was broken in it, and at most one Nimbus considers itself the leader."""
        if self.first is not None:
            raise self.first
        leaders = 0
        for candidate in self.world.candidates.values():
            leaders += candidate.leads
        if leaders > 1:
            able = [each.name for each in self.world.candidates.values() if each.leads]
            raise self.broken(f"{able} lead at once")


def own_slot(orders: worker_files.Orders) -> int:
    """The slot of a process according to its orders."""
    return next(place.slot for place in orders.placements if place.worker == orders.worker)


def problems_at_rest(world: World) -> list[str]:
    """Everything that is not yet as it should be some time after the last fault."""
    problems = []
    leader = world.leader
    if leader is None or not leader.control.leading:
        return ["there is no leader"]
    registry = world.registry
    there = {record.id for record in registry.all_supervisors()}
    problems += [f"{name} is not registered" for name in world.agents if name not in there]
    wanted: dict[tuple[str, str, int], int] = {}
    for record in registry.all_topologies():
        problems += problems_of_topology(world, record, wanted)
    for process in world.processes.all():
        if process.identity is None:
            continue
        topology_id, worker, incarnation = process.identity
        if wanted.pop((topology_id, worker, incarnation.version), None) is None:
            problems.append(f"{process.name} {process.identity} runs and is wanted nowhere")
    problems += [f"{key} is wanted and does not run" for key in wanted]
    return problems


def problems_of_topology(
    world: World, record: TopologyRecord, wanted: dict[tuple[str, str, int], int]
) -> list[str]:
    """The same for one topology; its workers are added to `wanted`."""
    registry = world.registry
    assignment, leaving = registry.assignments.get(record.id), registry.leaving.get(record.id)
    name = f"{record.name} ({record.id}, {record.state})"
    if record.state not in ("ACTIVE", "INACTIVE", "COMPLETED", "FAILED"):
        return [f"{name} is still {record.state}"]
    problems = []
    if leaving is not None:
        problems.append(f"{name}: workers are still leaving: {leaving.placements}")
    if record.state in ("COMPLETED", "FAILED"):
        return [*problems, f"{name} still has workers"] if assignment is not None else problems
    if assignment is None:
        free = world.settings.machines * world.settings.slots - slots_in_use(world)
        return [*problems, f"{name} has no workers, with {free} slots free"] if free > 0 else problems
    placed = sorted(task for place in assignment.placements for task in place.tasks)
    if placed != sorted(task for task, _, _ in record.tasks) or assignment.version != record.version:
        problems.append(f"{name}: assignment {assignment.version} is not one of its tasks")
    processes = {process.identity: process for process in world.processes.all()}
    for place in assignment.placements:
        wanted[record.id, place.worker, place.incarnation.version] = place.slot
        report = registry.report(record.id, place.worker)
        process = None if report is None else processes.get((record.id, place.worker, report.incarnation))
        if report is None or process is None:
            problems.append(f"{name}: worker {place.worker} has not reported: {report}")
        elif process.orders is None or process.orders.version != assignment.version:
            problems.append(f"{name}: worker {place.worker} does not know assignment {assignment.version}")
        elif process.orders.asked != record.state.asks:
            problems.append(f"{name}: worker {place.worker} is asked to {process.orders.asked}")
        elif record.state == "ACTIVE" and not report.opened:
            problems.append(f"{name}: worker {place.worker} is not open")
        elif process.machine.name != place.supervisor or process.slot != place.slot:
            problems.append(f"{name}: worker {place.worker} runs elsewhere")
        else:
            problems += problems_of_peers(world, name, process)
    return problems


def problems_of_peers(world: World, name: str, process: VirtualProcess) -> list[str]:
    """Whether a worker knows the present addresses and incarnations of its peers."""
    problems = []
    assert process.orders is not None
    there = {other.identity: other for other in world.processes.all() if other.identity is not None}
    for place in process.orders.placements:
        if place.worker == process.orders.worker:
            continue
        other = there.get((process.orders.topology_id, place.worker, place.incarnation))
        known = process.orders.addresses.get(place.worker)
        if other is None:
            problems.append(f"{name}: {process.name} takes {place.worker} for {place.incarnation}")
        elif other.program is not None and known != other.program.address:
            problems.append(f"{name}: {process.name} knows {place.worker} at {known}")
    return problems


def slots_in_use(world: World) -> int:
    """Slots that a topology has."""
    found = 0
    for record in world.registry.all_topologies():
        for assignment in (world.registry.assignments.get(record.id), world.registry.leaving.get(record.id)):
            found += 0 if assignment is None else len(assignment.placements)
    return found


def left_over(world: World) -> list[str]:
    """Everything that is left though all topologies were killed."""
    problems = [
        f"{path} is left in the store"
        for path in sorted(world.server.store._tree.values)
        if not any(below(each, path) for each in STAYS)
    ]
    problems += [f"process {process.name} is left" for process in world.processes.all()]
    for name, agent in world.agents.items():
        root = agent.directories.root
        if root.exists():
            problems += [f"{folder} is left on {name}" for folder in sorted(root.iterdir())]
    return problems
