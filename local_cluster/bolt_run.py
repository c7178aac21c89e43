"""`run_bolt` runs one bolt over inputs from a test, without a topology.

The bolt runs in a real `worker.Worker`, in the kind of task that the bolt's class needs. The test acts as a second worker,
which sends the input as frames. Time, threads and the asyncio loop are simulated. Must not know: the store, the local cluster.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from local_cluster.blockers import blockers, stuck_text
from local_cluster.driver import SimulatedDriver
from local_cluster.recording import Recording
from local_cluster.scripted import Pause, Row, ScriptedSpout, Tick, row_problem
from local_cluster.stamps import new_stamp
from nimbus.placement.tasks import number_tasks
from squall.reports.error_reports import ErrorReport
from squall.settings import merged, overrides_of
from squall.transport.frames import Batch
from topology_api import (
    Bolt,
    Failure,
    Fields,
    Hook,
    InvalidTopology,
    StatefulBolt,
    TopologyBuilder,
    TopologyFailed,
    Tuple,
)
from topology_api.wording import listed, typed
from worker.loop.plan import WorkerPlan
from worker.loop.timers import tick_interval
from worker.loop.worker import Worker
from worker.state import contents
from worker.state.keys import original
from worker.state.table import StateHandle
from worker.tasks.simulated_async import SimulatedAsync
from worker.tasks.stateful_bolt import StatefulBoltTask

#: The names of the topology, the bolt, and the source of its input.
TOPOLOGY, BOLT, SOURCE = "run_bolt", "bolt", "inputs"
#: How many inputs are sent in one frame.
FRAME = 128
#: Real seconds after which a run fails.
TIMEOUT = 60.0

Item = Any


class InputRecording(Hook):
    """Records which inputs were acked or failed. Tuples are executed in the order of the inputs, so a tuple's number identifies
    its input."""

    def __init__(self, items: list[Item]) -> None:
        self.items = items
        self.started: list[Tuple] = []  # tuples are kept, so that their id() is not used again
        self.numbers: dict[int, int] = {}
        self.acks: list[int] = []
        self.failures: list[tuple[int, Failure]] = []

    def executing(self, tup: Tuple) -> None:
        self.numbers[id(tup)] = len(self.started)
        self.started.append(tup)

    def acked(self, tup: Tuple) -> None:
        self.acks.append(self.numbers[id(tup)])

    def failed(self, tup: Tuple, failure: Failure) -> None:
        self.failures.append((self.numbers[id(tup)], replace(failure, attempts=1)))


class BoltRun:
    """The record of a bolt's run. errors: reports of the errors that the bolt's code raised, the oldest first."""

    def __init__(
        self,
        recording: Recording,
        inputs: InputRecording,
        errors: Sequence[ErrorReport],
        states: Mapping[str, StateHandle],
    ) -> None:
        self._recording = recording
        self._inputs = inputs
        self._states = states
        self.errors = tuple(errors)

    def keys(self) -> list[Any]:
        """Return the keys that have state at the end, in the order in which they got it."""
        return [original(key) for key in contents.keys_of(self._states)]

    def state(self, key: Any) -> dict[str, Any]:
        """Return the state of a key at the end: state -> value. A key of several fields is a tuple."""
        return contents.read(self._states, key)

    def emitted(self, stream: str = "default") -> list[Row]:
        """Return the values that the bolt emitted on a stream, in order."""
        return self._recording.emitted(BOLT, stream)

    def acked(self) -> list[Item]:
        """Return the inputs that were acked, unchanged, in the order of the acks."""
        return [self._inputs.items[number] for number in self._inputs.acks]

    def failed(self) -> list[tuple[Item, Failure]]:
        """Return the inputs that failed, unchanged, each with its Failure, in the order of the failures."""
        return [(self._inputs.items[number], failure) for number, failure in self._inputs.failures]

    def pending(self) -> list[Item]:
        """Return the inputs that the bolt neither acked nor failed, in the order in which they were given."""
        ended = {*self._inputs.acks, *(number for number, _ in self._inputs.failures)}
        return [given for number, given in enumerate(self._inputs.items) if number not in ended]

    def __repr__(self) -> str:
        streams = self._recording.specs[BOLT].outputs
        emitted = ", ".join(f"{len(self.emitted(stream))} emitted on {stream!r}" for stream in streams)
        counts = f"{len(self.acked())} acked, {len(self.failed())} failed, {len(self.pending())} pending"
        lines = [f"<BoltRun: {emitted or 'no output streams'}; {counts}"]
        if self.errors:
            lines.append(f"last error: {self.errors[-1].render()}")
        return "\n  ".join(lines) + ">"


def run_bolt(
    bolt: Bolt,
    inputs: Iterable[Any],
    conf: Mapping[str, object] | None = None,
    source_fields: Fields | str | Sequence[str] | None = None,
    keys: Mapping[Any, Mapping[str, Any]] | None = None,
) -> BoltRun:
    """Run one bolt: call `prepare`, pass the inputs, call `end_of_input` and `cleanup`. Return the record of the run.

    inputs: value tuples (or lists); dicts from field to value; TICK, which lets the bolt's tick interval pass, if it has one,
    and then calls `tick` (nothing else calls `tick`); Pause(seconds), which lets time pass. Apart from TICK and Pause, time
    passes only while an asynchronous bolt sleeps; at all other times `context.now()` does not change.
    source_fields: the names of the values. Without source_fields, dicts name their own fields, and the values of tuples are
    named "0", "1", ... (`tup[0]` works, too).
    conf: configuration of the bolt.
    keys: the state of a StatefulBolt before the first input: key -> state -> value. A key of several fields is a tuple.

    A failed input is not tried again. The bolt is pickled and unpickled, as in every cluster. InvalidTopology, InvalidConfig:
    all problems of bolt, inputs and conf. TopologyFailed: `prepare` raised, or, with `topology.on.error: crash`, any call
    raised. TimeoutError: calls of an asynchronous bolt never end. MutatedValue: the bolt changed a value that it got or had
    emitted.
    """
    if isinstance(inputs, (str, bytes, Mapping)) or not hasattr(inputs, "__iter__"):
        raise InvalidTopology([f"inputs is {typed(inputs)}: give a list of value tuples"], TOPOLOGY)
    given = list(inputs)
    fields, rows = _rows_of(given, None if source_fields is None else Fields(source_fields))
    builder = TopologyBuilder(TOPOLOGY)
    builder.set_spout(SOURCE, ScriptedSpout(fields, ()))  # it never runs: the test feeds the bolt
    declarer = builder.set_bolt(BOLT, bolt)
    if isinstance(bolt, StatefulBolt):
        declarer.fields_grouping(SOURCE, bolt.key)
    else:
        declarer.shuffle_grouping(SOURCE)
    topology = builder.build()
    recording = Recording(topology)
    input_recording = InputRecording([item for item in given if not isinstance(item, (Tick, Pause))])
    whole, components = merged(topology, overrides=overrides_of(conf), local=True)
    tasks = number_tasks(topology)
    with tempfile.TemporaryDirectory(prefix="squall-run-bolt-") as directory:
        plan = WorkerPlan(
            worker=BOLT,
            topology=topology,
            tasks=tasks,
            worker_of={task: component for task, component, _ in tasks},
            conf=whole,
            component_confs=components,
            directory=directory,
            observers=(recording, input_recording),
            topology_id=f"{topology.name}-1-{new_stamp()}",
        )
        return _Run(plan, recording, input_recording, keys or {}).run(rows)


def _rows_of(given: list[Item], fields: Fields | None) -> tuple[Fields, list[Row | Tick | Pause]]:
    """Return the fields of the inputs, and the inputs as rows; raise InvalidTopology with all problems."""
    values = [item for item in given if not isinstance(item, (Tick, Pause))]
    if fields is None:
        first = values[0] if values else ()
        width = len(first) if isinstance(first, (tuple, list)) else 0
        fields = Fields(*(first if isinstance(first, Mapping) else map(str, range(width))))
    problems: list[str] = []
    rows: list[Row | Tick | Pause] = []
    for position, item in enumerate(given):
        if isinstance(item, (Tick, Pause)):
            rows.append(item)
            continue
        if isinstance(item, Mapping):
            problem = None
            if set(item) != set(fields):
                problem = f"has the fields {listed(item)}, not {listed(fields)}"
            row = () if problem else tuple(item[name] for name in fields)
        else:
            problem = row_problem(item, fields)
            row = () if problem else tuple(item)
        if problem is not None:
            problems.append(f"inputs, position {position}, {problem}")
        rows.append(row)
    if problems:
        raise InvalidTopology(problems, TOPOLOGY)
    return fields, rows


class _Run:
    """One run: a worker with one bolt task, run by a driver. The test acts as a second worker, which sends the input."""

    def __init__(
        self,
        plan: WorkerPlan,
        recording: Recording,
        input_recording: InputRecording,
        keys: Mapping[Any, Mapping[str, Any]],
    ) -> None:
        self.keys = keys
        self.recording = recording
        self.input_recording = input_recording
        self.driver = SimulatedDriver()
        self.driver.start(self)
        self.clock = self.driver.clock
        self.deadline = time.monotonic() + TIMEOUT
        of = {component: task for task, component, _ in plan.tasks}
        self.target = of[BOLT]
        self.source = plan.source(SOURCE, of[SOURCE], "default")
        calls = SimulatedAsync(self.clock.now)
        self.worker = Worker(plan, self.clock, lambda *frame: None, calls, lambda: None, inline=True)
        self.frames = 0

    def run(self, items: list[Row | Tick | Pause]) -> BoltRun:
        """Feed the bolt, end its input, and always clean up."""
        worker = self.worker
        try:
            worker.start()
            worker.timers.ticks.clear()  # only TICK causes ticks, and there are no trees to report on
            worker.timers.next_report = float("inf")
            self.driver.settle()
            self.load()
            self.feed(items)
            end = Batch(self.source, self.target, [], [], [])
            end.ended = True
            worker.deliver(end)
            if not self.driver.run_until(lambda: worker.ended):
                raise TimeoutError(self.text("and nothing can happen any more"))
        finally:
            worker.stop()
        self.recording.mutations.end()
        bolt = worker.tasks[self.target]
        states = bolt.states if isinstance(bolt, StatefulBoltTask) else {}
        return BoltRun(self.recording, self.input_recording, tuple(worker.errors[BOLT].kept), states)

    def load(self) -> None:
        """Give the bolt its state."""
        bolt = self.worker.tasks[self.target]
        if self.keys and not isinstance(bolt, StatefulBoltTask):
            raise InvalidTopology(
                [f"keys is given, but {type(bolt.instance).__name__} is no StatefulBolt"], TOPOLOGY
            )
        for key, values in self.keys.items():
            assert isinstance(bolt, StatefulBoltTask)
            contents.write(bolt.states, key, values)

    def feed(self, items: list[Row | Tick | Pause]) -> None:
        """Deliver inputs, ticks and pauses in order."""
        rows: list[Row] = []
        for item in items:
            if isinstance(item, tuple):
                rows.append(item)
                if len(rows) < FRAME:
                    continue
            self.deliver(rows)
            rows = []
            if isinstance(item, Tick):
                self.tick()
            elif isinstance(item, Pause):
                self.driver.advance(item.seconds)
        self.deliver(rows)

    def deliver(self, rows: list[Row]) -> None:
        """Deliver tuples that are in no tree, and let the bolt process them at this instant."""
        if rows:
            self.frames += 1
            batch = Batch(self.source, self.target, rows, [0] * len(rows), [0] * len(rows))
            batch.sender = SOURCE
            batch.frame = self.frames
            self.worker.deliver(batch)
            self.driver.settle()

    def tick(self) -> None:
        """Let the tick interval pass, if there is one, and then call `tick`."""
        bolt = self.worker.bolts[0]
        interval = tick_interval(bolt)
        if interval:
            self.driver.advance(interval)
        bolt.tick_due = True
        self.worker.queue(bolt)
        self.driver.settle()

    def round(self) -> bool:
        """Run the worker once; return whether it did something. Raises the error that ends the run."""
        worker = self.worker
        busy = worker.step()
        self.recording.mutations.raise_found()
        if worker.crash is not None:
            raise TopologyFailed(TOPOLOGY, worker.crash.render())
        if time.monotonic() >= self.deadline:
            raise TimeoutError(self.text(f"within {TIMEOUT:g} s of real time"))
        return busy

    def next_time(self) -> float | None:
        """Return the time at which a round is due even if nothing arrives."""
        return self.worker.next_time()

    def text(self, when: str) -> str:
        """Return why the bolt is not done."""
        head = f"the bolt is not done {when}, after {self.clock.now():g} s of simulated time:"
        return stuck_text(head, blockers([self.worker]), self.worker.errors[BOLT].kept)
