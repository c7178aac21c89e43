"""Transcripts of simulated clusters (`tests/simulation`): each write to the store, start, order, report, signal and end.

For those with tuples, also the messages between workers, and the ledgers of their tasks.
Must not know: which seeds run, hashes.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from squall.cluster.store import Guard
from tests.frozen.transcript_facts import line_of, of_flags, of_message, of_orders, of_value
from tests.simulation import run as runs
from tests.simulation import tuples
from tests.simulation.checks import Watcher
from tests.simulation.idle import IdleProgram
from tests.simulation.machines import VirtualProcess
from tests.simulation.timeline import Actor
from tests.simulation.tuples import BOOKS, TupleProgram
from tests.simulation.world import World
from tests.worker.lossy_carrier import LossyCarrier

#: The tuples in runs with tuples.
FIELDS = ("number", "key")


class Recorder:
    """The lines so far of the current run."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.now: Callable[[], float] = lambda: 0.0

    def note(self, what: str, *facts: object) -> None:
        """Write a line."""
        self.lines.append(line_of(self.now(), what, *facts))


def transcript(seed: int) -> list[str]:
    """Everything that happens in the cluster of a seed."""
    recorder = Recorder()
    directory = Path(tempfile.mkdtemp(prefix="squall-transcript-", dir=runs.place()))
    try:
        with recorded(recorder), runs.quiet():
            outcome = runs.run(seed, directory / "run")
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    recorder.note("ends", outcome.problem is None, outcome.events)
    return recorder.lines


@contextmanager
def recorded(recorder: Recorder) -> Iterator[None]:
    """Everything that runs in this block is written down."""
    with ExitStack() as stack:
        for patch in (
            mock.patch.object(runs, "Watcher", watcher_of(recorder)),
            mock.patch.object(tuples, "LossyCarrier", carrier_of(recorder)),
            after(
                IdleProgram,
                "take_orders",
                lambda it, orders: recorder.note("orders", it.process.name, of_orders(orders)),
            ),
            after(
                TupleProgram,
                "take_orders",
                lambda it, orders: recorder.note("orders", it.process.name, of_orders(orders)),
            ),
            after(
                VirtualProcess,
                "_write_heartbeat",
                lambda it, flags: recorder.note("pulse", it.name, of_flags(flags)),
            ),
            after(VirtualProcess, "_exit", lambda it, status, reason: recorder.note("exit", it.name, status)),
            after(VirtualProcess, "signalled", lambda it: recorder.note("signal", it.name)),
            after(VirtualProcess, "kill", lambda it, seconds: recorder.note("kill", it.name, seconds)),
            before_close(recorder),
        ):
            stack.enter_context(patch)
        yield


def after(kind: type[Any], name: str, note: Callable[..., object]) -> Any:
    """Have a method of a class write down its calls."""
    method = getattr(kind, name)

    def noted(self: Any, *args: Any, **named: Any) -> Any:
        note(self, *args, **named)
        return method(self, *args, **named)

    return mock.patch.object(kind, name, noted)


def before_close(recorder: Recorder) -> Any:
    """Have a world finally report the operators' requests and the ledgers of tasks."""
    close = World.close

    def close_with_a_report(self: World) -> None:
        for asked in self.asked:
            answer = getattr(asked.answer, "id", asked.answer is None)
            refused = asked.refused is not None
            recorder.note(
                "asked", asked.what, asked.name, asked.at, asked.answered, refused, answer, asked.tries
            )
        for key in sorted(key for key in BOOKS if key.startswith(f"{self.run_key}/")):
            for life in BOOKS[key].read():
                entries = [[entry.kind, entry.at, *entry.values] for entry in life.entries]
                recorder.note("book", key.rpartition("/")[2], life.role, life.index, life.pid, entries)
        close(self)

    return mock.patch.object(World, "close", close_with_a_report)


def watcher_of(recorder: Recorder) -> type[Watcher]:
    """A watcher that writes down its events."""

    class Recording(Watcher):
        def __init__(self, world: World) -> None:
            super().__init__(world)
            recorder.now = lambda: world.line.now

        def wrote(self, actor: Actor, kind: str, path: str, guard: Guard | None) -> None:
            found = self.world.server.store.get(path)
            value = of_value(path, None if found is None else found[0])
            term = None if guard is None else guard.version
            recorder.note("write", actor.name, kind, path, term, None if found is None else found[1], value)
            super().wrote(actor, kind, path, guard)

        def started(self, process: VirtualProcess) -> None:
            recorder.note("start", process.name, process.pid)
            super().started(process)

    return Recording


def carrier_of(recorder: Recorder) -> type[LossyCarrier]:
    """A carrier that writes down its messages."""

    class Recording(LossyCarrier):
        def send(self, peer: str, channel: int, parts: Sequence[Any]) -> bool:
            message = of_message(parts, "pickle", FIELDS)
            taken = super().send(peer, channel, parts)
            recorder.note("message", self.address[0], peer, channel, taken, message)
            return taken

    return Recording
