"""`squall stack`: the line of code at which each thread of a topology's workers is at this moment."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

import click

from squall.api.answers import StacksAnswer, WorkerEntry, WorkersAnswer
from squall.reports.stacks import CallStack
from squall_cli.cluster.cluster_client import ClusterOptions, cluster_options, echo_json
from squall_cli.cluster.events import own_paths
from squall_cli.commands import completion
from squall_cli.options.kinds import Whole
from squall_cli.terminal.formats import duration
from squall_cli.terminal.lines import Line, echo, write_lines
from topology_api.errors import SquallError
from topology_api.wording import listed, nearest

if TYPE_CHECKING:
    from squall_cli.cluster.nimbus_client import NimbusClient

NO_ANSWER: Final = (
    "{worker} on {host} does not answer. It is starting, or its process is stopped, or a call holds Python's own lock"
    " (the GIL); `squall status {name}` says which if the worker stays silent."
)


@click.command()
@completion.name_argument
@click.option("--task", metavar="N", type=Whole(0), help="Show only the calls of this task.")
@click.option(
    "--component",
    metavar="ID",
    shell_complete=completion.components,
    help="Show only the calls of this component's tasks.",
)
@click.option("--worker", metavar="NAME", shell_complete=completion.workers, help="Ask only this worker.")
@cluster_options
def stack(
    cluster: ClusterOptions, name: str, task: int | None, component: str | None, worker: str | None
) -> None:
    """Show where the threads of a topology's workers are: for each call of a component its task, how long it has run, its tuple
    and its lines of code.

    The longest call of a worker comes first. Threads that run no call of a component follow, unless --task or --component is
    given. For an asynchronous bolt, the ten oldest calls of each task are shown, each at the line that it waits for.

    \b
    Examples:
      squall stack word-count
      squall stack word-count --task 4
      squall stack word-count --component count --json
    """
    with cluster.asked(name) as client:
        there = workers_of(client, name, task, component, worker)
        found = [(each, asked(client, name, each)) for each in there]
    read = [answer for _, answer in found if answer is not None and answer.answered]
    if cluster.as_json:
        echo_json({"workers": [shown_json(*each, task, component) for each in found]})
    else:
        write_lines(sys.stdout, shown(found, task, component))
    for entry, answer in found:
        if answer is not None and not answer.answered:
            echo(NO_ANSWER.format(worker=entry.worker, host=entry.host, name=name), err=True)
    if not read:
        raise SquallError(f"no worker of {name} could be asked where its threads are")


def workers_of(
    client: NimbusClient, name: str, task: int | None, component: str | None, worker: str | None
) -> list[WorkerEntry]:
    """Return the workers that run the task, or tasks of the component. Raises `SquallError` if there is none."""
    there = client.read(WorkersAnswer, "topologies", name, "workers").workers
    if not there:
        raise SquallError(
            f"{name} is {client.topology(name).state} and has no workers at the moment, so nothing runs"
        )
    checks: list[tuple[str, str | None, list[str]]] = [
        ("worker", worker, [each.worker for each in there]),
        ("component", component, sorted({row.component for each in there for row in each.tasks})),
        (
            "task",
            None if task is None else str(task),
            [str(row.task) for each in there for row in each.tasks],
        ),
    ]
    for kind, wanted, known in checks:
        if wanted is not None and wanted not in known:
            advice = nearest(wanted, known) if kind != "task" else ""
            raise SquallError(
                f"{name} has no running {kind} {wanted!r}{advice or f'; there are: {listed(known)}'}"
            )
    found = [each for each in there if worker in (None, each.worker) and runs(each, task, component)]
    if not found:
        raise SquallError(f"no worker of {name} runs what you have asked for: leave out one of the options")
    return found


def runs(worker: WorkerEntry, task: int | None, component: str | None) -> bool:
    """Return whether a worker runs the task and a task of the component."""
    return any(task in (None, row.task) and component in (None, row.component) for row in worker.tasks)


def asked(client: NimbusClient, name: str, worker: WorkerEntry) -> StacksAnswer | None:
    """Return a worker's answer. If its host cannot be asked, print the reason to stderr and return None."""
    from squall.http.client import Refused

    try:
        return client.read(StacksAnswer, "topologies", name, "workers", worker.worker, "stacks")
    except Refused as refused:
        if refused.kind == "NoSuchTopology" or refused.status == 401:
            raise
        echo(f"{worker.worker} on {worker.host}: {refused}", err=True)
        return None


def wanted_of(stacks: Iterable[CallStack], task: int | None, component: str | None) -> list[CallStack]:
    """Return the stacks to be shown."""
    return [each for each in stacks if task in (None, each.task) and component in (None, each.component)]


def shown(
    found: Iterable[tuple[WorkerEntry, StacksAnswer | None]], task: int | None, component: str | None
) -> Iterator[Line]:
    """Yield the lines of all answers."""
    for worker, answer in found:
        if answer is None or not answer.answered:
            continue
        yield ((f"{worker.worker} on {worker.host}, process {answer.pid}", "head"),)
        stacks = wanted_of(answer.stacks, task, component)
        for each in stacks:
            yield ()
            yield from lines_of(each)
        if not stacks:
            yield (("  no such call runs at the moment", "dim"),)
        if answer.more:
            yield ((f"  and {answer.more} further threads and calls", "dim"),)
        yield ()


def lines_of(stack: CallStack) -> Iterator[Line]:
    """Yield the lines of one stack."""
    style = "dim" if stack.task is None else ""
    if stack.task is None:
        yield ((f"  thread {stack.thread}, in no call of a component", "dim"),)
    else:
        secs = "" if stack.seconds is None else f", in a call for {duration(stack.seconds)}"
        yield ((f"  {stack.component}[{stack.task}]", "head"), (secs, ""))
        if stack.tuple_text:
            yield ((f"    {stack.tuple_text}", ""),)
    for frame in stack.frames:
        yield ((f"    {own_paths(frame.file)}:{frame.line}, in {frame.function}", style),)
        if frame.code:
            yield ((f"      {frame.code}", "dim"),)


def shown_json(
    worker: WorkerEntry, answer: StacksAnswer | None, task: int | None, component: str | None
) -> dict[str, object]:
    """Return one worker for --json."""
    from msgspec import to_builtins

    stacks = () if answer is None else wanted_of(answer.stacks, task, component)
    return {
        "worker": worker.worker,
        "host": worker.host,
        "answered": answer is not None and answer.answered,
        "pid": None if answer is None else answer.pid,
        "stacks": to_builtins(stacks),
    }
