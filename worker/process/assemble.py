"""Assembles a worker process and runs it: `run(directory)`, which does not return.

The order matters. Signal handlers come first, because a signal without a handler would end the process. Next come the orders,
keys and topology in the directory; the log; sockets, core and links; the heartbeat; the loop. Any failure on the way is written
to end.json.
Must not know: what any of these parts do.
"""

from __future__ import annotations

import faulthandler
import gc
import logging
import os
import shutil
import signal
import sys
import threading
import traceback
from collections.abc import Mapping
from pathlib import Path
from random import Random
from types import FrameType
from typing import Final, NoReturn

from squall import worker_files
from squall.daemon.inside import begin_worker
from squall.transport.carriers import same_host
from squall.transport.carriers.sockets import Sockets
from squall.transport.exchange import Exchange
from squall.transport.frames import KeepAlive
from squall.transport.link import LocalWorker
from squall.transport.wire import Streams
from squall.values import Incarnation
from squall.worker_files import Orders
from topology_api import SquallError
from topology_api.options import port_range
from worker.loop.kinds import epochs_of, worker_class
from worker.loop.memory_growth import MemoryGrowth
from worker.loop.plan import WorkerPlan
from worker.loop.worker import Worker
from worker.process.call_watch import CallWatch
from worker.process.daemon import Daemon
from worker.process.exit import OpenFiles, ProcessExit
from worker.process.heartbeat import Flags, Heartbeat
from worker.process.last_calls import LastCalls
from worker.process.lease import Lease
from worker.process.letter_files import Letters
from worker.process.logs import open_log
from worker.process.process_load import memory_reader
from worker.process.startup import begin, plan_of
from worker.process.state_answers import StateAnswers
from worker.tasks.runners import AsyncThread

_log = logging.getLogger(__name__)

#: Thresholds of the garbage collector. Tuples are freed by reference counting, so the collector finds nothing to free. It takes
#: 1.8 % of a busy worker's time with Python's own thresholds, and 0.2 % with these (measured with word counts over two
#: workers).
COLLECTIONS: Final = (10_000, 10, 10)


def run(directory: str) -> NoReturn:
    """Run a worker process."""
    begin_worker()
    open_files = OpenFiles()
    faulthandler.enable(file=2, all_threads=True)
    faulthandler.register(worker_files.SHOW_STACKS, file=2, all_threads=True)
    early = EarlySignals()
    gc.set_threshold(*COLLECTIONS)
    process_exit = ProcessExit(directory, incarnation_of(directory), open_files)
    try:
        try:
            daemon = assemble(directory, process_exit)
        except SquallError as error:
            process_exit.end(worker_files.EXIT_BAD_ORDERS, str(error))
        daemon.handle_signals(early.seen)
        announce(daemon)
        daemon.run()
    except MemoryError:
        process_exit.end(
            worker_files.EXIT_MEMORY, "out of memory, outside of any user's call", traceback.format_exc()
        )
    except BaseException as error:
        reason = f"an internal error of Squall: {type(error).__name__}: {error}"
        process_exit.end(worker_files.EXIT_INTERNAL, reason, traceback.format_exc())


class EarlySignals:
    """Keeps the signals that come before the loop runs."""

    def __init__(self) -> None:
        self.seen: list[int] = []
        for number in (signal.SIGUSR1, signal.SIGTERM):
            signal.signal(number, self.keep)
        # Ctrl-C goes to all processes of a terminal; the parent of this process decides what to do. This is a handler
        # and not SIG_IGN, since the programs that user code starts would inherit SIG_IGN.
        signal.signal(signal.SIGINT, ignore)
        os.register_at_fork(
            before=block_signals, after_in_parent=release_signals, after_in_child=restore_handlers
        )

    def keep(self, number: int, frame: FrameType | None) -> None:
        """Keep a signal."""
        self.seen.append(number)


def ignore(number: int, frame: FrameType | None) -> None:
    """Ignore a signal."""


#: The signals that a forking thread had blocked before the fork.
BLOCKED = threading.local()


def block_signals() -> None:
    """Block signals before a fork: until the child has its own handlers, no signal may reach it."""
    BLOCKED.before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1, signal.SIGTERM, signal.SIGINT})


def release_signals() -> None:
    """Unblock signals after a fork."""
    signal.pthread_sigmask(signal.SIG_SETMASK, BLOCKED.before)


