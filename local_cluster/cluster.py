"""LocalCluster: a cluster on this machine, inside one process or with worker processes.

Nimbus, supervisors and workers are the same as in a distributed cluster. Only the store differs; inside one process, the
supervisors' process host and the transport differ too.
Must not know: how tasks run.
"""

from __future__ import annotations

import atexit
import math
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

from local_cluster.collector import PACE
from local_cluster.driver import RealTimeDriver, SimulatedDriver
from local_cluster.engine import Engine
from local_cluster.states import no_running_task, state_in_processes, state_of
from local_cluster.virtual_host import VirtualHost, WorkerSettings
from nimbus.lifecycle.cleanup import check_name
from nimbus.submission.submission import Submission
from squall.daemon.inside import is_worker
from squall.dead_letters.letter import DeadLetter
from squall.packages.distributions import check_ours
from squall.settings import Overrides, merged, overrides_of
from squall.status import TopologyStatus
from squall.transport.carriers.loopback import Loopback
from topology_api import InvalidConfig, NoSuchTopology, SquallError, Topology, TopologyFailed
from topology_api.options import MAX_WORKERS, OPTIONS
from topology_api.values import MAX_SECONDS, number_problem
from topology_api.wording import shown
from worker.loop.kinds import worker_class
from worker.loop.plan import WorkerPlan
from worker.loop.worker import Worker
from worker.tasks.runners import AsyncThread
from worker.tracking.dead_letters import MemoryLetters

if TYPE_CHECKING:
    from local_cluster.process_engine import ProcessEngine, WorkerView

#: The most calls of next_tuple at one instant of simulated time.
CALLS_AN_INSTANT = 1000
#: The longest time that `wait` and `advance` accept: a thousand years, since simulated time costs nothing.
LONGEST_SECS = 1000 * MAX_SECONDS


def longest_silence(site: Mapping[str, object], environment: Mapping[str, object]) -> float:
    """Return the site's `nimbus.supervisor.timeout.secs`; raise InvalidConfig for a bad value."""
    option = OPTIONS["nimbus.supervisor.timeout.secs"]
    value = {option.name: option.default, **site, **environment}[option.name]
    problem = option.problem(value)
    if problem is not None:
        raise InvalidConfig([f"{option.name!r} {problem}"])
    return cast(float, value)


