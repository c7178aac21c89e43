"""Tells the cluster how many dead letters are on a supervisor's host, and lets old ones expire, in a thread of its own.

The count is a record in the store, which is written only when it has changed, and outlives the supervisor: so a command can
name a host that is away. A record whose letters must all have expired is removed by any supervisor.
Must not know: how letters are kept.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import Final

from squall.cluster.records import HeldLetters
from squall.cluster.registry import Registry
from supervisor.host_letters import LetterCount
from topology_api.errors import SquallError

_log = logging.getLogger(__name__)

#: Seconds between two counts.
EVERY: Final = 5.0


class LetterReports:
    """Writes the record of one supervisor."""

    def __init__(self, count: LetterCount, registry: Registry, supervisor: str) -> None:
        self._count, self._registry, self._supervisor = count, registry, supervisor
        #: The record that was written last; None: it is not known.
        self._written: HeldLetters | None = None
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="squall-letters", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self) -> None:
        """Count no more. The record stays."""
        self._closing.set()
        if self._thread.ident is not None:
            self._thread.join(EVERY)

    def round(self, now: float) -> None:
        """Let old letters expire, count the others, and write the record if it has changed. `now`: the wall clock. Raises
        `SquallError` or `OSError`."""
        held, records = self._count.count(now), self._registry.letters
        if held != self._written:
            self._written = None
            if held.topologies:
                records.put(held)
            else:
                records.drop(self._supervisor)
            self._written = held
        for name in records.names():
            other = records.readable(name)
            if other is not None and other.until is not None and other.until <= now:
                records.delete(name)

    def _serve(self) -> None:
        failing = False
        while not self._closing.is_set():
            try:
                self.round(time.time())
                failing = False
            except (SquallError, OSError) as error:
                if not failing:
                    _log.warning("the number of dead letters cannot be reported at the moment: %s", error)
                failing, self._written = True, None
            except Exception:  # this thread must continue
                _log.exception("internal error in the count of dead letters; it continues")
            self._closing.wait(EVERY)