def restore_handlers() -> None:
    """Restore Python's own signal handlers in a child that user code forked: the child is not a worker."""
    signal.signal(signal.SIGUSR1, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    faulthandler.unregister(worker_files.SHOW_STACKS)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    release_signals()


def incarnation_of(directory: str) -> Incarnation:
    """Return the incarnation in the orders, for end.json; (0, 0) if the orders cannot be read."""
    try:
        orders = worker_files.read_orders(directory)
    except (SquallError, OSError):
        orders = None
    return Incarnation(0, 0) if orders is None else orders.incarnation


def assemble(directory: str, process_exit: ProcessExit) -> Daemon:
    """Assemble the worker. Raises `SquallError` if its orders, its keys or its topology are missing or bad."""
    orders, keys, topology = begin(directory)
    log_lines = open_log(directory, orders.worker)

    def lease_is_over(seconds: float) -> None:
        process_exit.end(
            worker_files.EXIT_LEASE,
            f"the supervisor {orders.supervisor} has given no new lease for {seconds:.1f} s",
        )

    lease = Lease(directory, orders.lease_secs, lease_is_over)
    # If the previous process and its supervisor were killed, nothing has removed these files.
    shutil.rmtree(os.path.join(directory, worker_files.SCRATCH), ignore_errors=True)
    same_host.sweep()
    plan = plan_of(orders, topology, directory)
    within = port_range(os.environ.get(worker_files.PORTS, ""))
    sockets = Sockets(keys, bind=orders.bind, host=orders.host, ports=orders.ports, within=within)
    process_exit.open_files.admission = sockets.admission
    coroutines = AsyncThread(f"{orders.topology}-{orders.worker}")
    worker = worker_class(plan)(
        plan, lease, lambda peer, frame: exchange.send(peer, frame), coroutines, sockets.wake
    )
    exchange = links(plan, sockets, lease, worker)
    side = sockets.side()

    def send_heartbeats(held: Mapping[str, list[KeepAlive]]) -> None:
        for address, parts in exchange.heartbeats_aside(held):
            side.send(address, parts)

    if (read := memory_reader()) is not None:
        worker.environment.growth = MemoryGrowth(read, Random())
    os.register_at_fork(after_in_child=lambda: end_runs(worker))
    calls = CallWatch(worker)
    log_lines.place = calls.place
    daemon = Daemon(
        directory, orders, topology, worker, exchange, sockets, lease, process_exit, send_heartbeats
    )
    flags = Flags(orders.number, "pause", orders.version)
    daemon.heartbeat = Heartbeat(daemon, sockets.address, calls, flags)
    daemon.last_calls = LastCalls(directory, worker, process_exit, daemon.heartbeat)
    daemon.heartbeat.leave_hung_call = daemon.last_calls.leave_call
    worker.environment.time_of = daemon.wall_clock.time_of
    answers = StateAnswers(directory, calls, daemon, daemon.wall_clock.time_of, daemon.heartbeat.woken.set)
    daemon.state_answers = daemon.heartbeat.state_answers = answers
    if root := os.environ.get(worker_files.LETTERS):
        letters = Letters(Path(root), worker, daemon.wall_clock.time_of, sockets.wake)
        worker.environment.letters = letters.keeper_of
        daemon.heartbeat.letters = letters
        if (epochs := epochs_of(worker)) is not None:
            epochs.again.is_here = lambda task: supervisor_of(daemon.orders, task) == orders.supervisor
    return daemon


def supervisor_of(orders: Orders, task: int) -> str | None:
    """Return the supervisor whose worker runs a task; None: none does."""
    return next((each.supervisor for each in orders.placements if task in each.tasks), None)


def end_runs(worker: Worker) -> None:
    """End the current runs in a child that user code forked. If the forking call returns in the child, the run does not go on
    to the next tuple but returns to the worker's code, which ends the child."""
    for task in worker.tasks.values():
        task.emitter.emitted += 1 << 62  # more than any run may emit


def links(plan: WorkerPlan, sockets: Sockets, lease: Lease, worker: Worker) -> Exchange:
    """Make the worker's links to its peers."""
    streams = Streams(plan.topology, plan.component_of)
    codec = plan.conf["topology.transport.codec"]
    waits_for = worker.links.waits_for
    local = LocalWorker(
        plan.worker, plan.incarnation, sockets.address, codec, streams, worker.window_of, waits_for
    )
    local.ordered = plan.has_epochs
    return Exchange(local, sockets, lease, worker.peers, int(plan.conf["topology.cycle.buffer"]))


def announce(daemon: Daemon) -> None:
    """Write the first lines of the log, which describe this process."""
    orders = daemon.orders
    tasks = ", ".join(f"{component}[{task}]" for task, component, _ in daemon.worker.plan.own_tasks)
    version, restarts = orders.incarnation
    _log.info(
        "worker %s of topology %r (%s), incarnation %d.%d, process %d, Python %s",
        orders.worker,
        orders.topology,
        orders.topology_id,
        version,
        restarts,
        os.getpid(),
        sys.version.partition(" ")[0],
    )
    data, control = daemon.exchange.carrier.address
    _log.info("tasks: %s; receives tuples at %s and control messages at %s", tasks or "none", data, control)
