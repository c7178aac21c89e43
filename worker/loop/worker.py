"""A worker: one loop that runs all its tasks in turn. The core of the worker process, without I/O.

One `step`: process frames that arrived, run the bolts that have input, route acks, call the spouts, and send full frames (or
all frames, if there is nothing else to do). Frames come in by `deliver` and leave by `send`; the caller provides the clock;
`next_time` gives the time at which a step is due even if nothing arrives. So a process with sockets, a thread of a local
cluster and a simulation can all drive the same class.
Must not know: sockets, threads (see `worker.tasks.runners`), the store, Nimbus.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from squall.clock import Clock
from squall.transport.frames import Batch, Control, Frame, KeepAlive, Unsent
from squall.transport.in_flight import RENUMBERED, SentBatch
from squall.values import TaskRow
from topology_api import EmitError
from worker.errors.reports import ErrorLog, ErrorReport, make_report
from worker.loop.ack_router import AckRouter
from worker.loop.build import TaskEnvironment, build_task
from worker.loop.completion import Completion
from worker.loop.cycles import CycleWatch
from worker.loop.detours import Detours
from worker.loop.links import LONGEST_WAIT_IN_OUTBOX, Flush, Flushing, Links
from worker.loop.peers import Peers, keep_alives, unexecuted
from worker.loop.plan import WorkerPlan
from worker.loop.reassignment import Reassignment
from worker.loop.task_table import TaskTable
from worker.loop.threaded_tasks import ThreadedTasks
from worker.loop.timers import Timers
from worker.tasks.async_bolt import AsyncBoltTask
from worker.tasks.bolt import BoltTask
from worker.tasks.emitter import short
from worker.tasks.runners import AsyncDriver, end_returned_fork
from worker.tasks.scratch import remove_scratch
from worker.tasks.spout import SpoutTask
from worker.tasks.task import Task


class Worker:
    """The tasks of one worker, and the loop's step."""

    kind_of_links: type[Links] = Links

    def __init__(
        self,
        plan: WorkerPlan,
        clock: Clock,
        send: Callable[[str, Frame], None],
        asyncio_driver: AsyncDriver,
        wake: Callable[[], None],
        inline: bool = False,
    ) -> None:
        """`inline`: run even threaded tasks in the loop (for simulated time)."""
        now = clock.now
        self.plan = plan
        self.name = plan.worker
        self.now = now
        self.send = send
        self.asyncio_driver, self.inline = asyncio_driver, inline
        self.environment = TaskEnvironment(plan, now, wake, asyncio_driver)
        #: Frames that the next step processes.
        self.arrived: deque[Frame] = deque()
        self.wake = wake
        self.table = TaskTable()
        #: The table's own lists: each round reads them.
        self.tasks, self.spouts, self.bolts = self.table.by_id, self.table.spouts, self.table.bolts
        self.async_bolts, self.ready = self.table.async_bolts, self.table.ready
        self.queue = self.table.queue
        self.cycles = CycleWatch(self.name, plan.cycles())
        owner, windows = dict(plan.worker_of), self.window_of
        self.links = self.kind_of_links(self.name, owner, windows, send, self.cycles, plan.linked)
        self.links.cycle_buffer = int(plan.conf["topology.cycle.buffer"])
        self.threads = ThreadedTasks(f"{plan.topology.name}-{plan.worker}", self.links, wake)
        self.ack_router = AckRouter(self.name, plan.worker_of, plan.spout_tasks)
        self.timers = Timers(plan, now())
        self.flushing = Flushing(self.table, self.links, now)
        self.completion = Completion(
            plan, self.table, self.links, self.cycles, self.ack_router, self.timers, self.arrived, now
        )
        self.cycles.is_idle = self.completion.cycle_idle
        self.detours = Detours(plan, self.tasks, self.ack_router, self.timers, self.queue)
        self.peers = Peers(
            plan.component_of,
            self.arrived,
            self.links,
            self.cycles,
            self.ack_router,
            self.completion,
            self.detours,
        )
        self.errors: dict[str, ErrorLog] = {spec.id: ErrorLog() for spec in plan.topology.components}
        self.crash: ErrorReport | None = None
        #: Whether the crash happened because a task could not be created, opened or prepared.
        self.unopened = False
        #: The task whose job the loop is running. Other threads read it, to report what a slow worker is doing.
        self.running: Task | None = None
        self.started = self.stopped = self.draining = False
        #: Whether this version is on trial: then no failure uses up a tuple's attempts.
        self.on_trial = False
        #: When the clock was last read after a job in the loop.
        self.clock_read = now()
        #: Seconds that the last round of the loop took, without the routing of queued acks.
        self.round_took = 0.0

    # Life.

    def start(self) -> None:
        """Create the tasks, and begin to open them."""
        self.started = True
        self.open_tasks(self.plan.own_tasks)

    def open_tasks(self, rows: list[TaskRow]) -> None:
        """Create tasks, and begin to open them: bolts first, so that they are prepared when a spout's first tuple arrives."""
        made: list[Task] = []
        rows = sorted(rows, key=lambda row: self.plan.topology.component(row[1]).kind)
        for task_id, component, index in rows:
            try:
                task = build_task(self.environment, task_id, component, index)
            except BaseException as error:
                report = make_report(
                    self.plan.topology.name, component, task_id, "start", error, None, self.now()
                )
                self.take_reports([report])
                self.crash, self.unopened = self.crash or report, True
                return
            self.table.add(task)
            made.append(task)
            if task.threaded and not self.inline:
                self.threads.add(task)
            if isinstance(task, SpoutTask):
                task.draining = self.draining
                task.outages.on_trial = self.on_trial
                self.ack_router.spouts[task_id] = task
            elif isinstance(task, BoltTask):
                self.links.tasks[task_id] = task
                if not task.threaded or self.inline:
                    task.xors = self.ack_router.shared
                if isinstance(task, AsyncBoltTask) or (task.threaded and not self.inline):
                    task.reset_now = partial(self.reset_timeouts, task)
        if self.detours.avoided:
            self.detours.apply(made)
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
        """Run the tasks of a new assignment from now on; tasks that stay are not disturbed."""
        change = Reassignment.between(self.plan, plan)
        for task in change.leaving(self.tasks.values()):
            self.remove(task)
        self.plan = self.environment.plan = self.completion.plan = plan
        self.peers.component_of = plan.component_of
        self.links.assign(plan.worker_of, change.moved, plan.linked)
        self.ack_router.assign(plan.worker_of, plan.spout_tasks)
        self.cycles.renew(plan.cycles())
        self.timers.assign(plan)
        for task in self.tasks.values():
            self.peers.lost(change.reroute(task), RENUMBERED)
        self.detours.assign(plan, change.moved)
        if self.started:
            self.open_tasks([row for row in plan.own_tasks if row[0] not in self.tasks])
            self.completion.repeat_ends(change.moved.__contains__)

    def remove(self, task: Task) -> None:
        """Close a task that leaves this worker. The tuples in its inbox are lost, but its counters and acks are kept."""
        self.ack_router.finish()  # a spout's trees that have already been acked must not fail now
        if task.threaded and not self.inline:
            self.threads.finish(task)
        else:
            task.close()
        self.take_reports(task.reports)
        self.table.remove(task)
        if isinstance(task, BoltTask):
            self.peers.lost(unexecuted(task), RENUMBERED)
            self.ack_router.collect(task, self.now())
            task.inbox.clear()
            self.timers.drop(task)
        else:
            self.ack_router.spouts.pop(task.id, None)
        self.links.forget_task(task.id)
        remove_scratch(self.plan.scratch(task.spec.id, task.context.index))

    def window_of(self, task: int) -> int:
        """Return the number of frames that may be in flight to a task."""
        return self.plan.window_of(task)

    @property
    def opened(self) -> bool:
        """Whether every task was opened or prepared."""
        return self.started and self.table.opened

    @property
    def finished_spouts(self) -> set[int]:
        """The spout tasks that need not be opened again after the end of this process."""
        return {spout.id for spout in self.spouts if spout.exhausted}

    @property
    def ended(self) -> bool:
        """Whether every task has ended and nothing is left to do."""
        return self.opened and all(task.ended for task in self.tasks.values())

    @property
    def drained(self) -> bool:
        """Whether the worker is draining, and nothing is pending or waiting any more."""
        return self.draining and self.table.spouts_drained and self.idle

    @property
    def idle(self) -> bool:
        """Whether nothing waits here, in any queue or outbox."""
        return not (self.arrived or self.ack_router.queued) and self.table.at_rest

    def set_active(self, active: bool) -> None:
        """Let the spouts emit, or make them pause; call their `activate` or `deactivate`. Tuples in flight are still processed.

        This also ends a drain: a rebalance that changes nothing leaves the worker draining until this call.
        """
        self.draining = False
        for spout in self.spouts:
            spout.draining = False
            if spout.active != active and spout.opened:
                spout.active = active
                self.execute(spout, lambda spout=spout: spout.call("activate" if active else "deactivate"))  # type: ignore[misc]

    def drain(self) -> None:
        """Stop calling next_tuple; finish pending trees."""
        self.draining = True
        for spout in self.spouts:
            spout.draining = True

    def stop(self) -> None:
        """End all tasks, spouts first: pending trees fail with the reason "stopped"; then close and cleanup are called."""
        if self.stopped:
            return
        self.stopped = True
        self.asyncio_driver.stop()
        self.ack_router.finish()
        for task in [*self.spouts, *self.bolts]:
            task.stopped = True
            if task.threaded and not self.inline:
                self.threads.close(task)
            else:
                self.running, task.busy_since = task, self.now()
                task.close()
        self.running = None
        self.threads.runner.stop()
        for task in self.tasks.values():
            self.take_reports(task.reports)

    def deliver(self, frame: Frame) -> None:
        """Queue a frame of another worker for the next step (thread-safe)."""
        self.arrived.append(frame)

    def reset_timeouts(self, task: BoltTask, roots: list[int]) -> None:
        """Reset the timeout of trees for a call that is still running, in any thread."""
        self.ack_router.resets.append(KeepAlive(task.spec.id, task.id, tuple(roots)))
        self.wake()

    # The loop.

    def step(self) -> bool:
        """Do the work that is possible now, for a bounded time; return whether anything was done."""
        if not self.started or self.stopped or self.crash:
            return False
        now = self.now()
        busy = self.process_arrived(now)
        busy |= self.asyncio_driver.step()
        if self.ack_router.resets:
            self.ack_router.route_resets(now)
        busy |= self.threads.visit(now)
        for task_id in self.threads.runner.collect():
            busy = True
            self.ran(self.tasks[task_id], now)
        for bolt in self.async_bolts:
            # The bolt's calls end on the asyncio loop, which cannot queue the bolt, and only wakes the worker's loop.
            if bolt.over:
                self.queue(bolt)
        self.run_timers(now)
        bolts_ran = self.run_bolts()
        routed = self.ack_router.advance(self.now, self.round_took)
        spouts_ran = self.run_spouts()
        busy |= bolts_ran or spouts_ran
        busy |= self.links.flush_retries()
        busy |= routed
        if not busy or self.flushing.all_due(now):
            busy |= self.flushing.flush_all(now)
        elif routed or self.flushing.idle_due(now):
            self.flushing.flush_idle()
        if not self.crash and (not busy or now >= self.completion.next_check):
            busy |= self.completion.advance(now, self.draining)
        self.wake_bolts()
        self.send_controls()
        self.round_took = self.now() - now - self.ack_router.took
        return busy

    def process_arrived(self, now: float) -> bool:
        """Process the frames that have arrived; return whether there were any."""
        if not self.arrived:
            return False
        while self.arrived:
            frame = self.arrived.popleft()
            if isinstance(frame, Control):
                self.process_control(frame, now)
                continue
            assert isinstance(frame, Batch)
            if frame.target in self.links.tasks:
                self.links.arrive(frame)
            elif frame.rows:  # tuples for a task that is no longer here
                self.peers.lost([SentBatch.of(frame)], RENUMBERED)
        self.wake_bolts()
        return True

    def process_control(self, control: Control, now: float) -> None:
        """Process a control frame of another worker."""
        self.ack_router.receive(control, now)
        for target, upto in control.grants.items():
            self.links.granted(target, upto)
        for message in control.cycles:
            self.cycles.receive(message)
        for lost in control.unsent:
            self.take_unsent(lost, now)
        if control.flush:
            self.completion.flush_here()
        for task, root in control.down:
            if root > 0:
                self.detours.hear(task, root, None)
            else:
                self.detours.receive(task, root)
        for task, root, claim in control.claims:
            self.detours.hear(task, root, claim)

    def take_unsent(self, lost: Unsent, now: float) -> None:
        """Report a tuple that could not be encoded or decoded; the tuple's cycle does not wait for it."""
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

    def run_bolts(self) -> bool:
        """Run each ready bolt task once, for a bounded time, so that acks need not wait."""
        ran = False
        until = self.now() + LONGEST_WAIT_IN_OUTBOX
        for _ in range(len(self.ready)):
            task = self.ready.popleft()
            task.queued = False
            if task.jobs or task.blocked or self.crash:
                continue
            ran = True
            self.execute(task, task.run)
            if self.clock_read >= until:
                break
        if ran:
            self.ack_router.collect_acks(self.ack_router.shared)
        self.wake_bolts()
        return ran

    def run_spouts(self) -> bool:
        """Run each spout that has final calls to make, has replays due, or may emit: once each."""
        ran = False
        for spout in self.spouts:
            if not spout.jobs and not self.crash and spout.wants_run():
                ran = True
                self.execute(spout, spout.run)
        return ran

    def execute(self, task: Task, job: Callable[[], Any]) -> None:
        """Run a job of a task, here or in the task's thread."""
        if not task.jobs:
            task.busy_since = self.now()
        task.jobs += 1
        if (growth := self.environment.growth) is not None:
            job = growth.begin(task, job)
        if task.threaded and not self.inline:
            self.threads.submit(task, job)
        else:
            self.running = task
            job()
            self.running = None
            end_returned_fork(task.process)
            self.clock_read = self.now()
            self.ran(task, self.clock_read)

    def ran(self, task: Task, now: float) -> None:
        """Collect the results of a run that has ended."""
        task.jobs -= 1
        if not isinstance(task, SpoutTask):  # what a spout waits for, it waits for between two calls
            task.waits_for = ""
        if task.jobs:
            return  # the task's thread already runs its next job: the results are collected after that job
        if task.done:
            done, task.done = task.done, []
            for batch in done:
                self.links.done(batch)
        if isinstance(task, BoltTask):
            self.ack_router.collect(task, now)
        elif isinstance(task, SpoutTask):
            self.ack_router.deliver_late(task, now)
            for claim in self.ack_router.claim_failures(task, now) if task.to_tell else ():
                self.detours.hear(*claim)
        if task.reports:
            self.take_reports(task.reports, task.crash_on_error)
        if task.abandoned is not None:
            self.crash, self.unopened = self.crash or task.abandoned, True
        if task.emitter.emitted - task.flushed_at >= task.limits.frame:
            task.flushed_at = task.emitter.emitted
            self.links.flush(task, Flush.FULL)
        if isinstance(task, BoltTask):
            if task.probing is not None or self.timers.probing:
                self.detours.check(task)
            self.queue(task)

    def take_reports(self, reports: list[ErrorReport], crash: bool = False) -> None:
        """Keep error reports; with `crash` the last error of the user's code, at which the task stopped, ends the topology."""
        cause = None
        for report in reports:
            self.errors[report.component].add(report)
            cause = report if report.call else cause
        if crash and self.crash is None:
            self.crash = cause
        reports.clear()

    def send_controls(self) -> None:
        """Send the control frames for other workers."""
        router, cycles = self.ack_router, self.cycles
        for worker, message in cycles.outgoing:
            router.control(worker).cycles.append(message)
        cycles.outgoing.clear()
        if router.controls or self.links.grants:
            grants, self.links.grants = self.links.grants, {}
            for worker, control in router.drain_controls(grants):
                self.send(worker, control)

    # Timers.

    def run_timers(self, now: float) -> None:
        """Run due timers, in this order: ticks, keep-alives, timeouts, batches whose interval has passed."""
        timers = self.timers
        for task in timers.due_ticks(now):
            if not task.end_called:
                task.tick_due = True
                self.queue(task)
        if now >= timers.next_report or now >= timers.next_expiry:
            self.ack_router.finish()  # no tree may time out, here or elsewhere, while its acks wait here
        if now >= timers.next_report:
            self.send_keep_alives(now)
        if now >= timers.next_expiry:
            timers.next_expiry = now + timers.expiry_every
            for spout in self.spouts:
                if not spout.busy:
                    spout.tracker.expire(now)
        for bolt in timers.timed_bolts:
            if bolt.overdue():
                self.queue(bolt)
        for probed in timers.due_probes(now):
            if probed.wants_run():
                self.queue(probed)
            else:
                self.detours.ask_for_a_tuple(probed, now)

    def send_keep_alives(self, now: float) -> None:
        """Keep alive the trees that merely wait in this worker's queues."""
        self.timers.next_report = now + self.timers.report_every
        for waiting in keep_alives(self.tasks.values(), self.arrived, self.plan.component_of):
            self.ack_router.keep_alive(waiting, now)
        self.send_controls()

    def next_time(self) -> float | None:
        """Return the time at which a step is due even if nothing arrives; None if there is no such time."""
        if not self.started or self.stopped or self.crash:
            return None
        times = [spout.next_time() for spout in self.spouts if not spout.busy]
        timed = self.timers.timed_bolts  # what runs, or cannot, is looked at again when that ends
        times += [bolt.next_deadline() for bolt in timed if not (bolt.busy or bolt.blocked or bolt.yielded)]
        times += [self.timers.next_tick(), self.timers.next_probe(), self.asyncio_driver.next_time()]
        if any(spout.tracker.pending for spout in self.spouts):
            times.append(self.timers.next_expiry)
        if any(not task.at_rest() and task.holds_trees() for task in self.tasks.values()):
            times.append(self.timers.next_report)
        times += [self.completion.next_time(), self.threads.next_time()]
        return min((time for time in times if time is not None), default=None)
