"""A simulated task: the user code, inbox and outboxes around a `Participant`, as a worker will have them.

A row is (kind, spout task, number, key, rounds, count): kind "e" for what a spout emitted, "t:NAME" for what a timer of the
component NAME emitted for such a row. It passes each component once, so each is found in exactly one place.
Must not know: how messages travel, who checks.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

import msgspec

from tests.epochs.epoch_cycles import left
from tests.epochs.epoch_rescale import GROUPS, NewNumbers
from tests.epochs.epoch_state import Row, SimulatedKeys, keys_in
from tests.epochs.epoch_stores import Broken
from tests.epochs.epoch_topologies import Part
from topology_api import Replay
from worker.epochs.alignment import Alignment
from worker.epochs.cycle_bound import CycleBound
from worker.epochs.delivery import ReceivingSide, SendingSide
from worker.epochs.emissions import Emissions
from worker.epochs.in_memory import InMemory
from worker.epochs.messages import Barrier, EndMark, LinkItem, Rows, SnapshotMarker
from worker.epochs.parking import Parked, Parking
from worker.epochs.participant import Participant, TaskEffect
from worker.epochs.records import SnapshotFile
from worker.epochs.sinks import heir_of
from worker.epochs.snapshot_files import BadSnapshot, SnapshotData, TaskSnapshot, read_chain
from worker.routing.key_groups import GroupRange, group_of, task_of
from worker.state.history import StateHistory

if TYPE_CHECKING:
    from tests.epochs.epoch_cluster import Cluster, Worker

REPLAY = Replay(max_attempts=3, first_delay=0.004, max_delay=0.01)
KEYS = 5
HIGH = 8
FRAME = 3
NO_LIMIT = 1_000_000


class SimulatedTask:
    """One process of one task."""

    def __init__(self, cluster: Cluster, worker: Worker, part: Part, index: int, incarnation: int) -> None:
        self.cluster, self.worker, self.part, self.index = cluster, worker, part, index
        self.name = f"{part.name}/{index}"
        self.incarnation = incarnation
        self.line = cluster.line
        assert worker.placement is not None
        self.counts = worker.placement.counts
        self.inputs = self.sources()
        self.closing = [f"{part.name}/{i}" for i in range(part.parallelism)] if part.kind == "cycle" else []
        self.history = StateHistory()
        self.participant = Participant(
            self.name,
            incarnation,
            Alignment(self.inputs + self.closing, self.closing),
            Parking(self.name, 4),
            Emissions(part.rewindable),
            self.choose_files,
            InMemory(self.history, part.name),
        )
        self.numbers = NewNumbers(self.name, part.kind, part.is_sink)
        self.closed = False
        self.running = False
        self.scheduled = False
        self.waiting: list[tuple[str, int, int, LinkItem]] = []
        self.consumed = 0
        self.clear()

    def clear(self) -> None:
        """Begin with nothing."""
        self.running = False
        self.inbox: deque[Any] = deque()
        self.outboxes: dict[str, deque[Row]] = {}
        self.sending: dict[str, SendingSide] = {}
        self.receiving: dict[str, ReceivingSide] = {}
        self.keys = SimulatedKeys()
        self.bound = CycleBound(self.cluster.settings.most_on_cycle)
        self.timers: list[tuple[float, Row]] = []
        self.emitted: list[int] = []
        self.gathered: list[Row] = []
        self.ended: set[str] = set()
        self.ends_sent: set[str] = set()
        self.end_called = False
        self.open_rows: list[Row] = []
        self.stopped = False

    def sources(self) -> list[str]:
        """The tasks that this one reads, besides itself."""
        return [f"{source}/{i}" for source in self.part.sources for i in range(self.counts[source])]

    # Snapshots.

    def choose_files(self, files: dict[str, SnapshotFile]) -> dict[str, SnapshotFile]:
        """The files with which this task begins."""
        assert self.worker.placement is not None
        self.counts = self.participant.in_memory.numbers = self.worker.placement.counts
        self.numbers.count = self.counts[self.part.name]
        if self.inputs != self.sources():
            self.inputs = self.sources()
            self.participant.alignment = Alignment(self.inputs + self.closing, self.closing)
        return self.numbers.choose_files(files)

    def content(self) -> TaskSnapshot:
        """What this task's part of a snapshot is."""
        state = {
            "keys": {},
            "timers": [(due - self.line.now, row) for due, row in self.timers],
            "emitted": self.emitted,
            "end_called": self.end_called,
            "counts": self.counts,
        }
        return TaskSnapshot(
            "", 0, 0, 0,
            state=state,
            outboxes=[(target, "default", list(rows)) for target, rows in self.outboxes.items() if rows],
            held=list(self.gathered),
            position=len(self.emitted),
            ended=sorted(self.ended),
            ends_sent=sorted(self.ends_sent),
        )  # fmt: skip

    def leave(self) -> None:
        """A rewind has come: the object that takes this one's place may take its state."""
        self.history.leave([self.keys], {})  # type: ignore[list-item]
        self.keys = SimulatedKeys()

    def load(self, snapshot: TaskSnapshot | None, in_memory: bool) -> None:
        """Return to a snapshot. The spout of a living task that cannot rewind goes on."""
        self.clear()
        if snapshot is None:
            self.cluster.links.accept_waiting(self)
            return
        state = snapshot.state
        if in_memory:
            self.history.return_to(snapshot.epoch, [self.keys])  # type: ignore[list-item]
            self.check_read(snapshot)
        else:
            self.keys.cells = keys_in(snapshot)
            self.history.begin(snapshot.epoch, 0.0)
        self.timers = [(self.line.now + left, tuple(row)) for left, row in state["timers"]]
        self.emitted = list(state["emitted"])
        self.end_called = state["end_called"]
        self.gathered = [tuple(row) for row in snapshot.held]
        self.ended = set(snapshot.ended)
        changed = {name for name, count in state["counts"].items() if count != self.counts[name]}
        self.ends_sent = {each for each in snapshot.ends_sent if each.partition("/")[0] not in changed}
        for target, _, rows in snapshot.outboxes:
            for row in rows:
                self.outboxes.setdefault(self.moved(target, row), deque()).append(tuple(row))
        for _, rows in snapshot.recorded:  # they belong to no window of credit
            self.inbox.append(("", Rows(tuple(tuple(row) for row in rows))))
        self.cluster.links.accept_waiting(self)

    def moved(self, target: str, row: Row) -> str:
        """The task that gets a row now that was on its way to another one."""
        component, _, number = target.partition("/")
        count = self.counts[component]
        if self.cluster.plan.parts[component].kind == "count":
            return f"{component}/{task_of(row[3], count, GROUPS)}"
        return f"{component}/{heir_of(int(number), count)}"

    def merge(self, snapshots: list[TaskSnapshot]) -> TaskSnapshot:
        """One snapshot of those that this task begins with. Inputs that have other tasks now end once more."""
        made = self.numbers.merge(snapshots)
        counts = made.state["counts"]
        made.ended = [
            each
            for each in made.ended
            if counts[each.partition("/")[0]] == self.counts[each.partition("/")[0]]
        ]
        return made

    def check_read(self, held: TaskSnapshot) -> None:
        """A task that has returned in memory is as one that has read its snapshot."""
        files = self.participant.files
        wanted = self.numbers.wanted(files)
        try:
            found = [
                read_chain(file, self.cluster.data_of, wanted, wanted is not None) for file in files.values()
            ]
        except BadSnapshot:  # others went on while this worker was frozen, and what it returns to is swept
            return
        read = self.merge(found)
        if self.keys.cells != (keys := keys_in(read)):
            raise Broken(f"{self.name} has returned to {self.keys.cells} in memory, and {keys} is committed")
        read.parts = []
        if msgspec.to_builtins(held) != msgspec.to_builtins(read):
            raise Broken(f"{self.name} has returned to {held} in memory, and {read} is committed")

    # Running.

    def wake(self) -> None:
        """Run soon."""
        if self.running and not self.scheduled and not self.closed:
            self.scheduled = True
            self.line.soon(0.002, self.worker, self.step)

    def step(self) -> None:
        """Do a little of what there is to do."""
        self.scheduled = False
        if not self.running or self.closed:
            return
        now, parking = self.line.now, self.participant.parking
        if (parked := parking.due(now)) is not None:
            self.retry(parked)
        elif self.timers and self.timers[0][0] <= now:
            self.fire(self.timers.pop(0)[1])
        elif self.inbox:
            self.process()
        elif not self.inputs:
            self.next_tuple()
        if self.worker.frozen:
            self.wake()  # frozen in the middle of this: the rest comes after the thaw
            return
        self.flush()
        self.end_if_done()
        self.sleep()

    def sleep(self) -> None:
        """Wake up when there is something to do."""
        if (self.inbox and (not self.blocked() or not self.is_rows(self.inbox[0]))) or (
            not self.inputs and not self.stopped and not self.finished() and not self.blocked()
        ):
            self.wake()
        else:
            dues = [due for due, _ in self.timers[:1]]
            if (due := self.participant.parking.next_due()) is not None:
                dues.append(due)
            if dues:
                self.line.after(max(0.0, min(dues) - self.line.now) + 1e-6, self.worker, self.wake)

    def is_rows(self, item: Any) -> bool:
        """Whether an item of the inbox makes the task emit."""
        return type(item) is tuple and type(item[1]) is Rows

    def blocked(self) -> bool:
        """Whether the task takes no input."""
        return self.participant.parking.full or any(
            len(rows) >= HIGH and not self.is_closing(target) for target, rows in self.outboxes.items()
        )

    def is_closing(self, target: str) -> bool:
        """Whether the link to a target closes a cycle."""
        return target.partition("/")[0] == self.part.name

    def process(self) -> None:
        """Take one item from the inbox."""
        item = self.inbox[0]
        if type(item) is SnapshotMarker:
            self.inbox.popleft()
            self.end_epoch(item)
            return
        source, content = item
        if type(content) is EndMark:
            self.inbox.popleft()
            self.ended.add(source)
        elif not self.blocked():
            self.inbox.popleft()
            if source in self.ended or self.end_called:
                raise Broken(f"{self.name} gets rows of {source} behind an end mark")
            for row in content.rows:
                if not self.execute(row):
                    self.participant.parking.park(row, "raised", REPLAY, self.line.now)
            self.executed(source)
            left(self, source, len(content.rows))

    def executed(self, source: str) -> None:
        """Give credit back."""
        side = self.receiving.get(source)
        if side is not None:
            side.executed += 1
            self.cluster.links.send_grant(self, source, side.upto, side.executed)

    def raises(self, row: Row) -> bool:
        """Whether a call for this row raises."""
        part = self.part
        return bool(part.poison and row[2] % part.poison == 2) or (
            part.flaky > 0 and self.line.draw() < part.flaky
        )

    def execute(self, row: Row) -> bool:
        """A call of user code for a row; return whether it returned."""
        kind = self.part.kind
        if row[0][0] == "T":  # a timer that is tried again
            return self.fire_again(row)
        if self.raises(row):
            return False
        if kind == "count":
            count = self.keys.append(row[3], (row[0], row[1], row[2]))
            if row[0] == "e" and row[2] % 3 == 0:
                self.timers.append((self.line.now + 0.01 + 0.03 * self.line.draw(), row))
                self.timers.sort()
            self.emit((*row[:5], count))
        elif kind == "batch":
            self.gathered.append(row)
            if len(self.gathered) >= 4:
                self.hand_over()
        elif kind == "cycle" and row[4] < 2 and row[2] % 3 == 1:
            target = f"{self.part.name}/{int(self.line.draw() * self.part.parallelism)}"
            self.outboxes.setdefault(target, deque()).append((*row[:4], row[4] + 1, row[5]))
        elif self.part.is_sink:
            self.open_rows.append(row)
        else:
            self.emit(row)
        return True

    def hand_over(self) -> None:
        """A batch bolt executes what it has gathered."""
        rows, self.gathered = self.gathered, []
        for row in rows:
            self.emit(row)

    def fire(self, row: Row) -> None:
        """A timer is due."""
        if not self.fire_again(("T", *row)):
            self.participant.parking.park(("T", *row), "raised", REPLAY, self.line.now)

    def fire_again(self, item: Row) -> bool:
        """Call `on_timer`; return whether it returned."""
        row = item[1:]
        if self.raises(row):
            return False
        self.emit((f"t:{self.part.name}", *row[1:4], 0, 0))
        return True

    def retry(self, parked: Parked) -> None:
        """Try a parked tuple or timer again."""
        item = tuple(parked.item)
        if not self.execute(item):
            self.participant.parking.failed(parked, "raised", REPLAY, self.line.now)

    def emit(self, row: Row) -> None:
        """Put a row into the outboxes of all readers."""
        parts = self.cluster.plan.parts
        for reader in self.part.readers:
            count = self.counts[reader]
            keyed = parts[reader].kind == "count"
            index = task_of(row[3], count, GROUPS) if keyed else int(self.line.draw() * count)
            self.outboxes.setdefault(f"{reader}/{index}", deque()).append(row)

    def next_tuple(self) -> None:
        """A spout's call."""
        emissions = self.participant.emissions
        if self.stopped or self.blocked() or self.participant.held:
            return
        if emissions.uncommitted >= self.cluster.settings.most_uncommitted:
            self.cluster.run_effects(self, self.participant.needs_commit())
            return
        again = emissions.next_again()
        if again is not None:
            number = int(again[1])
        elif self.source_ended():
            return
        elif self.part.rewindable:
            number = len(self.emitted)
        else:
            number = self.cluster.consume(self.name)
        emissions.add(f"{self.name}:{number}", number)
        self.emitted.append(number)
        self.emit(("e", self.name, number, number % KEYS, 0, 0))

    def source_ended(self) -> bool:
        """Whether a spout's source has nothing more."""
        limit = self.part.limit
        if limit is None:
            return False
        taken = len(self.emitted) if self.part.rewindable else self.cluster.consumed.get(self.name, 0)
        return taken >= limit

    def finished(self) -> bool:
        """Whether a spout has nothing more to emit."""
        return self.source_ended() and not self.participant.emissions.again

    # Links.

    def side(self, target: str) -> SendingSide:
        """The sending side of a pair."""
        side = self.sending.get(target)
        if side is None:
            side = self.sending[target] = SendingSide(
                NO_LIMIT if self.is_closing(target) else self.cluster.window
            )
        return side

    def flush(self) -> None:
        """Send what there is credit for."""
        for target, rows in self.outboxes.items():
            if not rows:
                continue
            side = self.side(target)
            while rows and side.room:
                frame = tuple(rows.popleft() for _ in range(min(FRAME, len(rows))))
                self.cluster.links.send_frame(self, target, *side.send(Rows(frame)))

    def targets(self) -> list[str]:
        """All tasks that read from this one."""
        found = [f"{reader}/{i}" for reader in self.part.readers for i in range(self.counts[reader])]
        return found + self.closing

    def send_barrier(self, barrier: Barrier) -> None:
        """Send a barrier ahead of the outboxes."""
        for target in self.targets():
            if target not in self.ends_sent:
                self.cluster.links.send_frame(self, target, *self.side(target).send(barrier))

    # Ends.

    def idle(self) -> bool:
        """Whether nothing is left to do with what has come."""
        return not (self.inbox or self.gathered or self.timers or self.participant.parking.parked)

    def end_if_done(self) -> None:
        """Call `end_of_input`, and send end marks, once all inputs have ended."""
        if not self.end_called:
            if not self.ended >= set(self.inputs) or not (self.inputs or self.finished()):
                return
            if self.gathered and not self.inbox and not self.participant.parking.parked:
                self.hand_over()
                self.flush()
            if not self.idle():
                return
            if self.closing and not self.ended >= set(self.closing):
                self.cluster.end_cycle_if_quiet(self.part)
                return
            self.end_called = True
        for target in self.targets():
            if target not in self.ends_sent and not self.is_closing(target) and not self.outboxes.get(target):
                self.ends_sent.add(target)
                self.cluster.links.send_frame(self, target, *self.side(target).send(EndMark()))

    def done(self) -> bool:
        """Whether nothing more will come from this task."""
        sent = all(target in self.ends_sent for target in self.targets() if not self.is_closing(target))
        return self.end_called and sent and self.idle() and not any(self.outboxes.values())

    def end_cycle(self) -> None:
        """All rows of the cycle have left it."""
        self.ended |= set(self.closing)
        self.cluster.run_effects(self, self.participant.into_inbox(self.participant.alignment.end_closing()))
        self.wake()

    def take_parts(self, epoch: int) -> list[tuple[bytes, GroupRange | None]]:
        """Take the keys that have changed, or all of them, as they are now, in the order of their groups backwards."""
        chain, keys = self.participant.chain, self.keys
        whole = not chain.links or self.line.draw() < 0.2
        chain.begin(whole)
        taken = keys.cells.keys() if whole else keys.touched
        self.history.mark(epoch, 0.0, [keys.touched])
        keys.touched = {}
        shares: dict[int, dict[int, list[Row]]] = {}
        for key in sorted(taken):
            shares.setdefault(group_of(key, GROUPS) // 2, {})[key] = keys.cells[key]
        return [
            (msgspec.msgpack.encode({"keys": share}), GroupRange(2 * pair, min(2 * pair + 2, GROUPS), GROUPS))
            for pair, share in sorted(shares.items(), reverse=True)
        ]

    def encode(self, data: SnapshotData, parts: list[tuple[bytes, GroupRange | None]]) -> None:
        """Encode one part; others follow."""
        data.add(*parts.pop())
        if parts:
            self.line.soon(0.003, self.worker, self.encode, data, parts)
        elif not self.closed:
            data.whole = True
            self.cluster.run_effects(self, self.participant.encoded())

    def end_epoch(self, marker: SnapshotMarker) -> None:
        """Snapshot at a marker."""
        self.stopped = self.stopped or marker.last
        rows, self.open_rows = self.open_rows, []
        staged = self.part.kind == "staged" and bool(rows)
        participant = self.participant
        parts, data = self.take_parts(marker.epoch), SnapshotData(self.numbers.own)
        data.whole, data.cells = not parts, len(parts)
        effects: list[TaskEffect] = participant.end_epoch(
            marker,
            self.content(),
            self.done(),
            rows if self.part.kind == "token" else None,
            staged,
            self.line.now,
            data,
        )
        if parts:
            self.line.soon(0.003, self.worker, self.encode, data, parts)
        if staged:
            self.cluster.prepare(self, participant.rewind, marker.epoch, rows)
        self.cluster.run_effects(self, effects)
