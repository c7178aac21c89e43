"""The loop of a worker process: it drives the worker's core and its links, and does what the orders ask.

A round takes what has come from peers, has the core step, and lets the links do what is due; when nothing happened it
sleeps until something comes in or is due. Signals only set flags: SIGUSR1 says that there are new orders, SIGTERM that the
worker is to leave (drain, then end; said twice: end now). The heartbeat's thread watches over all of it.
Must not know: how links work, what the core does, how a process is put together (`worker.process`).
"""

from __future__ import annotations

import gc
import logging
import os
import shutil
import signal
from collections import Counter
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Final, NoReturn, Protocol

from squall.cluster.counters import WorkerCounters
from squall.transport.exchange import Exchange
from squall.transport.frames import Held
from squall.worker_files import (
    EXIT_DRAINED,
    EXIT_STOPPED,
    EXIT_SUPERSEDED,
    EXIT_UNOPENED,
    SCRATCH,
    BadFile,
    Orders,
)
from topology_api import Topology
from worker.error_lines import ErrorLines
from worker.heartbeat import Flags, Heartbeat
from worker.hints import FILE, MODULE
from worker.last_words import LastWords
from worker.lease import Lease
from worker.reports import short_line
from worker.snapshot import TimeOfDay, with_time_of_day, worker_counters
from worker.startup import find_orders, orders_topology, own_place, peers_of, plan_of
from worker.timers import shortest_timeout
from worker.waiting import held_here
from worker.worker import Worker

_log = logging.getLogger(__name__)

#: Seconds that tasks wait for links to all peers before they are opened without.
LINK_SECONDS: Final = 5.0
#: The longest that the loop sleeps.
LONGEST_SLEEP: Final = 1.0
#: How often a busy loop looks at how the worker is.
FLAGS_SECONDS: Final = 0.02
#: Seconds that the second SIGTERM leaves to a call that is running.
END_SECONDS: Final = 2.0
#: Seconds that peers are given to take note that this worker leaves.
LEAVE_SECONDS: Final = 5.0
#: Seconds that a worker that leaves waits for trees of spouts without a timeout.
DRAIN_SECONDS: Final = 30.0


class Waiter(Protocol):
    """What the loop sleeps on."""

    def wait(self, seconds: float | None) -> None:
        """Until something comes in, `wake` is called or the time is over."""

    def wake(self) -> None:
        """End the wait; from any thread, and from a signal's handler."""


Tasks = tuple[tuple[int, str, int], ...]

#: Signs of life to peers, sent by another thread than the loop: (are the trees that wait here named, by worker).
SendSigns = Callable[[Mapping[str, list[Held]]], None]