class LocalCluster:
    """A cluster on this machine, for development and tests: in this process, or with worker processes.

    processes: each worker is a separate process, started by a supervisor. Workers communicate through ZeroMQ, on loopback
    addresses, and end with the cluster.
    supervisors, slots: the number of supervisors, and the number of workers that each may run.
    simulated_time (without processes): only `advance` moves time, and everything runs in the caller's thread. The same `seed`
    gives the same run, except for topology ids, which are always unique.
    encode (without processes): pass frames between workers through the codec, as a network would.
    observers (without processes): objects with the methods of `topology_api.Hook` that watch every task.
    settings: the options of the site and of the environment. A topology's own options and `-o` override them.

    Any thread may call a cluster. In one process, `submit`, `kill`, `activate`, `deactivate` and `rebalance` return even while
    a component's call runs or hangs. They wait only for calls that open or close a task; ten seconds after the beginning of
    such a call they raise SquallError, which names the call.
    """

    def __init__(
        self,
        *,
        processes: bool = False,
        supervisors: int = 1,
        slots: int = 64,
        simulated_time: bool = False,
        seed: int | None = None,
        encode: bool = False,
        observers: tuple[Any, ...] = (),
        settings: tuple[Mapping[str, object], Mapping[str, object]] = ({}, {}),
    ) -> None:
        refuse_inside_a_worker()
        inside = {"simulated_time": simulated_time, "encode": encode, "observers": observers}
        check_arguments(processes, {"supervisors": supervisors, "slots": slots}, seed, inside, settings)
        check_ours()
        self._site, self._environment = settings
        silence = longest_silence(*settings)
        self._directory: str | None = None
        # By topology; without processes.
        self._letters: dict[str, MemoryLetters] = {}
        self._closed = False
        self._process = os.getpid()
        self._driver: RealTimeDriver | SimulatedDriver
        self._driver = SimulatedDriver() if simulated_time else RealTimeDriver()
        self._engine: Engine | ProcessEngine
        if processes:
            from local_cluster.process_engine import ProcessEngine

            self._engine = ProcessEngine(
                self._driver.clock, supervisors, slots, silence, self._driver.control
            )
            atexit.register(self.shutdown)
        else:
            if seed is None:
                seed = 0 if simulated_time else int.from_bytes(os.urandom(8), "big")
            instant = CALLS_AN_INSTANT if simulated_time else None
            workers = WorkerSettings(
                self._name_directory, seed, encode, observers, instant, self._make_worker
            )
            self._engine = Engine(self._driver.clock, workers, supervisors, slots, self._driver.control)
            if isinstance(self._driver, RealTimeDriver):
                self._driver.running_call = self._engine.running_call
        self._driver.start(self._engine)
        self._paced = not processes
        if self._paced:
            PACE.begin()

    # Topologies.

    def submit(
        self,
        topology: Topology,
        conf: Mapping[str, object] | Overrides | None = None,
        *,
        name: str | None = None,
        active: bool = True,
        state: str = "",
    ) -> None:
        """Run a topology. `conf` overrides the topology's own configuration (if `conf` is Overrides, also the configuration of
        components); `name` overrides the topology's name. active=False: nothing is opened before `activate`. state: the epoch
        of a kept state with which the topology begins, such as "@17", "/folder/name" or "/folder/name@17" (default: the last
        commit at its `topology.state.path`). Raises NameTaken, InvalidConfig, InvalidTopology."""
        if not isinstance(topology, Topology):
            raise SquallError(
                f"submit() takes a Topology, as TopologyBuilder.build() returns it, not {type(topology).__name__}"
            )
        named = topology if name is None else topology.renamed(name)
        whole, components = merged(named, self._site, self._environment, overrides_of(conf), local=True)
        submission = Submission(named, whole, components, active, state_start=state)
        self._driver.command(lambda: self._engine.nimbus.submit(submission))

    def kill(self, name: str, wait_secs: float | None = None) -> None:
        """End a topology. Its spouts stop, and pending tuples may be processed for `wait_secs` (default: the message timeout);
        trees that are open after that time fail as "stopped". Returns at once; the name is free when the topology is gone."""
        self._driver.command(lambda: self._engine.nimbus.kill(name, wait_secs))

    def fail(self, name: str, error: str) -> None:
        """Mark a topology FAILED with this error, as a crash would do. For code that watches a topology and sees no
        progress."""
        self._driver.command(lambda: self._engine.nimbus.fail(name, error))

    def activate(self, name: str) -> None:
        """Start a topology's spouts, or start them again."""
        self._driver.command(lambda: self._engine.nimbus.activate(name))

    def deactivate(self, name: str) -> None:
        """Pause a topology's spouts; tuples in flight are still processed."""
        self._driver.command(lambda: self._engine.nimbus.deactivate(name))

    def rebalance(
        self, name: str, workers: int | None = None, parallelism: Mapping[str, int] | None = None
    ) -> None:
        """Redistribute a topology's tasks over `workers` workers once it has drained."""
        self._engine.count(name)  # workers say what is possible
        self._driver.command(lambda: self._engine.nimbus.rebalance(name, workers, parallelism))

    def topologies(self) -> list[str]:
        """Return the names of all topologies, the oldest first."""
        return [record.name for record in self._engine.registry.all_topologies()]

    def status(self, name: str) -> TopologyStatus:
        """Return the state and counters of a topology; raise NoSuchTopology for an unknown name."""
        self._engine.count(name)
        return self._engine.statuses.status(name)

    def last_status(self, name: str) -> TopologyStatus:
        """Like `status`. For a topology that is gone, return its final status, as long as the topology is one of those that
        ended most recently."""
        self._engine.count(name)
        return self._engine.statuses.last_status(name)

    @property
    def broken(self) -> BaseException | None:
        """The internal error that ended the cluster itself; None while the cluster works."""
        return self._driver.broken

    def wait(self, name: str, timeout: float | None = None) -> None:
        """Wait until a topology is completed. Raises TimeoutError after `timeout` real seconds (None or infinity: never), and
        TopologyFailed if the topology failed or was killed. Simulated time does not pass during the call: call `advance`
        first."""
        self._driver.check_outside("wait()")
        check_name(name)
        if isinstance(timeout, float) and timeout == math.inf:
            timeout = None
        if timeout is not None:
            check_seconds("wait", "timeout", timeout)
        if self._engine.registry.topologies.get(name) is None:
            self.last_status(name)  # raises NoSuchTopology if the topology is forgotten
        over = (
            self._driver.wait_for(lambda: self._over(name), timeout)
            if isinstance(self._driver, RealTimeDriver)
            else self._over(name)
        )
        record = self._engine.registry.topologies.get(name)
        if record is None or record.state == "KILLED":
            raise TopologyFailed(name, "it was killed before it was completed")
        if record.state == "FAILED":
            raise TopologyFailed(name, record.error or "for an unknown reason")
        if not over:
            hint = (
                "time is simulated: call advance(seconds)"
                if self._driver.simulated
                else f"after {timeout:g} s"
            )
            raise TimeoutError(f"topology {name!r} is not completed ({hint}): {self._progress(name)}")

    def workers(self, name: str) -> list[WorkerView]:
        """Return the worker processes that run for a topology, each with its pid, its tasks and the directory of its log.
        Raises NoSuchTopology for an unknown name, and SquallError in a cluster without processes."""
        engine = self._engine
        check_name(name)
        if isinstance(engine, Engine):
            raise SquallError("this cluster's workers are not processes: use LocalCluster(processes=True)")
        if engine.registry.topologies.get(name) is None:
            raise NoSuchTopology(name)
        return self._driver.command(lambda: engine.workers(name))

    def dead_letters(self, name: str) -> list[DeadLetter]:
        """Return the tuples that the spouts of a topology have given up since the cluster started, the oldest first, up to
        10,000; also of a topology that was killed."""
        check_name(name)
        engine = self._engine
        if isinstance(engine, Engine):
            kept = self._letters.get(name)
            found = () if kept is None else tuple(kept.letters.values())
            return sorted(found, key=lambda letter: letter.order)
        return engine.dead_letters(name)

    def state(self, name: str, component: str, key: Any) -> dict[str, Any]:
        """Return copies of the states of a key in a StatefulBolt of a running topology: state -> value. A key of several fields
        is a tuple. A worker process is asked, and answers between two calls of the task, mostly within a second; the wait ends
        after four. Raises SquallError if no task of the component runs, or if the task that has the key does not answer."""
        engine = self._engine
        check_name(name)
        record = engine.registry.topologies.get(name)
        if record is None:
            raise NoSuchTopology(name)
        if isinstance(engine, Engine):
            host = engine.host
            return self._driver.command(lambda: state_of(host.workers(name), name, component, key))
        of_task = {row.task: row.component for row in record.tasks}
        running = [(each, {of_task.get(task, "") for task in each.tasks}) for each in self.workers(name)]
        asked = [(each.worker, each.directory) for each, components in running if component in components]
        if not asked:
            raise no_running_task(name, component, set().union(*(components for _, components in running)))
        return state_in_processes(asked, component, key)

    def advance(self, seconds: float) -> None:
        """Advance simulated time by `seconds`, and run everything that becomes due in this time."""
        if isinstance(self._driver, RealTimeDriver):
            raise SquallError(
                "this cluster runs in real time: only LocalCluster(simulated_time=True) can advance()"
            )
        check_seconds("advance", "seconds", seconds)
        self._driver.advance(seconds)

    def hurry(self, seconds: float) -> None:
        """At shutdown, give worker processes at most `seconds` for `close` and `cleanup`."""
        check_seconds("hurry", "seconds", seconds)
        if not isinstance(self._engine, Engine):
            self._engine.patience = seconds

    def shutdown(self) -> None:
        """End everything at once, without waiting for trees: pending trees fail as "stopped", and then `close` and `cleanup`
        are called. Worker processes that need longer than five seconds for these calls are killed."""
        if self._closed or self._process != os.getpid():  # a forked child does not own the cluster
            return
        self._driver.check_outside("shutdown()")
        self._closed = True
        atexit.unregister(self.shutdown)
        try:
            self._driver.stop(self._engine.stop)
            if self._driver.broken is not None and not isinstance(self._engine, Engine):
                self._engine.stop()  # processes do not end with a thread
        finally:
            if self._paced:
                PACE.end()
            self._engine.nimbus.close()
            if self._directory is not None:
                shutil.rmtree(self._directory, ignore_errors=True)

    def __enter__(self) -> LocalCluster:
        return self

    def __exit__(self, *raised: object) -> None:
        self.shutdown()

    # Inside.

    @property
    def _host(self) -> VirtualHost:
        """The workers of a cluster without processes."""
        assert isinstance(self._engine, Engine), "workers in other processes are out of reach"
        return self._engine.host

    def _complete(
        self, topology: Topology, conf: Mapping[str, object] | None, check: Callable[[], object]
    ) -> bool:
        """Submit a topology and run it to its end on simulated time, skipping waits. Return False if the topology has not
        ended, but nothing is due any more. `check` is called between rounds, and may raise."""
        driver = self._driver
        assert isinstance(driver, SimulatedDriver), "only simulated time can be jumped over"
        driver.between_rounds = check
        try:
            self.submit(topology, conf)
            return driver.run_until(lambda: self._over(topology.name))
        finally:
            driver.between_rounds = None

    def _over(self, name: str) -> bool:
        """Return whether the topology was killed, or has ended and its workers have ended too, with their `cleanup`."""
        record = self._engine.registry.topologies.get(name)
        if record is None or record.state == "KILLED":
            return True
        return record.state in ("COMPLETED", "FAILED") and not self._engine.statuses.living(record)

    def _progress(self, name: str) -> str:
        status = self.status(name)
        parts = [f"state {status.state}"]
        for component, each in status.components.items():
            what = f"{each.pending} trees pending" if each.kind == "spout" else f"{each.executed} executed"
            why = f" ({each.idle})" if each.idle else ""
            parts.append(f"{component}: {each.emitted} emitted, {what}{why}, {each.errors} errors")
        if status.errors:
            parts.append(f"last error: {status.errors[-1].render()}")
        return "; ".join(parts)

    def _make_worker(self, plan: WorkerPlan, loopback: Loopback) -> Worker:
        driver = self._driver
        if driver.simulated:
            from worker.tasks.simulated_async import SimulatedAsync

            calls: Any = SimulatedAsync(driver.clock.now)
        else:
            calls = AsyncThread(f"{plan.topology.name}-{plan.worker}")
        worker = worker_class(plan)(
            plan, driver.clock, loopback.send, calls, driver.wake, inline=driver.simulated
        )
        if not driver.simulated:
            worker.environment.time_of = lambda moment: time.time() + moment - driver.clock.now()
        letters = self._letters.setdefault(plan.topology.name, MemoryLetters())
        worker.environment.letters = lambda task: letters
        return worker

    def _name_directory(self) -> str:
        """Return the folder of the tasks' scratch directories. The first task that needs a scratch directory makes the
        folder."""
        if self._directory is None:
            self._directory = os.path.join(tempfile.gettempdir(), f"squall-local-{os.urandom(8).hex()}")
        return self._directory


