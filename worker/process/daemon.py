"""The loop of a worker process: it drives the worker's core and its links, and follows the supervisor's orders.

A round receives from peers, steps the core, and lets the links do their due work. If nothing happened, the loop sleeps until
something arrives or becomes due. Signals only set flags: SIGUSR1 means new orders. SIGTERM means that the worker has to leave:
drain, then end; a second SIGTERM means to end now. The heartbeat's thread watches the loop.
Must not know: how links work, what the core does, how a process is assembled (`worker.process.assemble`).
"""

from __future__ import annotations

import gc
import logging
import os
import shutil
import signal
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import FrameType
from typing import Final, NoReturn, Protocol

from msgspec import structs

from squall import worker_files
from squall.cluster.counters import WorkerCounters
from squall.transport.exchange import Exchange
from squall.transport.frames import KeepAlive
from squall.values import TaskRow
from squall.worker_files import (
    EXIT_DRAINED,
    EXIT_LIMIT,
    EXIT_STOPPED,
    EXIT_SUPERSEDED,
    EXIT_UNOPENED,
    HEIR,
    ON_TRIAL,
    BadFile,
    Orders,
)
from topology_api import Topology
from worker.errors.error_lines import ErrorLines
from worker.errors.reports import FILE, MODULE, short_line
from worker.loop.coming_up import all_up
from worker.loop.peers import by_tracker, keep_alives
from worker.loop.snapshot import worker_counters
from worker.loop.timers import shortest_timeout
from worker.loop.trial import set_on_trial
from worker.loop.worker import Worker
from worker.process.exit import ProcessExit
from worker.process.heartbeat import Flags, Heartbeat
from worker.process.last_calls import LastCalls
from worker.process.lease import Lease
from worker.process.process_load import ProcessMeter
from worker.process.startup import find_orders, orders_topology, own_place, peers_of, plan_of
from worker.process.state_answers import StateAnswers
from worker.process.wall_clock import WallClock, with_wall_clock

_log = logging.getLogger(__name__)

#: Seconds that tasks wait for links to all peers. After that, the tasks are opened without the missing links.
LINK_SECONDS: Final = 5.0
#: The longest sleep of the loop, in seconds.
LONGEST_SLEEP: Final = 1.0
#: Seconds after which a busy loop publishes the worker's flags again.
FLAGS_SECONDS: Final = 0.02
#: How long a running call may go on after the second SIGTERM, in seconds.
END_SECONDS: Final = 2.0
#: How long to wait until the peers confirm that this worker leaves, in seconds.
LEAVE_SECONDS: Final = 5.0
#: Seconds that a leaving worker waits for the trees of spouts without a message timeout.
DRAIN_SECONDS: Final = 30.0


class Waiter(Protocol):
    """Lets the loop sleep, and wakes it."""

    def wait(self, seconds: float | None) -> None:
        """Wait until something arrives, `wake` is called or the time has passed."""

    def wake(self) -> None:
        """End the wait. May be called from any thread and from a signal handler."""


Tasks = tuple[TaskRow, ...]

#: Sends heartbeats to peers from a thread other than the loop's, with keep-alives for the trees that wait here (name of the
#: worker that tracks the trees -> keep-alives).
SendHeartbeats = Callable[[Mapping[str, list[KeepAlive]]], None]


