"""The program of virtual processes without tuples: it reports like a worker, after random times.

Must not know: files, other processes.
"""

from __future__ import annotations

from squall.worker_files import EXIT_STOPPED, Orders
from tests.simulation.machines import Ended, Flags, Habits, VirtualProcess
from worker.process.startup import own_place


class IdleProgram:
    """Pretends to run the tasks of its place: they open, drain and end at random times."""

    def __init__(self, process: VirtualProcess, habits: Habits, finite: float | None) -> None:
        """`finite`: seconds that the sources last; None: for ever."""
        self.process = process
        self.habits = habits
        self.finite = finite
        self.orders: Orders | None = None
        self.opens_at: float | None = None
        self.opened = False
        self.drains_at: float | None = None
        self.ends_at: float | None = None
        self.stops_at: float | None = None
        self.address = (
            f"tcp://{process.machine.name}:{process.pid}",
            f"tcp://{process.machine.name}:1{process.pid}",
        )

    def take_orders(self, orders: Orders) -> None:
        """See `Program`."""
        now = self.process.line.now
        before = self.orders
        self.orders = orders
        if orders.asked == "drain":
            if before is None or before.asked != "drain":
                self.drains_at = now + self._take(self.habits.drain)
        else:
            self.drains_at = None
        if orders.asked == "run" and not self.opened and self.opens_at is None:
            self.opens_at = now + self._take(self.habits.open)
        if orders.asked == "stop" and self.stops_at is None:
            self.stops_at = now + self._take(self.habits.stop)

    def _take(self, seconds: tuple[float, float]) -> float:
        return self.process.random.uniform(*seconds)

    def look(self) -> None:
        """See `Program`."""
        now = self.process.line.now
        if self.stops_at is not None and now >= self.stops_at:
            raise Ended(EXIT_STOPPED, "stopped as ordered")
        if self.opens_at is not None and now >= self.opens_at and not self.opened:
            self.opened = True
            if self.finite is not None:
                self.ends_at = now + self.finite

    def flags(self) -> Flags:
        """See `Program`."""
        assert self.orders is not None
        now, orders = self.process.line.now, self.orders
        ended = self.opened and self.ends_at is not None and now >= self.ends_at
        drained = self.drains_at is not None and (now >= self.drains_at or not self.opened)
        place = own_place(orders)
        finished: set[int] = set(orders.finished)
        if ended and place is not None:
            spouts = {task for task, component, _ in orders.tasks if component == "lines"}
            finished |= spouts.intersection(place.tasks)
        return Flags(
            asked=orders.asked,
            version=orders.version,
            opened=self.opened,
            ended=ended,
            drained=drained,
            finished=tuple(sorted(finished)),
            address=self.address,
        )

    def next_time(self) -> float | None:
        """See `Program`."""
        now = self.process.line.now
        times = [self.opens_at, self.drains_at, self.ends_at, self.stops_at]
        return min((time for time in times if time is not None and time > now), default=None)

    def die(self) -> None:
        """See `Program`."""
