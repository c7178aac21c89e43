"""A worker process, put together: `run(directory)` is all of it, and does not come back.

The order matters: signals first, since one that comes before its handler would end the process; then what the directory
says; then the log; then sockets, core and links; the heartbeat; the loop. Whatever fails on the way ends in end.json.
Must not know: what any of these do.
"""

from __future__ import annotations

import faulthandler
import gc
import logging
import os
import platform
import shutil
import signal
import threading
import traceback
from collections.abc import Mapping
from types import FrameType
from typing import Final, NoReturn

from squall.inside import begin_worker
from squall.transport import same_host
from squall.transport.exchange import Exchange
from squall.transport.frames import Held
from squall.transport.sockets import Sockets
from squall.transport.streams import Streams
from squall.worker_files import (
    EXIT_BAD_ORDERS,
    EXIT_INTERNAL,
    EXIT_LEASE,
    EXIT_MEMORY,
    PORTS,
    SCRATCH,
    Incarnation,
    read_orders,
)
from topology_api import SquallError
from topology_api.options import port_range
from worker.calls import Calls
from worker.daemon import Daemon
from worker.heartbeat import Flags, Heartbeat
from worker.last_words import LastWords
from worker.lease import Lease
from worker.logs import open_log
from worker.open_files import OpenFiles
from worker.plan import WorkerPlan
from worker.runners import AsyncThread, ThreadRunner
from worker.startup import Start, begin, plan_of
from worker.worker import Worker

_log = logging.getLogger(__name__)

#: When the garbage collector looks. Tuples die by themselves; by Python's own numbers it takes 1.8 % of a busy worker's time
#: to find nothing, by these 0.2 % (measured with word counts over two workers).
COLLECTIONS: Final = (10_000, 10, 10)


def run(directory: str) -> NoReturn:
    """The life of a worker process."""
    begin_worker()
    open_files = OpenFiles()
    faulthandler.enable(file=2, all_threads=True)
    early = EarlySignals()
    gc.set_threshold(*COLLECTIONS)
    last_words = LastWords(directory, incarnation_of(directory), open_files)
    try:
        try:
            daemon = assemble(directory, begin(directory), last_words)
        except SquallError as error:
            last_words.end(EXIT_BAD_ORDERS, str(error))
        daemon.handle_signals(early.seen)
        announce(daemon)
        daemon.run()
    except MemoryError:
        last_words.end(EXIT_MEMORY, "out of memory, outside of any user's call", traceback.format_exc())
    except BaseException as error:
        reason = f"an error of Squall's own: {type(error).__name__}: {error}"
        last_words.end(EXIT_INTERNAL, reason, traceback.format_exc())


class EarlySignals:
    """What comes before the loop is there is kept for it."""

    def __init__(self) -> None:
        self.seen: list[int] = []
        for number in (signal.SIGUSR1, signal.SIGTERM):
            signal.signal(number, self.keep)
        # Ctrl-C goes to all processes of a terminal; what follows from it is decided by whoever started this one. A handler
        # of ours and not SIG_IGN, which the programs that user code starts would inherit.
        signal.signal(signal.SIGINT, ignore)
        os.register_at_fork(
            before=hold_signals, after_in_parent=release_signals, after_in_child=answer_as_python_would
        )

    def keep(self, number: int, frame: FrameType | None) -> None:
        """A signal has come."""
        self.seen.append(number)


def ignore(number: int, frame: FrameType | None) -> None:
    """Nothing follows from this signal."""


#: The signals that a thread that is forking held back before.
HELD = threading.local()


def hold_signals() -> None:
    """Before a fork: a signal for the child must not come to it while our handlers are still its own."""
    HELD.before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1, signal.SIGTERM, signal.SIGINT})


def release_signals() -> None:
    """After a fork."""
    signal.pthread_sigmask(signal.SIG_SETMASK, HELD.before)


def answer_as_python_would() -> None:
    """A child that user code has forked is no worker: signals do to it what they do to any Python."""
    signal.signal(signal.SIGUSR1, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    release_signals()


def incarnation_of(directory: str) -> Incarnation:
    """The incarnation by the orders, (0, 0) where they cannot be read: for the last words."""
    try:
        orders = read_orders(directory)
    except SquallError:
        orders = None
    return (0, 0) if orders is None else orders.incarnation


def assemble(directory: str, start: Start, last_words: LastWords) -> Daemon:
    """Put the worker together."""
    orders = start.orders
    log_lines = open_log(directory, orders.worker)

    def lease_is_over(seconds: float) -> None:
        last_words.end(
            EXIT_LEASE, f"the supervisor {orders.supervisor} has given no new lease for {seconds:.1f} s"
        )

    lease = Lease(directory, orders.lease_secs, lease_is_over)
    # A process before this one may have been killed, and its supervisor too.
    shutil.rmtree(os.path.join(directory, SCRATCH), ignore_errors=True)
    same_host.sweep()
    plan = plan_of(orders, start.topology, directory)
    within = port_range(os.environ.get(PORTS, ""))
    sockets = Sockets(start.keys, bind=orders.bind, host=orders.host, ports=orders.ports, within=within)
    name = f"{orders.topology}-{orders.worker}"
    worker = Worker(
        plan,
        lease,
        lambda peer, frame: exchange.send(peer, frame),
        ThreadRunner(name, sockets.wake),
        AsyncThread(name),
        sockets.wake,
    )
    exchange = links(plan, sockets, lease, worker)
    side = sockets.side()

    def send_signs(held: Mapping[str, list[Held]]) -> None:
        for address, parts in exchange.signs(held):
            side.send(address, parts)

    os.register_at_fork(after_in_child=lambda: end_runs(worker))
    calls = Calls(worker)
    log_lines.place = calls.place
    daemon = Daemon(
        directory, orders, start.topology, worker, exchange, sockets, lease, last_words, send_signs
    )
    flags = Flags(orders.number, "pause", orders.version)
    daemon.heartbeat = Heartbeat(
        directory, orders.incarnation, sockets.address, flags, lease, calls, daemon, last_words
    )
    return daemon


def end_runs(worker: Worker) -> None:
    """In a child that user code has forked: should its call return, the run that it was in does not go on to the next tuple,
    but comes back to the worker, which ends the child."""
    for task in worker.tasks.values():
        task.emitter.emitted += 1 << 62  # more than any run may emit


def links(plan: WorkerPlan, sockets: Sockets, lease: Lease, worker: Worker) -> Exchange:
    """The worker's links to its peers."""
    return Exchange(
        plan.worker,
        plan.incarnation,
        sockets,
        lease,
        Streams.of(plan.topology, plan.component_of),
        plan.conf["topology.transport.codec"],
        worker.window_of,
        worker.peers,
        int(plan.conf["topology.cycle.buffer"]),
    )


def announce(daemon: Daemon) -> None:
    """The first lines of the log: what this process is."""
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
        platform.python_version(),
    )
    data, control = daemon.exchange.carrier.address
    _log.info("tasks: %s; hears tuples at %s and the rest at %s", tasks or "none", data, control)
