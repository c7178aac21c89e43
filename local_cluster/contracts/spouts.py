"""`check_rewindable_spout` rewinds a spout to positions from everywhere, in new objects, and compares what it emits.

Must not know: what the source is.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from random import Random
from typing import Any, Final

from local_cluster.contracts.opened import COMPONENT, Surroundings, context_of, shipped
from local_cluster.contracts.promises import Broken, Calls, difference, try_all
from topology_api import RewindableSpout, SquallError
from topology_api.fields import DEFAULT_STREAM
from topology_api.wording import shown, typed
from worker.epochs.sinks import kept_handle
from worker.tasks.acks_at_once import acks_by_many

#: To how many positions each task is rewound, and how many chains of rewinds there are.
POSITIONS, CHAINS = 12, 5
#: How often a spout is called that should have nothing more to emit, and the seconds of its clock between such calls at least.
IDLE_CALLS, IDLE_SECONDS = 5, 0.1
#: Real seconds after which a spout that emits nothing is given up, and how long it sleeps between idle calls.
PATIENCE, NAP = 10.0, 0.001

#: A stream and the values of a tuple.
Emitted = tuple[str, tuple[Any, ...]]
#: "rewind is not called".
NOT_CALLED: Final = object()


def check_rewindable_spout(
    make: Callable[[], RewindableSpout],
    expected: Sequence[Sequence[Any]] | Mapping[str, Sequence[Sequence[Any]]],
    *,
    parallelism: int = 1,
    lose: Callable[[], object] | None = None,
) -> None:
    """Check that a RewindableSpout keeps its contract: rewound to a position, it emits exactly what comes after it.

    The spout is rewound, in new objects, to positions from before, between and after its emissions, and on from there. All
    positions are kept as in a commit. Time moves on by the pauses that `next_tuple` asks for. Raises ContractBroken with all
    promises that are broken.

    make: returns a new spout; each must read the same source, which does not change.
    expected: the values of all tuples in the source, in any order; for several streams a dict from stream to values.
    parallelism: how many tasks share the source.
    lose: removes what was read from the source. It is called last; after it, a rewind to the middle must raise an error.
    """
    spout = make()
    if not isinstance(spout, RewindableSpout):
        raise SquallError(f"make() returned {typed(spout)}: return a new RewindableSpout")
    source = TestedSource(make, emitted_of(expected), parallelism)
    promises = dict(PROMISES)
    if lose is not None:
        promises["a position that the source has lost is refused"] = lambda trial: lost_positions(trial, lose)
    try_all(type(spout).__name__, promises, lambda: SpoutTrial(source))


def emitted_of(expected: Sequence[Sequence[Any]] | Mapping[str, Sequence[Sequence[Any]]]) -> Counter[Emitted]:
    """Return what must be emitted, counted."""
    streams = expected if isinstance(expected, Mapping) else {DEFAULT_STREAM: expected}
    return Counter((stream, tuple(values)) for stream, rows in streams.items() for values in rows)


class TestedSource:
    """A source, and how its spouts are made."""

    def __init__(
        self, make: Callable[[], RewindableSpout], expected: Counter[Emitted], parallelism: int
    ) -> None:
        self.make, self.expected, self.parallelism = make, expected, parallelism
        #: What each task emits, in order, and its positions between two calls, each with the number of emissions before it.
        self.shares: list[list[Emitted]] | None = None
        self.positions: list[list[tuple[int, Any]]] = []


class EmittedRows:
    """The task that a spout sees."""

    def __init__(self) -> None:
        self.rows: list[Emitted] = []
        self.ids: list[object] = []
        self.finished = False

    def emit(self, values: Sequence[Any], *, message_id: object = None, stream: str = DEFAULT_STREAM) -> None:
        self.rows.append((stream, tuple(values)))
        if message_id is not None:
            self.ids.append(message_id)

    def emit_direct(
        self, task: int, values: Sequence[Any], *, message_id: object = None, stream: str = DEFAULT_STREAM
    ) -> None:
        self.emit(values, message_id=message_id, stream=stream)

    def emit_many(
        self,
        rows: Sequence[Sequence[Any]],
        *,
        message_ids: Sequence[object] | None = None,
        stream: str = DEFAULT_STREAM,
    ) -> None:
        ids = [None] * len(rows) if message_ids is None else message_ids
        for values, message_id in zip(rows, ids, strict=True):
            self.emit(values, message_id=message_id, stream=stream)

    def finish(self) -> None:
        self.finished = True


class SpoutReader:
    """One task in a new process."""

    def __init__(self, trial: SpoutTrial, index: int, position: Any = NOT_CALLED) -> None:
        self.trial, self.index = trial, index
        self.spout = shipped(trial.source.make(), RewindableSpout)
        self.emissions = EmittedRows()
        vars(self.spout)["_squall_task"] = self.emissions
        context = context_of(COMPONENT, index, trial.source.parallelism, trial.around)
        trial.calls.make(f"open (task {index} of a new process)", lambda: self.spout.open(context))
        if position is not NOT_CALLED:
            kept = kept_handle(position)
            self.quiet(f"rewind({shown(position)})", lambda: self.spout.rewind(kept))
        self.emissions.rows.clear()  # what `open` emits is before every position

    def quiet(self, text: str, call: Callable[[], Any]) -> Any:
        """Make a call that must not emit."""
        before = len(self.emissions.rows)
        found = self.trial.calls.make(text, call)
        if len(self.emissions.rows) != before:
            raise Broken(f"{text} emitted a tuple")
        return found

    def position(self) -> Any:
        """Return the position, as it is in a commit."""
        found = self.quiet("position()", self.spout.position)
        self.trial.calls.made.pop()
        try:
            kept = kept_handle(found)
        except Exception as error:
            raise Broken(f"position() returned what msgpack cannot hold, {shown(found)}: {error}") from error
        self.trial.calls.made.append(f"position() is {shown(kept)}")
        return kept

    def step(self) -> int:
        """Call `next_tuple` once; return how many tuples it emitted."""
        if self.emissions.finished:
            return 0
        before = len(self.emissions.rows)
        wait = self.trial.calls.make("next_tuple", self.spout.next_tuple)
        self.trial.calls.made.pop()
        emitted = len(self.emissions.rows) - before
        self.trial.around.now += wait or (0 if emitted else IDLE_SECONDS)
        return emitted

    def read(self, most: int) -> list[Emitted]:
        """Read on until this many tuples have come since the object was made, or nothing comes; return them all."""
        return read_all([self], lambda: len(self.emissions.rows) >= most)

    def close(self) -> None:
        self.trial.calls.make("close", self.spout.close)


def read_all(readers: Sequence[SpoutReader], enough: Callable[[], bool]) -> list[Emitted]:
    """Call tasks in turn until there is enough, all have finished, or nothing comes any more; return what they emitted."""
    end = time.monotonic() + PATIENCE
    while not enough() and not all(each.emissions.finished for each in readers):
        if sum(each.step() for each in readers):
            end = time.monotonic() + PATIENCE
        elif time.monotonic() > end:
            break
        else:
            time.sleep(NAP)
    return [row for each in readers for row in each.emissions.rows]


class SpoutTrial:
    """One try of one promise."""

    def __init__(self, source: TestedSource) -> None:
        self.source = source
        self.calls = Calls()
        self.around = Surroundings()
        self.readers: list[SpoutReader] = []

    def reader(self, index: int, position: Any = NOT_CALLED) -> SpoutReader:
        """Return a task of a new process."""
        reader = SpoutReader(self, index, position)
        self.readers.append(reader)
        return reader

    def shares(self) -> list[list[Emitted]]:
        """Return what each task emits in all, and note its positions."""
        source = self.source
        if source.shares is None:
            readers = [self.reader(index, None) for index in range(source.parallelism)]
            positions = [[(0, each.position())] for each in readers]
            wanted = source.expected.total()

            def enough() -> bool:
                for known, each in zip(positions, readers):
                    if len(each.emissions.rows) > known[-1][0]:
                        known.append((len(each.emissions.rows), each.position()))
                return sum(len(each.emissions.rows) for each in readers) >= wanted

            self.must_be(read_all(readers, enough), source.expected, "from the beginning")
            self.nothing_more(readers)
            for known, each in zip(positions, readers):
                known.append((len(each.emissions.rows), each.position()))
            source.shares = [each.emissions.rows for each in readers]
            source.positions = positions
        return source.shares

    def must_be(self, emitted: Sequence[Emitted], expected: Mapping[Emitted, int], where: str) -> None:
        """Raise Broken unless exactly these tuples were emitted."""
        found = {
            row if row[0] != DEFAULT_STREAM else row[1]: times for row, times in Counter(emitted).items()
        }
        wanted = {row if row[0] != DEFAULT_STREAM else row[1]: times for row, times in expected.items()}
        if (problem := difference(found, wanted)) is not None:
            raise Broken(f"read {where}, it emitted {problem}")

    def nothing_more(self, readers: Sequence[SpoutReader]) -> None:
        """Raise Broken if more comes."""
        for _ in range(IDLE_CALLS):
            for each in readers:
                if each.step():
                    raise Broken(f"it emitted {shown(each.emissions.rows[-1][1])} after all was emitted")

    def must_emit(self, reader: SpoutReader, expected: Sequence[Emitted], where: str) -> None:
        """Read what is left, and compare."""
        self.must_be(reader.read(len(expected)), Counter(expected), where)
        self.nothing_more([reader])

    def chosen(self, index: int) -> list[tuple[int, Any]]:
        """Return positions of a task: the first, the last, and some in between."""
        self.shares()
        known = self.source.positions[index]
        step = max(1, len(known) // POSITIONS)
        return [*known[:-1:step], known[-1]]

    def end(self) -> None:
        """Close all tasks."""
        for reader in self.readers:
            reader.close()
        self.around.end()


def reads_all(trial: SpoutTrial) -> None:
    readers = [trial.reader(index) for index in range(trial.source.parallelism)]
    wanted = trial.source.expected.total()
    emitted = read_all(readers, lambda: sum(len(each.emissions.rows) for each in readers) >= wanted)
    trial.must_be(emitted, trial.source.expected, "without a call of rewind")
    trial.nothing_more(readers)


def rewinds_everywhere(trial: SpoutTrial) -> None:
    for index, share in enumerate(trial.shares()):
        for count, position in trial.chosen(index):
            for _ in range(2):
                text = f"from its position after {count} tuple(s)"
                trial.must_emit(trial.reader(index, position), share[count:], text)


def a_position_is_itself(trial: SpoutTrial) -> None:
    for index, share in enumerate(trial.shares()):
        for count, position in trial.chosen(index):
            reader = trial.reader(index, position)
            again, twice = reader.position(), reader.position()
            for each in (again, twice):
                text = f"from the position that was asked for right after a rewind behind {count} tuple(s)"
                trial.must_emit(trial.reader(index, each), share[count:], text)


def rewinds_in_chains(trial: SpoutTrial) -> None:
    for index, share in enumerate(trial.shares()):
        for seed in range(CHAINS):
            draw, position = Random(seed), None
            emitted: list[Emitted] = []
            while len(emitted) < len(share):
                reader = trial.reader(index, position)
                left = len(share) - len(emitted)
                got = list(reader.read(min(draw.randint(1, max(1, len(share) // 3)), left)))
                if not got:
                    break
                emitted += got
                position = reader.position()
                reader.read(min(len(got) + draw.randint(0, 5), left))  # what is lost with its process
            trial.must_be(
                emitted, Counter(share), "in a chain of rewinds, each from where the one before had come"
            )


def positions_are_values(trial: SpoutTrial) -> None:
    for index, share in enumerate(trial.shares()):
        reader = trial.reader(index, None)
        seen = []
        for count in range(0, len(share) + 1, max(1, len(share) // 5)):
            reader.read(count)
            found = reader.spout.position()
            seen.append((found, kept_handle(found)))
        for found, kept in seen:
            if kept_handle(found) != kept:
                raise Broken(
                    f"position() returned {shown(kept)}, which became {shown(found)}: return a new value"
                )


def acks_emit_nothing(trial: SpoutTrial) -> None:
    for index, share in enumerate(trial.shares()):
        reader = trial.reader(index, None)
        reader.read(len(share))
        for message_id in list(reader.emissions.ids):
            reader.quiet(f"ack({shown(message_id)})", partial(reader.spout.ack, message_id))
        reader.emissions.ids.clear()
        trial.must_emit(trial.reader(index, reader.position()), [], "from the position after all acks")
        other = trial.reader(index, None)
        if (ack_many := acks_by_many(other.spout)) is None:
            continue
        other.read(len(share))
        ids = list(other.emissions.ids)
        if ids:  # it is not called with none
            other.quiet(f"ack_many({shown(ids)})", partial(ack_many, ids))
        trial.must_emit(trial.reader(index, other.position()), [], "from the position after ack_many")


def lost_positions(trial: SpoutTrial, lose: Callable[[], object]) -> None:
    shares = trial.shares()
    index = max(range(len(shares)), key=lambda index: len(shares[index]))
    count, position = trial.source.positions[index][len(trial.source.positions[index]) // 2]
    lose()
    why = f"the source had lost what is behind {count} tuple(s), which are gone without a word"
    trial.calls.refused(f"open, or rewind({shown(position)})", lambda: trial.reader(index, position), why)


PROMISES: Mapping[str, Callable[[SpoutTrial], None]] = {
    "without a rewind it starts at the beginning": reads_all,
    "a rewind repeats what comes after the position": rewinds_everywhere,
    "a rewind leads to the position it was given": a_position_is_itself,
    "rewinds may follow each other": rewinds_in_chains,
    "a position does not change later": positions_are_values,
    "acks emit nothing": acks_emit_nothing,
}
