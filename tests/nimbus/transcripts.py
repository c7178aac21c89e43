"""Scenarios of Nimbus as transcripts: commands and reports, and the content of the store afterwards.

    @ 0 supervisor s1 slots=2        an event, and the second of a clock that only this number moves
    words ACTIVE                     every topology, after the line that changed anything: its state,
      w1 s1/0 (1,0): 1 3             its workers (slot, incarnation: tasks),
      w2 s1/1 (1,0): 2               and those that are to leave
      leaving w3 s2/0 (1,0): 4
    = nothing changes                if nothing did

The preparation of a test is one line of events separated by `;`, and is shown when all of them are done:

    @ 0 supervisor s1 slots=1; supervisor s2 slots=1; submit words tasks=2 workers=2

Lines to say: `supervisor ID slots=N [beats]`, `lose ID`, `heard ID`, `drain ID`, `undrain ID`, `submit NAME tasks=N [count=N]
[workers=N] [inactive] [replace] [wait=SECONDS]` (tasks of the spout "lines", and of an optional bolt "count"), `kill NAME
[wait=SECONDS]`, `rollback NAME [VERSION] [key=KEY]` (of a version on trial), `activate NAME`, `deactivate NAME`, `rebalance
NAME [workers=N] [wait=SECONDS] [COMPONENT=N]`, `report NAME WORKER [opened] [ended] [drained] [stopped] [waits] [crash=TEXT]
[incarnation=V,R] [version=V] [finished=T,T] [note=TEXT]`, `count NAME WORKER [COUNTER=N]` (of the spout; `raised=N` and
`executed=N` of the bolt), `tick`, `ticks` (every second until then), `another nimbus`. An error is shown as `! Error: text`, a
refused report as `! refused`.

The pickles of these topologies are bytes that no unpickler accepts: Nimbus must not need them.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable

from nimbus.leader.master import Nimbus
from nimbus.lifecycle.progress import workers_of
from nimbus.submission.submission import Submission
from squall.clock import ManualClock
from squall.cluster.counters import ComponentCounters, WorkerCounters
from squall.cluster.memory import InMemoryStore
from squall.cluster.records import Placement, SupervisorRecord, TopologyRecord, WorkerReport
from squall.cluster.registry import Registry
from squall.cluster.store import Store
from squall.values import Incarnation
from topology_api.errors import SquallError
from topology_api.options import defaults
from topology_api.topology import ComponentSpec, GroupingSpec, StreamSpec, Subscription, Topology

#: Plays a transcript.
Play = Callable[[str], None]

FLAGS = ("opened", "ended", "drained", "stopped")
Options = dict[str, str]


#: A version takes over from another one: it is being started.
TWO_VERSIONS = """
    @ 0 supervisor s1 slots=2; submit words tasks=2
    words ACTIVE
      w1 s1/0 (1,0): 1 2
    @ 1 report words w1 opened
    = nothing changes
    @ 2 submit words tasks=3 replace
    words REPLACING until 32
      w1 s1/0 (1,0): 1 2
    @ 3 report words w1 opened drained
    words REPLACING until 32
      leaving w1 s1/0 (1,0): 1 2
    @ 4 report words w1 stopped
    words ACTIVE until 64
      w1 s1/0 (2,0): 1 2 3