def refuse_inside_a_worker() -> None:
    """Raise SquallError in a worker process. A worker imports the modules of its components; if these modules started a
    cluster, each worker of that cluster would start a further cluster."""
    if is_worker():
        raise SquallError(
            "LocalCluster() is called while a worker process imports this module for its components, so each worker would"
            " start a cluster of its own: put the call under `if __name__ == '__main__':`"
        )


def check_seconds(method: str, name: str, seconds: object) -> None:
    """Raise `InvalidConfig` for an argument that is not a number of seconds."""
    problem = number_problem(seconds, 0, LONGEST_SECS, "seconds")
    if problem:
        raise InvalidConfig([f"{method}(): {name} {problem}"])


def check_arguments(
    processes: object,
    numbers: Mapping[str, object],
    seed: object,
    inside: Mapping[str, object],
    settings: object = ({}, {}),
) -> None:
    """Raise `InvalidConfig` for bad numbers, and for switches that are neither True nor False (a text such as "no" would mean
    True). With `processes`, also raise it for each argument in `inside` that is set: these are valid only for workers in this
    process."""
    problems = [
        f"LocalCluster({name}={shown(value)}): it must be True or False"
        for name, value in {"processes": processes, **inside}.items()
        if name != "observers" and not isinstance(value, bool)
    ]
    problems += [
        f"LocalCluster({name}={shown(value)}): it must be a whole number from 1 to {MAX_WORKERS:,}"
        for name, value in numbers.items()
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MAX_WORKERS
    ]
    if seed is not None and (not isinstance(seed, int) or isinstance(seed, bool)):
        problems.append(f"LocalCluster(seed={shown(seed)}): it must be a whole number, or None")
    if not isinstance(inside["observers"], (tuple, list)):
        problems.append(f"LocalCluster(observers={shown(inside['observers'])}): it must be a tuple of hooks")
    parts = settings if isinstance(settings, (tuple, list)) and len(settings) == 2 else (None,)
    if not all(isinstance(part, Mapping) for part in parts):
        problems.append(
            f"LocalCluster(settings={shown(settings)}): it must be two dicts, of the site and the environment"
        )
    problems += [
        f"LocalCluster(processes=True, {name}={shown(value)}): it is only for workers in this process"
        for name, value in inside.items()
        if processes is True and value
    ]
    if problems:
        raise InvalidConfig(problems)