@dataclass(eq=False, repr=False)
class Daemon:
    """The loop of one worker process."""

    directory: str
    orders: Orders
    topology: Topology
    worker: Worker
    exchange: Exchange
    waiter: Waiter
    lease: Lease
    process_exit: ProcessExit
    send_heartbeats: SendHeartbeats
    heartbeat: Heartbeat = field(init=False)
    #: None in simulations, where no call ends a process.
    last_calls: LastCalls | None = None
    #: None in simulations.
    state_answers: StateAnswers | None = None
    #: What the last orders ask the worker to do.
    asked: str = "pause"
    orders_due: bool = False
    terminations: int = 0
    #: When the tasks began to wait for links.
    run_asked_at: float | None = None
    #: When the worker began to leave.
    leaving_since: float | None = None
    #: When the peers were asked to send no more tuples.
    asked_peers_at: float | None = None
    next_flags: float = 0.0
    #: Whether the start is over, here and at all peers.
    came_up: bool = False
    # The heartbeat's thread also reads the next two attributes.
    #: When the current round began; None: the loop waits.
    round_began: float | None = None
    #: The time by which the process has to end after a second SIGTERM; None: there was no second SIGTERM.
    must_end_by: float | None = None
    #: The text that says that the process uses too much memory; None: it does not.
    too_large: str | None = None

    def __post_init__(self) -> None:
        self.wall_clock = WallClock(self.lease.clock)
        self.meter = ProcessMeter()
        self.error_lines = ErrorLines()
        #: Seconds between keep-alives of the trees that wait in the worker.
        self.keep_alive_every = self.worker.timers.report_every

    # Signals.

    def handle_signals(self, seen: list[int]) -> None:
        """Handle signals from now on, beginning with the signals that came earlier (`seen`)."""
        signal.signal(signal.SIGUSR1, self.on_new_orders)
        signal.signal(signal.SIGTERM, self.on_terminate)
        if signal.SIGUSR1 in seen:
            self.on_new_orders()
        for _ in range(seen.count(signal.SIGTERM)):
            self.on_terminate()

    def on_new_orders(self, number: int = 0, frame: FrameType | None = None) -> None:
        """Handle SIGUSR1, or a changed orders file: read the orders in the next round. The heartbeat calls this as well, since
        the signal may have been lost."""
        self.orders_due = True
        self.waiter.wake()

    def on_terminate(self, number: int = 0, frame: FrameType | None = None) -> None:
        """Handle SIGTERM: leave; at the second SIGTERM: end."""
        self.terminations += 1
        if self.terminations > 1 and self.must_end_by is None:
            self.must_end_by = self.lease.clock() + END_SECONDS
        self.waiter.wake()

    def leave_because(self, reason: str) -> None:
        """Leave, as after SIGTERM, for lack of memory. The heartbeat's thread calls this."""
        self.too_large = reason
        self.waiter.wake()

    # The loop.

    def run(self) -> NoReturn:
        """Run rounds until the process ends; does not return."""
        self.follow(self.orders)
        self.heartbeat.start()
        while True:
            self.round_began = self.lease.now()
            if self.round() or self.publish_flags():
                continue
            self.round_began = None
            if not (self.orders_due or self.leave_due):
                self.waiter.wait(self.seconds_to_wait())

    @property
    def leaves(self) -> bool:
        """Whether the worker is to leave."""
        return self.terminations > 0 or self.too_large is not None

    @property
    def leave_due(self) -> bool:
        """Whether the worker is to begin to leave, or to end, in the next round."""
        return self.must_end_by is not None or (self.leaves and self.leaving_since is None)

    def round(self) -> bool:
        """Run one round; return whether anything was done."""
        if self.orders_due:
            self.orders_due = False
            self.read_orders()
            if self.state_answers is not None:
                self.state_answers.ask_tasks()
        if self.leaves:
            self.leave()
        worker, exchange = self.worker, self.exchange
        if not worker.started:
            if self.asked == "run":
                self.start_if_ready()
            elif self.asked == "drain" and (exchange.awaited_here or worker.plan.has_epochs):
                # Its tasks are opened, and its spouts emit nothing: trees of other workers end here, and the last epoch.
                worker.start()
        busy = exchange.receive()
        busy |= worker.step()
        busy |= exchange.advance()
        if worker.unopened:
            self.give_up_opening()
        if not exchange.local.ready and worker.opened:
            exchange.ready()
        if not self.came_up and exchange.all_ready:
            self.came_up = all_up((worker,), self.lease.now())
        if busy and self.lease.now() >= self.next_flags:
            self.publish_flags()
        return busy

    def seconds_to_wait(self) -> float:
        """Return the seconds until something is due."""
        times = [self.worker.next_time(), self.exchange.next_time()]
        if not self.worker.started and self.run_asked_at is not None:
            times.append(self.run_asked_at + LINK_SECONDS)
        until = min((time for time in times if time is not None), default=float("inf"))
        return min(LONGEST_SLEEP, max(0.0, until - self.lease.now()))

    def start_if_ready(self) -> None:
        """Open the tasks once the links are up, or after waiting long enough for them."""
        if self.leaving_since is not None or self.run_asked_at is None:
            return
        waited = self.lease.now() - self.run_asked_at
        if not self.exchange.linked:
            if waited < LINK_SECONDS:
                return
            _log.warning("not all workers answer after %.0f s; the tasks are opened without them", waited)
        self.worker.start()
        if self.last_calls is not None:
            self.last_calls.begin()
        self.worker.set_active(True)
        gc.collect()
        gc.freeze()  # the objects that exist now stay: no collection needs to visit them again

    def give_up_opening(self) -> NoReturn:
        """End the process because a task cannot be opened or prepared.

        The supervisor starts the worker again, with growing delays: at the next start, the resources that the task needs may be
        available. Tasks of other workers go on.
        """
        crash = self.worker.crash
        assert crash is not None
        raised = f"{crash.call}() raised {short_line(crash.text)}"
        where = f"{crash.component}[{crash.task}] cannot start: {raised}"
        where += f" ({crash.place})" if crash.place else ""
        hints = [line for line in crash.frames[:1] if line in (MODULE, FILE)]
        self.stop(EXIT_UNOPENED, " ".join([where, *hints]))

    # Orders.

    def read_orders(self) -> None:
        """Read the orders, and follow new ones. Bad orders are logged, and the old ones stay in force."""
        try:
            orders = find_orders(self.directory)
        except (BadFile, OSError) as error:
            _log.error("orders %d stay in force: %s", self.orders.number, error)
            return
        if orders.number != self.orders.number:
            self.follow(orders)

    def follow(self, orders: Orders) -> None:
        """Follow orders."""
        mine = self.orders
        own = mine.topology_id, mine.worker, mine.incarnation
        # If the orders are for a different process, that process has replaced this process.
        if (orders.topology_id, orders.worker, orders.incarnation) != own:
            self.end(EXIT_SUPERSEDED, f"the orders are for {describe(orders)}; this is {describe(mine)}")
        place = own_place(orders)
        if place is None and orders.asked != "stop":
            self.end(EXIT_SUPERSEDED, f"assignment {orders.version} has no place for {describe(orders)}")
        before, self.orders = self.orders, orders
        # The links change first: once the core has changed, it sends to peers of the new assignment.
        if place is not None:
            component_of = {task: component for task, component, _ in orders.tasks}
            renumbered = recreated_tasks(before.tasks, orders.tasks)
            self.exchange.assign(orders.version, peers_of(orders), component_of, renumbered)
        if orders.version != before.version:
            self.topology = orders_topology(self.topology, orders)
            self.worker.replan(plan_of(orders, self.topology, self.directory))
        set_on_trial(self.worker, ON_TRIAL in orders.conf, str(orders.conf.get(HEIR, "")))
        self.lease.set_seconds(orders.lease_secs)
        self.ask(orders.asked)
        self.publish_flags()

    def ask(self, asked: str) -> None:
        """Make the worker run, pause, drain or stop, as its topology's state requires."""
        if asked != self.asked:
            _log.info("asked to %s", asked)
        self.asked = asked
        worker = self.worker
        if asked == "stop":
            self.stop(EXIT_STOPPED, "stopped as ordered" + (", after a crash" if worker.crash else ""))
        if self.leaving_since is not None:
            return
        if asked == "run":
            if self.run_asked_at is None:
                self.run_asked_at = self.lease.now()
            if worker.started:
                worker.set_active(True)
        elif asked == "pause":
            if worker.started:
                worker.set_active(False)
        else:
            worker.drain()

    # Leaving.

    def leave(self) -> None:
        """Leave after SIGTERM: finish the trees of the spouts here, ask the peers to send no more, end when nothing is left."""
        now = self.lease.now()
        if self.must_end_by is not None:
            self.stop(EXIT_STOPPED, "ended by a second SIGTERM")
        worker, exchange = self.worker, self.exchange
        if self.leaving_since is None:
            _log.info("%s: drains, then ends", self.too_large or "SIGTERM")
            self.leaving_since = now
            worker.drain()
        patience = shortest_timeout(worker.plan) or DRAIN_SECONDS
        if self.asked_peers_at is None:
            if not worker.table.spouts_drained and now - self.leaving_since < patience:
                return
            self.asked_peers_at = now
            exchange.leave()
        if worker.idle and worker.table.spouts_drained and exchange.left:
            self.stop_leaving("drained, and ended by SIGTERM")
        if now - self.asked_peers_at >= LEAVE_SECONDS:
            _log.info("at rest: %s; peers: %s", worker.idle, exchange.awaited() or "none")
            self.stop_leaving("ended by SIGTERM, with tuples left that would not drain")

    def stop_leaving(self, reason: str) -> NoReturn:
        """End a process that leaves."""
        if self.too_large is None:
            self.stop(EXIT_DRAINED, reason)
        self.stop(EXIT_LIMIT, self.too_large)

    def stop(self, status: int, reason: str) -> NoReturn:
        """Close the tasks and end the process."""
        self.worker.stop()
        if self.exchange.counters:
            counted = ", ".join(f"{name}: {count}" for name, count in sorted(self.exchange.counters.items()))
            _log.info("counters of the links: %s", counted)
        shutil.rmtree(os.path.join(self.directory, worker_files.SCRATCH), ignore_errors=True)
        self.heartbeat.stop(self.flags(stopped=True))
        self.end(status, reason)

    def end(self, status: int, reason: str) -> NoReturn:
        """End the process."""
        self.process_exit.end(status, reason, orderly=True)

    # Flags and counters, for the heartbeat.

    def publish_flags(self) -> bool:
        """Publish the worker's flags if they have changed; return whether they have."""
        now = self.lease.now()
        self.next_flags = now + FLAGS_SECONDS
        if self.last_calls is not None:
            self.last_calls.end_if_due(now)
        flags = self.flags()
        if flags == self.heartbeat.flags:
            return False
        self.heartbeat.update(flags)
        return True

    def flags(self, stopped: bool = False) -> Flags:
        """Return the worker's flags at this moment."""
        worker, orders = self.worker, self.orders
        return Flags(
            orders=orders.number,
            asked=self.asked,
            version=orders.version,
            opened=worker.opened,
            ended=worker.ended,
            drained=self.drained,
            stopped=stopped,
            crash=worker.crash.render() if worker.crash and not worker.unopened else None,
            finished=tuple(sorted(worker.finished_spouts | set(orders.finished))),
            errors=self.error_lines.write_new(worker.errors, self.lease.clock()),
        )

    @property
    def drained(self) -> bool:
        """Whether the worker was asked to drain, and nothing waits for it."""
        worker, exchange = self.worker, self.exchange
        if not worker.started:
            return worker.draining and not exchange.awaited_here
        return worker.drained and exchange.settled

    def counters(self) -> WorkerCounters:
        """Return the worker's counters."""
        worker = self.worker
        if (growth := worker.environment.growth) is not None:
            growth.share_out(list(worker.tasks.values()), worker.running, self.lease.now())
        counters = with_wall_clock(worker_counters(worker), self.wall_clock)
        return structs.replace(counters, process=self.meter.read())

    def send_keep_alives(self, trees: bool) -> None:
        """Show the peers that the worker lives while the loop is inside a call; with `trees`, also keep alive the trees that
        wait in this worker. Called by the heartbeat's thread."""
        worker = self.worker
        waiting = (
            keep_alives(worker.tasks.values(), worker.arrived, worker.plan.component_of) if trees else ()
        )
        self.send_heartbeats(by_tracker(waiting, worker.plan))


def recreated_tasks(before: Tasks, now: Tasks) -> list[int]:
    """Return the tasks of components whose number of tasks has changed."""
    counts = [Counter(component for _, component, _ in tasks) for tasks in (before, now)]
    return [task for task, component, _ in now if counts[0][component] != counts[1][component]]


def describe(orders: Orders) -> str:
    """Return a description of the process that the orders are for."""
    version, restarts = orders.incarnation
    return f"worker {orders.worker} of {orders.topology_id}, incarnation {version}.{restarts}"