class Daemon:
    """The loop of one worker process."""

    heartbeat: Heartbeat

    def __init__(
        self,
        directory: str,
        orders: Orders,
        topology: Topology,
        worker: Worker,
        exchange: Exchange,
        waiter: Waiter,
        lease: Lease,
        last_words: LastWords,
        signs: SendSigns,
    ) -> None:
        self.directory = directory
        self.orders = orders
        self.topology = topology
        self.worker = worker
        self.exchange = exchange
        self.waiter = waiter
        self.lease = lease
        self.last_words = last_words
        self.signs = signs
        #: What orders asked for, as far as it was taken.
        self.asked = "pause"
        self.orders_due = False
        self.terminations = 0
        #: Since when tasks wait for links; when leaving began, and when the peers were told.
        self.run_asked_at: float | None = None
        self.leaving_since: float | None = None
        self.told_peers_at: float | None = None
        self.next_flags = 0.0
        self.time_of_day = TimeOfDay(lease.clock)
        self.error_lines = ErrorLines()
        # for the heartbeat
        self.round_began: float | None = None
        self.must_end_by: float | None = None

    # What comes from outside.

    def handle_signals(self, seen: list[int]) -> None:
        """From now on signals are heard; those that were seen before come first."""
        signal.signal(signal.SIGUSR1, self.on_new_orders)
        signal.signal(signal.SIGTERM, self.on_terminate)
        if signal.SIGUSR1 in seen:
            self.on_new_orders()
        for _ in range(seen.count(signal.SIGTERM)):
            self.on_terminate()

    def on_new_orders(self, number: int = 0, frame: FrameType | None = None) -> None:
        """SIGUSR1: the supervisor has written orders."""
        self.orders_due = True
        self.waiter.wake()

    def on_terminate(self, number: int = 0, frame: FrameType | None = None) -> None:
        """SIGTERM: leave; the second one: end."""
        self.terminations += 1
        if self.terminations > 1 and self.must_end_by is None:
            self.must_end_by = self.lease.clock() + END_SECONDS
        self.waiter.wake()

    def look_at_orders(self) -> None:
        """From the heartbeat: the orders' file is another one, signal or not."""
        self.on_new_orders()

    # The loop.

    def run(self) -> NoReturn:
        """Work until told to end; does not come back."""
        self.take_orders(self.orders)
        self.heartbeat.start()
        waiter = self.waiter
        while True:
            self.round_began = self.lease.now()
            if self.round():
                continue
            if self.tell_flags():
                continue
            self.round_began = None
            if not (self.orders_due or self.terminations > (self.leaving_since is not None)):
                waiter.wait(self.seconds_to_wait())

    def round(self) -> bool:
        """Everything once; whether anything was done."""
        if self.orders_due:
            self.orders_due = False
            self.read_orders()
        if self.terminations:
            self.leave()
        worker, exchange = self.worker, self.exchange
        if not worker.started and self.asked == "run":
            self.start_if_ready()
        busy = exchange.receive()
        busy |= worker.step()
        busy |= exchange.advance()
        if worker.unopened:
            self.give_up_opening()
        if not exchange.is_ready and worker.opened:
            exchange.ready()
        if busy and self.lease.now() >= self.next_flags:
            self.tell_flags()
        return busy

    def seconds_to_wait(self) -> float:
        """How long nothing is due."""
        times = [self.worker.next_time(), self.exchange.next_time()]
        if not self.worker.started and self.run_asked_at is not None:
            times.append(self.run_asked_at + LINK_SECONDS)
        until = min((time for time in times if time is not None), default=None)
        if until is None:
            return LONGEST_SLEEP
        return min(LONGEST_SLEEP, max(0.0, until - self.lease.now()))

    def start_if_ready(self) -> None:
        """Have the tasks opened once the links are up, or have been waited for long enough."""
        if self.leaving_since is not None or self.run_asked_at is None:
            return
        waited = self.lease.now() - self.run_asked_at
        if not self.exchange.linked:
            if waited < LINK_SECONDS:
                return
            _log.warning("not all workers answer after %.0f s; the tasks are opened without them", waited)
        self.worker.start()
        self.worker.activate()
        gc.collect()
        gc.freeze()  # what is here now stays: no collection needs to look at it again

    def give_up_opening(self) -> NoReturn:
        """A task cannot be opened or prepared: the process ends, and its supervisor starts it again, ever more rarely. What it
        depends on may be there by then, and tasks of other workers go on."""
        crash = self.worker.crash
        assert crash is not None
        where = (
            f"{crash.component}[{crash.task}] cannot start: {crash.call}() raised {short_line(crash.text)}"
        )
        where += f" ({crash.place})" if crash.place else ""
        hints = [line for line in crash.frames[:1] if line in (MODULE, FILE)]
        self.stop(EXIT_UNOPENED, " ".join([where, *hints]))

    # Orders.

    def read_orders(self) -> None:
        """New orders, if they are; bad ones are told of, and the old ones hold."""
        try:
            orders = find_orders(self.directory)
        except BadFile as error:
            _log.error("orders %d stay in force: %s", self.orders.number, error)
            return
        if orders.number != self.orders.number:
            self.take_orders(orders)

    def take_orders(self, orders: Orders) -> None:
        """Do what orders ask."""
        self.check_identity(orders)
        place = own_place(orders)
        if place is None and orders.asked != "stop":
            self.end(EXIT_SUPERSEDED, f"assignment {orders.version} has no place for {describe(orders)}")
        before, self.orders = self.orders, orders
        # The links first: what the core says to peers of the new assignment needs theirs.
        if place is not None:
            component_of = {task: component for task, component, _ in orders.tasks}
            renumbered = tasks_made_anew(before.tasks, orders.tasks)
            self.exchange.assign(orders.version, peers_of(orders), component_of, renumbered)
        if orders.version != before.version:
            self.topology = orders_topology(self.topology, orders)
            self.worker.replan(plan_of(orders, self.topology, self.directory))
        self.lease.set_seconds(orders.lease_secs)
        self.ask(orders.asked)
        self.tell_flags()

    def check_identity(self, orders: Orders) -> None:
        """Orders for another process than this one mean that its time is over."""
        mine = self.orders
        if (orders.topology_id, orders.worker, orders.incarnation) != (
            mine.topology_id,
            mine.worker,
            mine.incarnation,
        ):
            self.end(EXIT_SUPERSEDED, f"the orders are for {describe(orders)}; this is {describe(mine)}")

    def ask(self, asked: str) -> None:
        """Have the worker do what its topology's state asks."""
        if asked != self.asked:
            _log.info("asked to %s", asked)
        self.asked = asked
        worker = self.worker
        if asked == "stop":
            reason = "stopped as ordered" + (", after a crash" if worker.crash else "")
            self.stop(EXIT_STOPPED, reason)
        if self.leaving_since is not None:
            return
        if asked == "run":
            if self.run_asked_at is None:
                self.run_asked_at = self.lease.now()
            if worker.started:
                worker.activate()
        elif asked == "pause":
            if worker.started:
                worker.deactivate()
        else:
            worker.drain()

    # Leaving.

    def leave(self) -> None:
        """SIGTERM: first the trees of the spouts here are worked off; then the peers are asked to send no more; then, with
        nothing left here, the process ends."""
        now = self.lease.now()
        if self.must_end_by is not None:
            self.stop(EXIT_STOPPED, "told twice to end")
        worker, exchange = self.worker, self.exchange
        if self.leaving_since is None:
            _log.info("told to end by SIGTERM: drains first")
            self.leaving_since = now
            worker.drain()
        patience = shortest_timeout(worker.plan) or DRAIN_SECONDS
        if self.told_peers_at is None:
            if not worker.spouts_drained and now - self.leaving_since < patience:
                return
            self.told_peers_at = now
            exchange.leave()
        if worker.idle and worker.spouts_drained and exchange.left:
            self.stop(EXIT_DRAINED, "drained, and ended by SIGTERM")
        if now - self.told_peers_at >= LEAVE_SECONDS:
            _log.info("at rest: %s; peers: %s", worker.idle, exchange.awaited() or "none")
            self.stop(EXIT_DRAINED, "ended by SIGTERM, with tuples left that would not drain")

    def stop(self, status: int, reason: str) -> NoReturn:
        """Close the tasks and end the process."""
        self.worker.stop()
        if self.exchange.counters:
            counted = ", ".join(f"{name}: {count}" for name, count in sorted(self.exchange.counters.items()))
            _log.info("of the links: %s", counted)
        shutil.rmtree(os.path.join(self.directory, SCRATCH), ignore_errors=True)
        self.heartbeat.stop(self.flags(stopped=True))
        self.end(status, reason)

    def end(self, status: int, reason: str) -> NoReturn:
        """End the process."""
        self.last_words.end(status, reason, orderly=True)

    # How the worker is.

    def tell_flags(self) -> bool:
        """Publish how the worker is, if that has changed; whether it has."""
        self.next_flags = self.lease.now() + FLAGS_SECONDS
        flags = self.flags()
        if flags == self.heartbeat.flags:
            return False
        self.heartbeat.tell(flags)
        return True

    def flags(self, stopped: bool = False) -> Flags:
        """How the worker is at this moment."""
        worker, orders = self.worker, self.orders
        finished = {spout.id for spout in worker.spouts if spout.exhausted}
        return Flags(
            orders=orders.number,
            asked=self.asked,
            version=orders.version,
            opened=worker.opened,
            ended=worker.ended,
            drained=worker.draining and (not worker.started or (worker.drained and self.exchange.settled)),
            stopped=stopped,
            crash=worker.crash.render() if worker.crash and not worker.unopened else None,
            finished=tuple(sorted(finished | set(orders.finished))),
            errors=self.error_lines.look(worker.errors, self.lease.clock()),
        )

    def counters(self) -> WorkerCounters:
        """The worker's counters."""
        return with_time_of_day(worker_counters(self.worker), self.time_of_day)

    def send_signs(self, held: bool) -> None:
        """From the heartbeat: the loop is inside a call."""
        self.signs(held_here(self.worker) if held else {})


def tasks_made_anew(before: Tasks, now: Tasks) -> list[int]:
    """The tasks of components whose number of tasks has changed."""
    counts = [Counter(component for _, component, _ in tasks) for tasks in (before, now)]
    return [task for task, component, _ in now if counts[0][component] != counts[1][component]]


def describe(orders: Orders) -> str:
    """Which process orders are for."""
    version, restarts = orders.incarnation
    return f"worker {orders.worker} of {orders.topology_id}, incarnation {version}.{restarts}"
