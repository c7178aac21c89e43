"""emit() of a spout task in a topology with epochs: each emission belongs to the open epoch.

Must not know: links, commits, what a position is.
"""

from __future__ import annotations

from random import Random
from typing import Any

from worker.epochs.emissions import Emissions, Kept
from worker.routing.router import Row, StreamOutput
from worker.tasks.emitter import SpoutEmitter, ids_of, rows_of
from worker.tracking.tracker import Tracker

try:
    import cython
except ImportError:
    from topology_api import plain_cython as cython

if not cython.compiled:
    from threading import get_ident


class EpochSpoutEmitter(SpoutEmitter):
    """emit() of a spout's task in a topology with epochs."""

    def __init__(
        self, component: str, task: int, outputs: dict[str, StreamOutput], random: Random, tracker: Tracker
    ) -> None:
        super().__init__(component, task, outputs, random, tracker)
        self.rewindable = True
        self.emissions = Emissions(True)

    def keep_in(self, emissions: Emissions) -> None:
        """Note the emissions here from now on."""
        self.emissions, self.rewindable = emissions, emissions.rewindable

    @cython.locals(output=StreamOutput, row=tuple)
    def emit(self, values: Any, *, message_id: Any = None, stream: str = "default") -> None:
        """See `topology_api.Spout.emit`."""
        if get_ident() != self.owner:
            self.refuse()
        output = self.default if stream == "default" else None
        if output is None:
            output = self.output(stream)
        row: Row = values if type(values) is tuple else self.row(values)
        if len(row) != output.arity:
            self.wrong_arity(output, row)
        if message_id is None:
            for box in output.choose(row):
                self.put(box, row, [])
        else:
            self.track((message_id, row, output.source, 0, 1, self.now, None))
        self.emitted += 1
        if not self.rewindable:
            self.emissions.add(message_id, (stream, 0, row))
            return
        self.emissions.count += 1  # as `add` does
        if message_id is not None:
            self.emissions.open.append(message_id)

    def emit_many(self, rows: Any, *, message_ids: Any = None, stream: str = "default") -> None:
        """See `topology_api.Spout.emit_many`."""
        if get_ident() != self.owner:
            self.refuse()  # before anything is counted, which the thread that may emit changes meanwhile
        rows = rows_of(rows)
        ids, before = ids_of(rows, message_ids), self.emitted
        try:
            if self.rewindable:
                super().emit_many(rows, message_ids=ids, stream=stream)
                return
            for values, message_id in zip(rows, ids):  # which makes each row once: it may be an iterator
                self.emit(values, message_id=message_id, stream=stream)
        except BaseException as error:
            error.emitted = self.emitted - before  # type: ignore[attr-defined]
            raise
        finally:
            if self.rewindable:
                count = self.emitted - before
                self.emissions.count += count
                self.emissions.open += [each for each in ids[:count] if each is not None]

    def emit_direct(self, task: int, values: Any, *, message_id: Any = None, stream: str = "default") -> None:
        """See `topology_api.Spout.emit_direct`."""
        row = self.row(values)
        super().emit_direct(task, row, message_id=message_id, stream=stream)
        self.emissions.add(message_id, (stream, task, row))

    def again(self, kept: Kept) -> None:
        """Emit once more what an epoch that was never committed has emitted."""
        message_id, (stream, task, row) = kept
        if task:
            self.emit_direct(task, row, message_id=message_id, stream=stream)
        else:
            self.emit(row, message_id=message_id, stream=stream)
