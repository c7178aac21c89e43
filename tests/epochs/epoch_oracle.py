"""What must be true of every run: the sequential model of the simulation of epochs.

At each commit, all its snapshots are read: every emission that they count, and every timer, is in exactly one place on its
way to each sink (outbox, parked, gathered, recorded on a cycle, dead letter, rows of a sink), and each row's count is the one
that a run without failures would have given it. Visible is what commits hold, each epoch once and in order. Acks
are those of committed emissions, each once.
Must not know: how the cluster comes to this.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

from tests.epochs.epoch_cluster import Cluster
from tests.epochs.epoch_rescale import GROUPS
from tests.epochs.epoch_stores import Broken
from worker.epochs.after_commit import EpochOutcome
from worker.epochs.records import CommitRecord, LogRecord
from worker.epochs.snapshot_files import BadSnapshot, TaskSnapshot, read_chain
from worker.routing.key_groups import task_of

Id = tuple[str, str, int]


class Oracle:
    """Holds one run against the model."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.plan = cluster.plan
        self.commits: dict[int, CommitRecord] = {}
        self.last: dict[str, TaskSnapshot] = {}
        #: What commits hold: (component, index, epoch) -> rows; letter id -> (component, row id).
        self.rows: dict[tuple[str, int, int], list[Any]] = {}
        self.sunk: dict[str, Counter[Id]] = defaultdict(Counter)
        self.letters: dict[str, tuple[str, Id]] = {}
        self.lettered: dict[str, Counter[Id]] = defaultdict(Counter)
        #: The rows that keys have counted, by component.
        self.counted: dict[str, set[Any]] = defaultdict(set)
        #: Spout task -> numbers that it has emitted in committed epochs.
        self.emitted: dict[str, list[int]] = {}
        self.acked: dict[str, set[str]] = defaultdict(set)
        self.shown: dict[tuple[str, int], int] = {}
        cluster.outside.on_record = self.record
        cluster.outside.on_visible = self.visible
        cluster.on_ack = self.ack
        cluster.on_end = self.end

    # Commits.

    def record(self, number: int, record: LogRecord) -> None:
        """A record has been put into the log."""
        if self.cluster.verbose:
            self.cluster.log(f"LOG {number}: {type(record).__name__} {getattr(record, 'epoch', '')}")
        if not isinstance(record, CommitRecord):
            return
        if self.cluster.on_trial:
            raise Broken(f"epoch {record.epoch} is committed by a version on trial")
        if record.epoch in self.commits:
            raise Broken(f"epoch {record.epoch} is committed twice")
        snapshots = {}
        for task, file in record.files.items():
            try:
                snapshots[task] = snapshot = read_chain(file, self.cluster.data_of)
                for part in snapshot.parts:
                    snapshot.state["keys"].update(part["keys"])
            except BadSnapshot as error:
                raise Broken(f"the commit of epoch {record.epoch} counts {file.name}: {error}") from error
        self.commits[record.epoch] = record
        self.last = snapshots
        for task, snapshot in snapshots.items():
            self.gather(task, snapshot, record.epoch)
        self.check_keys(snapshots, record.epoch)
        for part in self.plan.parts.values():
            if part.is_sink:
                self.check_path(part.name, snapshots, record.epoch)

    def check_keys(self, snapshots: dict[str, TaskSnapshot], epoch: int) -> None:
        """Each key is in the task that gets its rows, and with all rows that were counted before."""
        counts = Counter(task.partition("/")[0] for task in snapshots)
        found: dict[str, set[Any]] = defaultdict(set)
        for task, snapshot in snapshots.items():
            component, _, index = task.partition("/")
            if self.plan.parts[component].kind != "count":
                continue
            for key, rows in snapshot.state["keys"].items():
                found[component].update(map(tuple, rows))
                if task_of(key, counts[component], GROUPS) != int(index):
                    raise Broken(f"epoch {epoch}: {task} has key {key}, which is another task's")
        for component, rows in self.counted.items():
            if rows - found[component]:
                raise Broken(f"epoch {epoch}: {component} has lost rows: {sorted(rows - found[component])}")
        self.counted = found

    def gather(self, task: str, snapshot: TaskSnapshot, epoch: int) -> None:
        """Take what a snapshot has that is new."""
        component, _, index = task.partition("/")
        part = self.plan.parts[component]
        if part.kind == "spout":
            self.emitted[task] = numbers = snapshot.state["emitted"]
            if len(set(numbers)) != len(numbers):
                raise Broken(f"epoch {epoch}: {task} has emitted some numbers twice: {numbers}")
            if part.rewindable and numbers != list(range(len(numbers))):
                raise Broken(f"epoch {epoch}: {task} has emitted {numbers}")
        for outcome in snapshot.outcomes:
            if outcome.epoch != epoch:
                if outcome.epoch not in self.commits:
                    raise Broken(
                        f"epoch {epoch}: {task} carries an outcome of the void epoch {outcome.epoch}"
                    )
                if outcome.decided == epoch:
                    self.leave_out(component, outcome)
                continue
            if outcome.kind == "letters":
                for letter in outcome.value:
                    item = letter["item"]
                    row = timer_row(component, item) if item[0] == "T" else item
                    self.letters[letter["id"]] = (component, id_of(row))
                    self.lettered[component][id_of(row)] += 1
                continue
            outside = self.cluster.outside
            rows = outside.stages[outcome.value].rows if outcome.kind == "handle" else outcome.value
            self.rows[component, int(index), epoch] = [tuple(row) for row in rows]
            for row in rows:
                self.sunk[component][id_of(row)] += 1

    def leave_out(self, component: str, outcome: EpochOutcome) -> None:
        """A commit leaves out rows of an earlier epoch, which the outside has refused."""
        rows = [tuple(row) for row in outcome.value]
        kept = [row for at, row in enumerate(rows) if at not in outcome.refused]
        self.sunk[component].subtract(
            id_of(row) for row in self.rows[component, outcome.index, outcome.epoch]
        )
        self.sunk[component].update(id_of(row) for row in kept)
        self.rows[component, outcome.index, outcome.epoch] = kept

    def check_path(self, sink: str, snapshots: dict[str, TaskSnapshot], epoch: int) -> None:
        """Every emission, and every timer, is in exactly one place on the way to a sink."""
        path = set(self.plan.path(sink))
        found = Counter(self.sunk[sink])
        expected: set[Id] = set()
        counts: dict[Id, int] = {}
        for component in path:
            found.update(self.lettered[component])
        for task, snapshot in snapshots.items():
            component = task.partition("/")[0]
            if component not in path:
                continue
            kind = self.plan.parts[component].kind
            for target, _, rows in snapshot.outboxes:
                if target.partition("/")[0] in path:
                    found.update([id_of(row) for row in rows])
            for _, rows in snapshot.recorded:
                found.update([id_of(row) for row in rows])
            found.update([id_of(row) for row in snapshot.held])
            for item, _, _ in snapshot.parked:
                found[id_of(timer_row(component, item) if item[0] == "T" else item)] += 1
            if kind == "spout":
                expected.update([("e", task, number) for number in snapshot.state["emitted"]])
            elif kind == "count":
                for rows in snapshot.state["keys"].values():
                    for at, row in enumerate(rows):
                        counts[tuple(row)] = at + 1
                        if row[0] == "e" and row[2] % 3 == 0:
                            expected.add((f"t:{component}", row[1], row[2]))
                    if len({tuple(row) for row in rows}) != len(rows):
                        raise Broken(f"epoch {epoch}: {task} has counted some rows twice: {rows}")
                found.update(
                    [id_of(timer_row(component, ("T", *row))) for _, row in snapshot.state["timers"]]
                )
        wrong = {each: found[each] for each in expected | set(found) if found[each] != (each in expected)}
        if wrong:
            raise Broken(
                f"epoch {epoch}, on the way to {sink}: rows that are not in exactly one place: {wrong}"
            )
        self.check_counts(sink, epoch, counts)

    def check_counts(self, sink: str, epoch: int, counts: dict[Id, int]) -> None:
        """The rows that a sink got in an epoch carry the counts of the state above it."""
        above = self.plan.counter_above(sink)
        if above is None:
            return
        path = [name for name in self.plan.path(sink) if self.plan.parts[name].kind == "count"]
        if len(path) > 1:
            return  # each of them has counted the row, and `counts` holds only one
        for (component, _, at), rows in self.rows.items():
            if component == sink and at == epoch:
                for row in rows:
                    if row[5] and counts.get(id_of(row)) != row[5]:
                        raise Broken(
                            f"epoch {epoch}: {sink} got {row}, whose count is {counts.get(id_of(row))}"
                        )

    # The outside.

    def visible(self, component: str, index: int, epoch: int) -> None:
        """Rows have become visible."""
        rows = self.cluster.outside.visible[component, index, epoch]
        if epoch not in self.commits:
            raise Broken(f"rows of {component}/{index} are visible of epoch {epoch}, which is not committed")
        if self.rows.get((component, index, epoch)) != rows:
            raise Broken(f"rows of {component}/{index} of epoch {epoch} are not those of the commit")
        if self.shown.get((component, index), 0) > epoch:
            raise Broken(f"epoch {epoch} of {component}/{index} becomes visible after a later one")
        self.shown[component, index] = epoch

    def ack(self, task: str, ids: tuple[str, ...]) -> None:
        """Emissions were acked."""
        acked, committed = self.acked[task], {f"{task}:{number}" for number in self.emitted.get(task, ())}
        for message_id in ids:
            if message_id in acked:
                raise Broken(f"{message_id} is acked twice")
            if message_id not in committed:
                raise Broken(f"{message_id} is acked and not committed")
            acked.add(message_id)

    # The end.

    def end(self) -> None:
        """Nimbus hears that the topology has ended: unless the deadline of a kill has passed, all is visible."""
        deadline = self.cluster.deadline
        if deadline is None or deadline > self.cluster.line.now:
            self.check_all_visible()

    def check_all_visible(self) -> None:
        """What is committed is visible."""
        outside = self.cluster.outside
        if missing := {key for key, rows in self.rows.items() if rows} - set(outside.visible):
            raise Broken(f"committed rows that are not visible: {sorted(missing)}")
        if unread := set(self.letters) - set(outside.letters):
            raise Broken(f"dead letters that are not visible: {sorted(unread)}")

    def check_end(self, complete: bool) -> None:
        """The run is over, and everything was shown. `complete`: it ended without a deadline."""
        cluster = self.cluster
        if complete:
            self.check_all_visible()
        if foreign := set(cluster.outside.letters) - set(self.letters):
            raise Broken(f"dead letters of no committed epoch: {sorted(foreign)}")
        for task in cluster.task_names():
            part = self.plan.parts[task.partition("/")[0]]
            if part.kind == "spout":
                self.check_spout(task, complete)
        if cluster.ended == "completed":
            self.check_completed()

    def check_spout(self, task: str, complete: bool) -> None:
        """The acks of a spout whose process lives are those of what is committed; and it has emitted everything."""
        part, emitted = self.plan.parts[task.partition("/")[0]], self.emitted.get(task, [])
        if task in self.cluster.replaced:
            return
        if complete and {f"{task}:{number}" for number in emitted} != self.acked[task]:
            raise Broken(f"{task} has committed {emitted}, and got acks for {sorted(self.acked[task])}")
        if self.cluster.ended == "completed" and not part.rewindable:
            consumed = self.cluster.consumed.get(task, 0)
            if sorted(emitted) != list(range(consumed)):
                raise Broken(f"{task} has consumed {consumed} values, and emitted {sorted(emitted)}")

    def check_completed(self) -> None:
        """A completed topology has left nothing on the way."""
        for task, numbers in self.emitted.items():
            part = self.plan.parts[task.partition("/")[0]]
            if part.rewindable and len(numbers) != part.limit:
                raise Broken(f"completed, and {task} has emitted {len(numbers)} of {part.limit}")
        for task, snapshot in self.last.items():
            left = (
                snapshot.outboxes or snapshot.held or snapshot.parked or snapshot.recorded or snapshot.again
            )
            if left or snapshot.state["timers"]:
                raise Broken(f"completed, and {task} still has {snapshot}")


def id_of(row: Any) -> Id:
    """What identifies a row on its way to a sink."""
    return (row[0], row[1], row[2])


def timer_row(component: str, item: Any) -> tuple[Any, ...]:
    """The row that a timer emits."""
    return (f"t:{component}", *item[2:5], 0, 0)
