"""complete_topology: runs a topology to completion in a test, on simulated time, and records the run.

The function uses a `LocalCluster(simulated_time=True)` that jumps from one due moment to the next.
Must not know: how tasks run.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from local_cluster.blockers import blockers, stuck_text
from local_cluster.cluster import LocalCluster
from local_cluster.recording import Recording
from local_cluster.scripted import Row, with_sources
from squall.reports.error_reports import ErrorReport
from squall.status import TopologyStatus
from topology_api import Failure, InvalidConfig, SquallError, Topology
from topology_api.values import MAX_SECONDS, number_problem
from topology_api.wording import typed


class Completed:
    """The record of a topology's run from start to completion.

    status: the final `TopologyStatus`, with the state COMPLETED and the totals of all components.
    """

    def __init__(self, recording: Recording, status: TopologyStatus) -> None:
        self._recording = recording
        self.status = status

    def emitted(self, component: str, stream: str = "default") -> list[Row]:
        """Return the values that all tasks of a component emitted on a stream, in the order of emission, without replays."""
        return self._recording.emitted(component, stream)

    def acked(self, spout: str) -> list[Any]:
        """Return the message ids of a spout whose trees were acked, in the order of the calls of `ack`."""
        return self._recording.final_calls(spout)[0]

    def failed(self, spout: str) -> list[tuple[Any, Failure]]:
        """Return the message ids of a spout whose trees failed for good, each with its Failure, in the order of the calls of
        `fail`."""
        return self._recording.final_calls(spout)[1]

    @property
    def errors(self) -> tuple[ErrorReport, ...]:
        """Reports of the errors that the user's code raised, the oldest first. Only the latest reports of each component are
        kept."""
        return self.status.errors

    @property
    def seconds(self) -> float:
        """The simulated seconds that the run took."""
        return self.status.uptime

    def __repr__(self) -> str:
        lines = [f"<Completed {self.status.name!r} after {self.seconds:g} s of simulated time"]
        for name, totals in self.status.components.items():
            did = [f"{totals.emitted} emitted"]
            if totals.kind == "bolt":
                did.append(f"{totals.executed} executed")
            did += [f"{totals.acked} acked", f"{totals.failed} failed"]
            if totals.replayed:
                did.append(f"{totals.replayed} replayed")
            if totals.errors:
                did.append(f"{totals.errors} errors")
            lines.append(f"{name}: {', '.join(did)}")
        if self.errors:
            lines.append(f"last error: {self.errors[-1].render()}")
        return "\n  ".join(lines) + ">"


def complete_topology(
    topology: Topology,
    sources: Mapping[str, Any] | None = None,
    conf: Mapping[str, object] | None = None,
    timeout: float = 60,
    seed: int = 0,
) -> Completed:
    """Run a topology to completion in this process and return the record of the run. Time is simulated and jumps over waits;
    threads and the asyncio loop are simulated too, and the same seed gives the same run. Only the topology's own code does I/O.

    sources: spouts to replace with fixed values, id -> value tuples on the stream `default` (or on the spout's only stream), or
    id -> {stream: value tuples}. The message ids are the positions; failed trees are replayed according to the default policy.
    If such a spout has several tasks, only the first emits. A spout that is not replaced must finish by itself.
    conf: overrides the topology's configuration. timeout: in real seconds; the timeout does not interrupt a call of user code.

    InvalidTopology, InvalidConfig: all problems of the arguments. TimeoutError: the topology is not completed in time, or
    (raised at once) nothing can happen any more; the text says what blocks the topology. TopologyFailed: as for
    `LocalCluster.wait`. MutatedValue: a component changed a value of a tuple.
    """
    if not isinstance(topology, Topology):
        raise SquallError(
            f"complete_topology() takes a Topology, as TopologyBuilder.build() returns it, not {typed(topology)}"
        )
    problem = number_problem(timeout, 0, MAX_SECONDS, "seconds", above=True)
    if problem is not None:
        raise InvalidConfig([f"timeout {problem}"], "complete_topology")
    wanted = topology if sources is None else with_sources(topology, sources)
    recording = Recording(wanted)
    deadline = time.monotonic() + timeout

    def check() -> None:
        recording.mutations.raise_found()
        if time.monotonic() >= deadline:
            raise TimeoutError(_text(cluster, wanted.name, f"within {timeout:g} s of real time"))

    with LocalCluster(simulated_time=True, seed=seed, observers=(recording,)) as cluster:
        over = cluster._complete(wanted, conf, check)
        recording.mutations.end()
        if not over:
            raise TimeoutError(_text(cluster, wanted.name, "and nothing can happen any more"))
        cluster.wait(wanted.name, 0)
        return Completed(recording, cluster.status(wanted.name))


def _text(cluster: LocalCluster, name: str, when: str) -> str:
    """Return why the topology is not completed."""
    status = cluster.status(name)
    head = f"topology {name!r} is not completed {when}, after {status.uptime:g} s of simulated time:"
    return stuck_text(head, blockers(cluster._host.workers(name)), status.errors)
