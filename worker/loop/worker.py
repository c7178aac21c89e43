"""A worker: one loop that runs all its tasks in turn. The core of the worker process, without I/O.

One `step`: take what arrived, run the bolts that have input, settle trees, call the spouts, send what is full (or, when
there is nothing else to do, everything). Frames come in by `deliver` and go out by `send`; time is the caller's; `next_time`
says when a step is due though nothing arrives. So a process with sockets, a thread of a local cluster and a simulation
drive the same object.
Must not know: sockets, threads (see `worker.runners`), the store, Nimbus.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from squall.clock import Clock
from squall.transport.exchange import RENUMBERED
from squall.transport.frames import Batch, Frame, Held, Unsent
from squall.transport.link import remembered
from topology_api import EmitError
from worker.async_bolt_task import AsyncBoltTask
from worker.bolt_task import BoltTask
from worker.build import Surroundings, build_task
from worker.cycles import CycleWatch
from worker.emitter import short
from worker.endings import Endings
from worker.forks import end_returned_fork
from worker.links import Flush, Links
from worker.peers import Peers
from worker.plan import WorkerPlan
from worker.replanning import replan
from worker.reports import ErrorLog, ErrorReport, make_report
from worker.runners import Calls, Runner
from worker.settling import Settling
from worker.spout_task import SpoutTask
from worker.task import Task
from worker.timers import Timers

#: Seconds after which everything is sent though the loop has more to do.
LONGEST_WAIT_IN_OUTBOX = 0.05
#: Seconds between two looks of a busy worker for tuples whose tasks have nothing to do, unless it is about to pause; and how
#: much longer than a look the time until the next one is at least.
IDLE_FLUSH_SECONDS = 0.002
IDLE_FLUSH_PAUSE = 20


class AsyncDriver(Protocol):
    """The worker's asyncio loop: `worker.runners.AsyncThread` or `SimulatedAsync`."""

    def submit(self, calls: Calls) -> None: ...

    def step(self) -> bool: ...

    def next_time(self) -> float | None: ...

    def stop(self) -> None: ...