""".rstrip("\n")


def a_topology(name: str, tasks: int, count: int = 0) -> Topology:
    """One spout of some tasks and optionally a bolt, whose pickles cannot be loaded."""
    spout = ComponentSpec("lines", "spout", tasks, {}, {"default": StreamSpec(("line",))})
    if not count:
        return Topology(name, {}, (spout,), {"lines": b"this is no pickle"})
    subscription = Subscription("lines", "default", GroupingSpec("shuffle"))
    bolt = ComponentSpec("count", "bolt", count, {}, {}, (subscription,))
    return Topology(name, {}, (spout, bolt), {"lines": b"no pickle", "count": b"no pickle either"})


class Scenario:
    """A store, a manual clock, and a Nimbus that gets its commands line by line."""

    def __init__(self, store: Store | None = None) -> None:
        self.store = InMemoryStore() if store is None else store
        self.clock = ManualClock()
        self.nimbus = Nimbus(self.store, self.clock)
        self.counted = 0
        self.registry = Registry(self.store)
        self._shown = self.show()

    def play(self, transcript: str) -> None:
        """Play every `@` line of the transcript; the results must be those of the transcript."""
        expected = textwrap.dedent(transcript).strip("\n")
        happened: list[str] = []
        for line in expected.splitlines():
            if line.startswith("@"):
                happened.append(line)
                happened.extend(self._hear(line))
        assert "\n".join(happened) == expected

    def say(self, line: str) -> None:
        """Do what one line says and ignore the result; a refusal is an error."""
        refused = [answer for answer in self._hear(line) if answer.startswith("!")]
        assert not refused, f"{line}: {refused}"

    def _hear(self, line: str) -> list[str]:
        """Do what one line says, and return what it changed."""
        _, moment, deeds = line.split(maxsplit=2)
        answers = [self._do(float(moment), *deed.split()) for deed in deeds.split(";")]
        told = [answer for answer in answers if answer]
        shown, self._shown = self._shown, self.show()
        if self._shown != shown:
            return [*told, *self._shown]
        return told or ["= nothing changes"]

    def _do(self, moment: float, deed: str, *words: str) -> str | None:
        while deed == "ticks" and self.clock.now() < moment - 1:
            self.clock.move_to(self.clock.now() + 1)
            self.nimbus.tick()
        self.clock.move_to(moment)
        positional = [word for word in words if "=" not in word]
        options = dict(word.split("=", 1) for word in words if "=" in word)
        try:
            answer: str | None = getattr(self, f"do_{deed}")(positional, options)
        except SquallError as error:
            return f"! {type(error).__name__}: {error}"
        return answer

    def show(self) -> list[str]:
        """The content of the store."""
        lines = []
        for record in self.registry.all_topologies():
            until = "" if record.deadline is None else f" until {record.deadline:g}"
            error = "" if record.error is None else f" ({record.error})"
            lines.append(f"{record.name} {record.state}{until}{error}")
            lines += _lines_of("  ", self.workers(record.id))
            lines += _lines_of("  leaving ", self.leaving(record.id))
            if record.finished:
                lines.append(f"  finished: {' '.join(map(str, record.finished))}")
            lines += [f"  note: {note.text}" for note in record.notes]
        return lines or ["no topology"]

    def do_supervisor(self, words: list[str], options: Options) -> None:
        record = SupervisorRecord(words[0], words[0], int(options["slots"]), "beats" in words)
        self.registry.supervisors.put(record)
        self.nimbus.tick()

    def do_lose(self, words: list[str], options: Options) -> None:
        self.registry.supervisors.drop(words[0])
        self.nimbus.tick()

    def do_heard(self, words: list[str], options: Options) -> None:
        self.nimbus.heard(words[0])
        self.nimbus.tick()

    def do_submit(self, words: list[str], options: Options) -> None:
        conf = defaults() | {"topology.workers": int(options.get("workers", "1"))}
        topology = a_topology(words[0], int(options["tasks"]), int(options.get("count", "0")))
        self.nimbus.submit(
            Submission(
                topology,
                conf,
                {"lines": conf},
                active="inactive" not in words,
                replace="replace" in words,
                wait_secs=float(options["wait"]) if "wait" in options else None,
            )
        )

    def do_kill(self, words: list[str], options: Options) -> None:
        self.nimbus.kill(words[0], float(options["wait"]) if "wait" in options else None)

    def do_rollback(self, words: list[str], options: Options) -> str:
        name, *wanted = words
        ended = self.nimbus.end_trial(name, wanted[0] if wanted else None, options.get("key", ""))
        return (
            "= no trial ends"
            if ended is None
            else f"= {ended.version} ends, {ended.back.id} returns: {ended.state}"
        )

    def do_activate(self, words: list[str], options: Options) -> None:
        self.nimbus.activate(words[0])

    def do_deactivate(self, words: list[str], options: Options) -> None:
        self.nimbus.deactivate(words[0])

    def do_rebalance(self, words: list[str], options: Options) -> None:
        numbers = {what: int(number) for what, number in options.items()}
        workers = numbers.pop("workers", None)
        wait = numbers.pop("wait", None)
        self.nimbus.rebalance(words[0], workers, numbers or None, wait)

    def do_drain(self, words: list[str], options: Options) -> None:
        self.nimbus.drain(words[0])

    def do_undrain(self, words: list[str], options: Options) -> None:
        self.nimbus.drain(words[0], on=False)

    def do_report(self, words: list[str], options: Options) -> str | None:
        name, worker, *flags = words
        record = self.registry.topologies.get(name)
        known = () if record is None else (*self.workers(record.id), *self.leaving(record.id))
        incarnation = next((placed.incarnation for placed in known if placed.worker == worker), (0, 0))
        if "incarnation" in options:
            version, restart = options["incarnation"].split(",")
            incarnation = int(version), int(restart)
        opened, ended, drained, stopped = (flag in flags for flag in FLAGS)
        finished = tuple(map(int, options["finished"].split(","))) if "finished" in options else ()
        report = WorkerReport(
            worker,
            Incarnation(*incarnation),
            opened,
            ended,
            drained,
            stopped,
            options.get("crash"),
            finished=finished,
            version=int(options.get("version", "0")),
            note=options.get("note"),
            waits="waits" in flags,
        )
        return None if self.nimbus.report(name, worker, report) else "! refused"

    def do_count(self, words: list[str], options: Options) -> None:
        name, worker = words
        record = self.nimbus.topology(name)
        of_bolt = {"raised": "failed", "executed": "executed"}
        spout, bolt = ComponentCounters(), ComponentCounters()
        for counter, value in options.items():
            setattr(*((bolt, of_bolt[counter]) if counter in of_bolt else (spout, counter)), int(value))
        incarnation = next(
            placed.incarnation for placed in self.workers(record.id) if placed.worker == worker
        )
        self.counted += 1
        counters = WorkerCounters({"lines": spout, "count": bolt}, number=self.counted)
        self.nimbus.counters.count(record.id, worker, incarnation, counters)
        self.nimbus.tick()

    def do_tick(self, words: list[str], options: Options) -> None:
        self.nimbus.tick()

    do_ticks = do_tick

    def do_another(self, words: list[str], options: Options) -> None:
        """Continue with another Nimbus over the same store."""
        self.nimbus.close()
        self.nimbus = Nimbus(self.store, self.clock)
        self.nimbus.tick()

    # For tests beyond transcripts

    def workers(self, topology_id: str) -> tuple[Placement, ...]:
        """The workers that a topology has."""
        return workers_of(self.registry.assignments.get(topology_id))

    def leaving(self, topology_id: str) -> tuple[Placement, ...]:
        """The workers that are to leave."""
        return workers_of(self.registry.leaving.get(topology_id))

    def workers_drain(self, record: TopologyRecord) -> None:
        """Every worker of a topology reports that it has drained."""
        for placed in self.workers(record.id):
            report = WorkerReport(placed.worker, placed.incarnation, True, False, True, False, None)
            assert self.nimbus.report(record.name, placed.worker, report)

    def workers_go(self, record: TopologyRecord) -> None:
        """Every leaving worker reports that it is gone."""
        for placed in self.leaving(record.id):
            report = WorkerReport(placed.worker, placed.incarnation, True, False, True, True, None)
            assert self.nimbus.report(record.name, placed.worker, report)


def _lines_of(indent: str, placements: tuple[Placement, ...]) -> list[str]:
    return [
        f"{indent}{placed.worker} {placed.supervisor}/{placed.slot} "
        f"({placed.incarnation.version},{placed.incarnation.restart}): {' '.join(map(str, placed.tasks))}"
        for placed in placements
    ]
