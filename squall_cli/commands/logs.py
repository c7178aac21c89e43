"""`squall logs`: the logs of a topology's workers on all hosts, merged by time."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import click
from msgspec import structs

from squall.api.answers import LogAnswer, PreviousAnswer, WorkerEntry, WorkersAnswer
from squall.values import TopologyState
from squall_cli.cluster.cluster_client import ClusterOptions, cluster_options, echo_json
from squall_cli.cluster.log_tail import Ask, LogEntry, Tail, merged
from squall_cli.cluster.waiting import is_away
from squall_cli.commands import completion
from squall_cli.commands.status import heading
from squall_cli.options.kinds import Whole
from squall_cli.terminal.lines import echo, write_lines
from topology_api.errors import SquallError
from topology_api.wording import listed, nearest

if TYPE_CHECKING:
    from squall_cli.cluster.nimbus_client import NimbusClient


FILES: Final = ("worker", "output", "build")
LINES: Final = 100
#: Seconds between two reads of the logs.
PAUSE: Final = 0.5
#: Seconds between two reads of the list of workers.
FIND: Final = 3.0
#: States in which no worker of a topology will run any more.
OVER: Final = tuple(state for state in TopologyState if state.asks == "stop")
#: Seconds after the end of a topology within which the last lines of its workers reach their logs.
LAST_WORDS: Final = 5.0
LEVELS: Final = {"WARNING": "warn", "ERROR": "bad", "CRITICAL": "bad", "REPORT": "bad", "DEBUG": "dim"}


@click.command()
@completion.name_argument
@click.option("-f", "--follow", is_flag=True, help="Also show new entries, until Ctrl-C.")
@click.option(
    "--component",
    metavar="ID",
    shell_complete=completion.components,
    help="Show only lines that tasks of this component logged.",
)
@click.option(
    "--worker", metavar="NAME", shell_complete=completion.workers, help="Show only this worker's log."
)
@click.option(
    "--file",
    type=click.Choice(FILES),
    default=FILES[0],
    show_default=True,
    help="Which log of each worker to show.",
)
@click.option(
    "--lines",
    metavar="N",
    type=Whole(0),
    default=LINES,
    show_default=True,
    help="How many of the last entries to show.",
)
@click.option(
    "--previous",
    is_flag=True,
    help="Show the logs of the version that ended last, also of a killed topology.",
)
@cluster_options
def logs(
    cluster: ClusterOptions,
    name: str,
    follow: bool,
    component: str | None,
    worker: str | None,
    file: str,
    lines: int,
    previous: bool,
) -> None:
    """Show the logs of a topology's workers, read through Nimbus and the workers' supervisors.

    A log has the lines that components print and log; each line has a time and a task. Lines of several workers are merged
    according to the clocks of their hosts, and each line begins with its worker's name. --file output shows output that
    bypassed Python; --file build shows how the environment of --requirements was built. Logs of a COMPLETED or FAILED topology
    stay until it is killed. --previous shows the logs of the version that was killed, replaced or rolled back last; its hosts
    keep them for supervisor.logs.keep.days.

    \b
    Examples:
      squall logs word-count
      squall logs word-count --component count -f
      squall logs word-count --worker w2 --lines 500
      squall logs word-count --file build
      squall logs word-count --previous
    """
    if component is not None and file != "worker":
        raise click.UsageError(f"--component filters by task, and lines of the log {file!r} have no task")
    if previous and (follow or file == "build"):
        raise click.UsageError(
            "--previous shows worker and output logs that are complete: leave out -f and --file build"
        )
    as_json = cluster.as_json
    with cluster.asked(name) as client, suppress(KeyboardInterrupt) if follow else nullcontext():
        ended = client.read(PreviousAnswer, "topologies", name, "previous") if previous else None
        if ended is not None:
            echo(heading(ended), err=True)
        reader = LogReader(client, name, component, worker, file, ended)
        if file == "build":
            status = client.topology(name)
            if status.state != "BAD" and "requirements" not in status.files:
                raise SquallError(f"{name} has no requirements, so no environment was built for it")
        reader.find()
        found = reader.last(lines, follow)
        if not follow:
            if not found and not reader.could_read:
                unread = f"no log of {name} could be read"
                raise SquallError(unread if reader.tails else f"{reader.no_workers()}, so there is no log")
            show(found, as_json, reader.whose, one_document=True)
            return
        show(found, as_json, reader.whose)
        if not reader.tails:
            echo(f"{reader.no_workers()}; waiting for them.", err=True)
        follow_on(reader, as_json)


@dataclass(eq=False)
class LogReader:
    """Reads the logs of a topology's current workers; `find` adds new workers and drops workers that are gone."""

    client: NimbusClient
    name: str
    component: str | None
    worker: str | None
    file: str
    #: The version that has ended, whose logs are shown; None: the running one.
    ended: PreviousAnswer | None = None
    tails: dict[str, Tail] = field(default_factory=dict)
    #: Workers whose log could not be read -> the reason. Each reason is shown once.
    silent: dict[str, str] = field(default_factory=dict)
    could_read: bool = False
    has_found: bool = False

    @property
    def whose(self) -> str:
        """The kind of name that distinguishes lines of several logs: "worker", or "host" for build logs; "" if there is only
        one log."""
        if len(self.tails) < 2:
            return ""
        return "host" if self.file == "build" else "worker"

    def find(self) -> None:
        """Find the workers that exist now."""

        there = self.there()
        if self.worker is not None:
            found = [each for each in there if each.worker == self.worker]
            if not found and not self.has_found:
                raise SquallError(self.no_such("worker", self.worker, [each.worker for each in there]))
            there = found
        if self.component is not None and self.ended is None:
            components = {task.component for each in there for task in each.tasks}
            if there and self.component not in components and not self.has_found:
                raise SquallError(self.no_such("component", self.component, sorted(components)))
            there = [each for each in there if any(task.component == self.component for task in each.tasks)]
        if self.file == "build":
            there = self.one_of_each_supervisor(there)
        for each in there:
            worker, host = each.worker, each.host or f"supervisor {each.supervisor}"
            if worker not in self.tails or self.tails[worker].host != host:
                self.tails[worker] = Tail(worker, host, self.asking(worker))
        for worker in self.tails.keys() - {each.worker for each in there}:
            del self.tails[worker]
            if self.file != "build":
                echo(f"{worker} is gone.", err=True)
        self.has_found = self.has_found or bool(self.tails)

    def there(self) -> list[WorkerEntry]:
        if self.ended is not None:
            return self.ended.workers
        return self.client.read(WorkersAnswer, "topologies", self.name, "workers").workers

    def one_of_each_supervisor(self, there: list[WorkerEntry]) -> list[WorkerEntry]:
        """Return one worker of each supervisor, since a supervisor builds one environment for all workers of a topology. A
        worker whose log is already being read is preferred."""
        first: dict[str, WorkerEntry] = {}
        for each in sorted(there, key=lambda each: each.worker not in self.tails):
            first.setdefault(each.supervisor, each)
        return list(first.values())

    def no_workers(self) -> str:
        if self.ended is not None:
            return f"{self.ended.id} had no workers"
        return f"{self.name} is {self.client.topology(self.name).state} and has no workers at the moment"

    def over(self) -> str:
        """Return a sentence saying that nothing more will be logged, and why; "" while entries may still come."""
        found = self.client.topology(self.name)
        if found.state not in OVER or (found.state_secs is not None and found.state_secs < LAST_WORDS):
            return ""
        return f"{self.name} is {found.state}: nothing more is logged; its logs stay until it is killed."

    def no_such(self, kind: str, name: str, there: list[str]) -> str:
        running = "running " if self.ended is None else ""
        return f"{self.name} has no {running}{kind} {name!r}{nearest(name, there) or f'; there are: {listed(there)}'}"

    def asking(self, worker: str) -> Ask:

        place = ("topologies", self.name, "workers", worker, "log")
        version = None if self.ended is None else self.ended.id
        return lambda offset, limit: self.client.read(
            LogAnswer, *place, file=self.file, offset=offset, limit=limit, version=version
        )

    def last(self, number: int, following: bool) -> list[LogEntry]:
        """Return the last entries of all logs, merged."""
        found = merged([self.read(tail, number, following) for tail in [*self.tails.values()]])
        return found[-number:] if number else []

    def more(self) -> list[LogEntry]:
        """Return the entries since the last read."""
        return merged([self.read(tail, None, True) for tail in [*self.tails.values()]])

    def unended(self) -> list[LogEntry]:
        """Return the unfinished last lines. Call this when no more entries will come."""
        return merged(
            [entry for entry in tail.entries(tail.close()) if entry.of(self.component)]
            for tail in self.tails.values()
        )

    def read(self, tail: Tail, number: int | None, following: bool) -> list[LogEntry]:
        """Return the entries of one log. If the log cannot be read now, print the reason to stderr and return no entries."""
        from squall.http.client import Refused

        try:
            if number is None:
                found = tail.more(self.component)
            else:
                found = tail.last(number, self.component, following)
        except Refused as refused:
            if refused.kind == "NoSuchTopology" or refused.status == 401:
                raise
            if self.silent.get(tail.worker) != str(refused):
                if refused.kind == "NotFound" and following:
                    self.find()
                    if tail.worker not in self.tails:
                        return []  # the worker has left since the last `find`
                self.silent[tail.worker] = str(refused)
                echo(f"{tail.worker} on {tail.host}: {refused}", err=True)
            return []
        self.could_read = True
        self.silent.pop(tail.worker, None)
        return found