class Worker:
    """The tasks of one worker, and the loop's step."""

    def __init__(
        self,
        plan: WorkerPlan,
        clock: Clock,
        send: Callable[[str, Frame], None],
        runner: Runner,
        asyncio_driver: AsyncDriver,
        wake: Callable[[], None],
        inline: bool = False,
    ) -> None:
        self.plan = plan
        self.name = plan.worker
        self.now = clock.now
        self.send = send
        self.runner = runner
        self.asyncio_driver = asyncio_driver
        self.process = os.getpid()
        #: Threaded tasks run in the loop too (simulated time).
        self.inline = inline
        self.ground = Surroundings(plan, clock.now, wake, asyncio_driver)
        self.arrived: deque[Frame] = deque()
        self.cycles = CycleWatch(self.name, plan.cycles())
        self.links = Links(self.name, dict(plan.worker_of), self.window_of, send, self.cycles, plan.linked)
        self.links.cycle_buffer = int(plan.conf["topology.cycle.buffer"])
        spouts = [task for spec in plan.topology.spouts for task in plan.tasks_of[spec.id]]
        self.settling = Settling(self.name, plan.worker_of, spouts)
        self.tasks: dict[int, Task] = {}
        #: Tasks that are closed since another assignment came: what they did still counts.
        self.former: list[Task] = []
        self.spouts: list[SpoutTask] = []
        self.bolts: list[BoltTask] = []
        self.async_bolts: list[AsyncBoltTask] = []
        self.ready: deque[BoltTask] = deque()
        self.errors: dict[str, ErrorLog] = {spec.id: ErrorLog() for spec in plan.topology.components}
        self.crash: ErrorReport | None = None
        #: The crash is that a task could not be made, opened or prepared.
        self.unopened = False
        #: The task that the loop is in the middle of a job of; other threads ask what a slow worker is doing.
        self.running: Task | None = None
        self.started = self.stopped = self.draining = False
        self.timers = Timers(plan, clock.now())
        #: When the clock was last looked at after a job in the loop.
        self.looked = clock.now()
        self.last_flush = clock.now()
        #: When a busy worker looks for tuples whose tasks have nothing to do.
        self.next_idle_flush = clock.now()
        #: The same of one that has nothing to do in its next round but what may come in.
        self.next_pause_flush = clock.now()
        #: The seconds of the last round of the loop, but for those of verdicts that had waited.
        self.round_took = 0.0
        self.endings = Endings(self)
        self.cycles.is_idle = self.endings.cycle_idle
        #: What the transport tells of other workers.
        self.peers = Peers(self)

    # Life.

    def start(self) -> None:
        """Make the tasks and have them opened."""
        self.started = True
        self.open_tasks(self.plan.own_tasks)

    def open_tasks(self, rows: list[tuple[int, str, int]]) -> None:
        """Make tasks and have them opened; bolts first, so that a spout's first tuple finds them prepared."""
        made: list[Task] = []
        for task_id, component, index in sorted(
            rows, key=lambda row: self.plan.topology.component(row[1]).kind
        ):
            try:
                task = build_task(self.ground, task_id, component, index)
            except BaseException as error:
                report = make_report(
                    self.plan.topology.name, component, task_id, "start", error, None, self.now()
                )
                self.take_reports([report])
                self.crash, self.unopened = self.crash or report, True
                return
            self.tasks[task_id] = task
            made.append(task)
            if isinstance(task, SpoutTask):
                task.draining = self.draining
                self.spouts.append(task)
                self.settling.spouts[task_id] = task
            elif isinstance(task, BoltTask):
                self.bolts.append(task)
                self.links.tasks[task_id] = task
                if not task.threaded or self.inline:
                    task.xors = self.settling.shared
        self.async_bolts = [task for task in self.bolts if isinstance(task, AsyncBoltTask)]
        self.timers.now = self.now()
        self.timers.add_ticks(bolt for bolt in made if isinstance(bolt, BoltTask))
        for task in made:
            if isinstance(task, SpoutTask) and task.id in self.plan.finished:
                task.finished = task.opened = task.closed = True
                continue
            self.execute(task, task.start)
            if self.crash:
                return

    def replan(self, plan: WorkerPlan) -> None:
        """Run the tasks of another assignment from now on; those that stay are not disturbed."""
        replan(self, plan)

    def window_of(self, task: int) -> int:
        """Frames that may be under way to a task."""
        return self.plan.window_of(task)

    @property
    def opened(self) -> bool:
        """Whether every task was opened or prepared."""
        return self.started and bool(self.tasks) and all(task.opened for task in self.tasks.values())

    @property
    def ended(self) -> bool:
        """Whether every task has ended and nothing is left to do."""
        return self.opened and all(task.ended for task in self.tasks.values())

    @property
    def drained(self) -> bool:
        """Told to drain, nothing is pending or waiting any more."""
        return self.draining and self.spouts_drained and self.idle

    @property
    def spouts_drained(self) -> bool:
        """Whether no tree of a spout here is open."""
        return not any(task.pending or task.busy or task.has_verdicts for task in self.spouts)

    @property
    def idle(self) -> bool:
        """Whether nothing waits here, in no queue and no outbox."""
        if self.arrived or self.settling.waiting:
            return False
        return all(self.at_rest(task) for task in [*self.bolts, *self.spouts])

    @property
    def pauses(self) -> bool:
        """Whether no task wants to run in the loop; one whose thread is busy is not asked, and nobody else may touch it."""
        return not self.ready and not any(not spout.jobs and spout.wants_run() for spout in self.spouts)

    def at_rest(self, task: Task) -> bool:
        """Whether nothing waits in or at a task."""
        if task.busy or task.inbox or task.emitter.dirty:
            return False
        return not isinstance(task, BoltTask) or not task.buffered()

    def activate(self) -> None:
        """Have the spouts go on."""
        self.set_active(True)

    def deactivate(self) -> None:
        """Have the spouts pause; what is under way goes on."""
        self.set_active(False)

    def set_active(self, active: bool) -> None:
        """Change the spouts' state, and tell them. A drain is over: that of a rebalance that changed nothing."""
        self.draining = False
        for spout in self.spouts:
            spout.draining = False
            if spout.active != active and spout.opened:
                spout.active = active
                self.execute(spout, lambda spout=spout: spout.call("activate" if active else "deactivate"))  # type: ignore[misc]

    def drain(self) -> None:
        """No more next_tuple; work off what is pending."""
        self.draining = True
        for spout in self.spouts:
            spout.draining = True

    def stop(self) -> None:
        """End all tasks: what is pending fails as stopped; close and cleanup are called. Spouts first."""
        if self.stopped:
            return
        self.stopped = True
        self.asyncio_driver.stop()
        self.settling.finish()
        for task in [*self.spouts, *self.bolts]:
            task.stopped = True
            if task.threaded and not self.inline:
                self.runner.submit(task.id, task.close)
            else:
                self.running, task.busy_since = task, self.now()
                task.close()
        self.running = None
        self.runner.stop()
        for task in self.tasks.values():
            self.take_reports(task.reports)

    def has_arrivals(self) -> bool:
        """Whether frames have come that were not looked at yet."""
        return bool(self.arrived)

    def deliver(self, frame: Frame) -> None:
        """A frame of another worker has come (thread-safe); it is looked at in the next step."""
        self.arrived.append(frame)

    # The loop.

    def step(self) -> bool:
        """Do what can be done now, for a bounded time; whether anything was done."""
        if not self.started or self.stopped or self.crash:
            return False
        now = self.now()
        busy = self.take_arrived(now)
        busy |= self.asyncio_driver.step()
        for task_id in self.runner.collect():
            busy = True
            self.ran(self.tasks[task_id], now)
        for bolt in self.async_bolts:
            if bolt.over:  # its calls end on the asyncio loop, which can only wake this one
                self.queue(bolt)
        self.run_timers(now)
        bolts_ran = self.run_bolts()
        settles = self.settling.advance(self.now, self.round_took)
        spouts_ran = self.run_spouts()
        busy |= bolts_ran or spouts_ran
        busy |= self.links.flush_retries()
        busy |= settles
        if not busy or now - self.last_flush >= LONGEST_WAIT_IN_OUTBOX:
            busy |= self.flush_all(now)
        elif settles or now >= self.next_idle_flush or (now >= self.next_pause_flush and self.pauses):
            self.flush_idle()
        if not self.crash and (not busy or now >= self.endings.next_look):
            busy |= self.endings.advance(now)
        self.wake_bolts()
        self.send_controls()
        self.round_took = self.now() - now - self.settling.took
        return busy

    def take_arrived(self, now: float) -> bool:
        """Look at the frames that have come."""
        took = False
        arrived = self.arrived
        while arrived:
            took = True
            frame = arrived.popleft()
            if isinstance(frame, Batch):
                if frame.target in self.links.tasks:
                    self.links.arrive(frame)
                elif frame.rows:  # for a task that is gone from here
                    self.peers.lost([remembered(frame, 0)], RENUMBERED)
                continue
            self.settling.arrived(frame, now)
            for target, upto in frame.grants.items():
                self.links.granted(target, upto)
            for message in frame.cycles:
                self.cycles.take(message)
            for lost in frame.unsent:
                self.take_unsent(lost, now)
            if frame.hurry:
                self.endings.hurry_here()
        self.wake_bolts()
        return took

    def take_unsent(self, lost: Unsent, now: float) -> None:
        """A tuple of a task here could not be encoded, or one for it not decoded: report it, and let no cycle wait for it."""
        if lost.cycle >= 0:
            self.cycles.unsent(lost.cycle, self.links.worker_of[lost.target], 1)
        name, error = self.plan.topology.name, EmitError(lost.error)
        values = f"values {short(lost.values)}" if lost.call else None
        report = make_report(name, lost.component, lost.task, lost.call, error, values, now)
        task = self.tasks.get(lost.task)
        self.take_reports([report], task is not None and task.crash_on_error)

    def wake_bolts(self) -> None:
        """Queue the bolt tasks that got input."""
        woken, self.links.woken = self.links.woken, []
        for task in woken:
            self.queue(task)

    def queue(self, task: BoltTask) -> None:
        """Have a bolt task run in the next round."""
        if not task.queued and task.opened and task.wants_run():
            task.queued = True
            self.ready.append(task)

    def run_bolts(self) -> bool:
        """One round: each bolt task that is ready runs once, unless that takes long: what is settled must not wait."""
        ran = False
        until = self.now() + LONGEST_WAIT_IN_OUTBOX
        for _ in range(len(self.ready)):
            task = self.ready.popleft()
            task.queued = False
            if task.jobs or task.blocked or self.crash:
                continue
            ran = True
            self.execute(task, task.run)
            if self.looked >= until:
                break
        if ran:
            self.settling.take_xors(self.settling.shared)
        self.wake_bolts()
        return ran

    def run_spouts(self) -> bool:
        """Each spout that has verdicts to give, replays that are due, or may emit, runs once."""
        ran = False
        for spout in self.spouts:
            if not spout.jobs and not self.crash and spout.wants_run():
                ran = True
                self.execute(spout, spout.run)
        return ran

    def execute(self, task: Task, job: Callable[[], Any]) -> None:
        """Run a job of a task: here, or in the task's thread."""
        if not task.jobs:
            task.busy_since = self.now()
        task.jobs += 1
        if task.threaded and not self.inline:
            self.runner.submit(task.id, job)
        else:
            self.running = task
            job()
            self.running = None
            end_returned_fork(self.process)
            self.looked = self.now()
            self.ran(task, self.looked)

    def ran(self, task: Task, now: float) -> None:
        """A run has ended: collect what it left."""
        task.jobs -= 1
        task.waits_for = ""
        if task.jobs:
            return  # the next job of its thread has the task already; what this one left is taken after it
        if task.done:
            done, task.done = task.done, []
            for batch in done:
                self.links.done(batch)
        if isinstance(task, BoltTask):
            self.settling.take(task, now)
        elif isinstance(task, SpoutTask) and (
            task.late_xors or task.late_failures or self.settling.late_held
        ):
            self.settling.late(task, now)
        if task.reports:
            self.take_reports(task.reports, task.crash_on_error)
        if task.abandoned is not None:
            self.crash, self.unopened = self.crash or task.abandoned, True
        if task.emitter.emitted - task.flushed_at >= task.limits.frame:
            task.flushed_at = task.emitter.emitted
            self.links.flush(task, Flush.FULL)
        if isinstance(task, BoltTask):
            self.queue(task)

    def take_reports(self, reports: list[ErrorReport], crash: bool = False) -> None:
        """Keep the error reports; with `crash` the first error of the user's code ends the topology."""
        for report in reports:
            self.errors[report.component].add(report)
            if crash and self.crash is None and report.call:
                self.crash = report
        reports.clear()

    def flush_all(self, now: float) -> bool:
        """Send whatever is in outboxes, as far as there is credit."""
        self.last_flush = now
        sent = False
        for task in self.tasks.values():
            if not task.jobs and task.emitter.dirty:
                task.flushed_at = task.emitter.emitted
                sent |= self.links.flush(task, Flush.ALL)
                if isinstance(task, BoltTask) and not task.blocked:
                    self.queue(task)
        return sent

    def flush_idle(self) -> None:
        """Send what is in outboxes for tasks that wait for it, though this worker is busy; now and then, and so rarely that it
        takes a small share of the time."""
        began = self.now()
        for task in self.tasks.values():
            if not task.jobs and task.emitter.dirty:
                self.links.flush(task, Flush.IDLE)
                if isinstance(task, BoltTask) and not task.blocked:
                    self.queue(task)
        ended = self.now()
        self.next_pause_flush = ended + IDLE_FLUSH_PAUSE * (ended - began)
        self.next_idle_flush = max(ended + IDLE_FLUSH_SECONDS, self.next_pause_flush)

    def send_controls(self) -> None:
        """Send what other workers are to know."""
        settling, cycles = self.settling, self.cycles
        for worker, message in cycles.outgoing:
            settling.control(worker).cycles.append(message)
        cycles.outgoing.clear()
        if settling.controls or self.links.grants:
            grants, self.links.grants = self.links.grants, {}
            for worker, control in settling.outgoing(grants):
                self.send(worker, control)

    # What is due at a time.

    def run_timers(self, now: float) -> None:
        """Ticks, signs of life, timeouts, batches whose interval has passed; in this order."""
        timers = self.timers
        for task in timers.due_ticks(now):
            if not task.end_called:
                task.tick_due = True
                self.queue(task)
        if now >= timers.next_report or now >= timers.next_expiry:
            self.settling.finish()  # no tree must time out, here or elsewhere, whose verdict is here
        if now >= timers.next_report:
            self.report_held(now)
        if now >= timers.next_expiry:
            timers.next_expiry = now + timers.expiry_every
            for spout in self.spouts:
                if not spout.busy:
                    spout.tracker.expire(now)
        for bolt in timers.batch_bolts:
            if bolt.overdue():
                self.queue(bolt)

    def report_held(self, now: float) -> None:
        """Tell the trackers which trees merely wait in this worker's queues, so that they do not time out."""
        self.timers.next_report = now + self.timers.report_every
        for task in self.tasks.values():
            roots = task.held_roots()
            if roots:
                self.settling.held(Held(task.spec.id, task.id, tuple(roots)), now)
        for frame in list(self.arrived):  # come in, but in no inbox yet
            if isinstance(frame, Batch) and (roots := frame.held_roots(0)):
                component = self.plan.component_of[frame.target]
                self.settling.held(Held(component, frame.target, tuple(roots)), now)
        self.send_controls()

    def next_time(self) -> float | None:
        """When a step is due though nothing arrives; None: never."""
        if not self.started or self.stopped or self.crash:
            return None
        times = [spout.next_time() for spout in self.spouts if not spout.busy]
        times += [bolt.deadline for bolt in self.timers.batch_bolts]
        times += [self.timers.next_tick(), self.asyncio_driver.next_time()]
        if any(spout.tracker.pending for spout in self.spouts):
            times.append(self.timers.next_expiry)
        if any(not self.at_rest(task) and task.holds_trees() for task in self.tasks.values()):
            times.append(self.timers.next_report)
        times.append(self.endings.next_time())
        return min((time for time in times if time is not None), default=None)