def follow_on(reader: LogReader, as_json: bool) -> None:
    """Show new entries until the topology is gone, or until it has ended and all its logs are read."""
    from squall.http.client import Refused, Unreachable

    found_at: float | None = None
    away = False
    while True:
        try:
            ending = ""
            if found_at is None or time.monotonic() - found_at >= FIND:
                ending = reader.over()  # checked before the logs are read, so that nothing is missed
                reader.find()
                found_at = time.monotonic()
            show(reader.more(), as_json, reader.whose)
            if ending:
                while found := reader.more() or reader.unended():
                    show(found, as_json, reader.whose)
                echo(ending, err=True)
                return
            away = False
        except (Unreachable, Refused) as error:
            if isinstance(error, Refused) and error.kind == "NoSuchTopology":
                echo(f"{reader.name} is gone.", err=True)
                return
            if not is_away(error):
                raise
            if not away:
                echo(f"{error}; asking again", err=True)
            away = True
        time.sleep(PAUSE)


def show(found: Iterable[LogEntry], as_json: bool, whose: str, one_document: bool = False) -> None:
    """Print entries. If `whose` is not "", each line begins with the name of its worker or host. As JSON, print one document
    (`one_document`), or one object on a line for each entry."""
    if as_json and one_document:
        echo_json({"lines": [structs.asdict(entry) for entry in found]})
        return
    for entry in found:
        if as_json:
            click.echo(json.dumps(structs.asdict(entry)))
            continue
        prefix = f"{entry.host if whose == 'host' else entry.worker} | " if whose else ""
        style = LEVELS.get(entry.level, "")
        write_lines(sys.stdout, [((prefix, "dim"), (line, style)) for line in entry.lines])
