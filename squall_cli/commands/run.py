"""`squall run FILE`: run a topology on this machine, in this process or in worker processes, until it is completed or stopped.

The command reads its options, chooses where output goes, runs the topology, prints the summary, and exits with the status of
the run.
Must not know: how topologies are found, watched, drawn or summarised (see the imported modules).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import IO, Any

import click
from msgspec import Struct, structs

from local_cluster import LocalCluster, TopologyStatus
from squall.settings import merged
from squall_cli.cluster.cluster_client import config_option
from squall_cli.commands.completion import settings_option
from squall_cli.local.local_run import Ended, LocalRun, begin_shutdown, end_at_once
from squall_cli.local.summary import as_json, exit_status, summary_lines
from squall_cli.local.worker_logs import WorkerLogs
from squall_cli.options.kinds import Seconds, Whole, files
from squall_cli.options.site import WORKERS, Layers, read_layers, with_workers
from squall_cli.options.state_start import state_option, what_comes_again
from squall_cli.packing.loading import load_topology
from squall_cli.terminal import user_output
from squall_cli.terminal.formats import plural
from squall_cli.terminal.interrupts import EndNow, Interrupts
from squall_cli.terminal.lines import is_terminal, styles_of, width_of, write, write_json, write_lines
from squall_cli.terminal.live_table import LiveTable, Screen
from squall_cli.terminal.views import PlainLines, RunView
from topology_api.epoch_rules import memory_note, state_in_memory, state_path
from topology_api.errors import NoSuchTopology, SquallError
from topology_api.guarantees import counting_again, rewind_note
from topology_api.topology import Topology


@click.command()
@click.argument("source", metavar="FILE[:NAME]", shell_complete=files)
@click.argument("arguments", metavar="[-- ARGS]...", nargs=-1, type=click.UNPROCESSED, shell_complete=files)
@click.option("--name", metavar="NAME", help="The name, also of the state.  [default: the name in FILE]")
@click.option(
    "-n",
    "--workers",
    metavar="N",
    type=Whole(1),
    help="The number of worker processes. With 1, everything runs in this process.  [default: 1]",
)
@click.option("--seconds", metavar="S", type=Seconds(above=True), help="Drain after S seconds.")
@state_option
@settings_option
@config_option
@click.option(
    "--json", "json_wanted", is_flag=True, help="Print the summary as JSON; everything else goes to stderr."
)
@click.option(
    "--allow-failures", is_flag=True, help="Exit with 0 even if trees failed for good or next_tuple() raised."
)
def run(**options: Any) -> None:
    """Run a topology on this machine until it is completed or stopped: in this process, or in worker processes.

    FILE defines `topology`: a Topology, or a function that returns one; the function's arguments follow --, as strings. To use
    a different object than `topology`, give FILE:NAME or package.module:NAME.

    \b
    Examples:
      squall run word_count.py -- book.txt
      squall run word_count.py --workers 2 -- book.txt
      squall run word_count.py --seconds 10 -o topology.max.spout.pending=100
      squall run word_count.py --json > summary.json
      squall run counts.py --name trial
      squall run counts.py --state @17

    The first Ctrl-C drains: spouts stop, and pending trees are processed for at most the message timeout. A second Ctrl-C ends
    the run at once. Exit status: 0 done; 1 if trees or tuples failed for good, a spout's next_tuple() raised, the topology
    failed, or trees were left open; 2 wrong usage.
    """
    go(RunOptions(**options))


class RunOptions(Struct, frozen=True, kw_only=True):
    """The options of `squall run`, by the names that click gives them, and what a command has that it lacks."""

    source: str
    arguments: tuple[str, ...]
    name: str | None
    workers: int | None
    seconds: float | None
    state_start: str
    settings: tuple[str, ...]
    config: str | None
    json_wanted: bool
    allow_failures: bool


def go(options: RunOptions, command: str = "squall run") -> None:
    """Run a topology, print the summary, and exit. command: what the user called."""
    workers, state_start, json_wanted = options.workers, options.state_start, options.json_wanted
    layers = with_workers(
        read_layers(options.config, os.environ, options.settings), None if workers == 1 else workers
    )
    out, view = streams(json_wanted)
    topology = load_topology(options.source, options.arguments)
    if options.name is not None:
        topology = topology.renamed(options.name)
    if state_start:
        write(sys.stderr, f"{topology.name} {what_comes_again(state_start, topology)}")
    ended = run_topology(topology, layers, view, options.seconds, workers, state_start)
    status, reason = exit_status(ended, options.allow_failures)
    if json_wanted:
        write_json(out, as_json(ended, status, reason))
    else:
        write_lines(out, summary_lines(ended, width_of(out)))
    if reason is not None:
        write(sys.stderr, f"{command}: {reason}")
    if ended.how == "cut off":  # do not wait for a call of user code that may still run
        out.flush()
        os._exit(status)
    sys.exit(status)


def streams(json_wanted: bool) -> tuple[IO[str], RunView]:
    """Return the stream for the summary, and the view of the run. After this call, user code may write to stdout."""
    if json_wanted:
        out = user_output.keep_stdout()
        return out, PlainLines(sys.stderr, sys.stderr)
    out = sys.stdout
    if not is_terminal(out):
        return out, PlainLines(out, sys.stderr)
    table = LiveTable(Screen(out, styles_of(out)), user_output.gather_user_output())
    user_output.let_debugger_in(table.close)
    return out, table


def run_topology(
    topology: Topology,
    layers: Layers,
    view: RunView,
    seconds: float | None,
    workers: int | None,
    state_start: str = "",
) -> Ended:
    """Run a topology to its end, in this process or in worker processes."""
    conf, _ = merged(topology, layers.files, layers.environment, layers.overrides, local=True)
    if workers not in (None, 1):  # in this process, state ends with the run, as everything does
        keeps = {each.id: each.keeps for each in topology.components}
        if bolts := state_in_memory(keeps, conf, topology.conf, layers.overrides.topology):
            write(sys.stderr, memory_note(bolts))
    if state_path(conf) is not None and (spouts := counting_again(topology)):
        write(sys.stderr, rewind_note(spouts))
    drain_seconds = float(conf["topology.message.timeout.secs"])  # type: ignore[arg-type]
    user_output.show_log(topology.name)
    with Interrupts() as interrupts:
        interrupts.hold()
        cluster, logs = start_cluster(layers, workers)
        try:
            interrupts.release()
            if isinstance(view, PlainLines):  # before any component can print
                write(view.progress, opening(topology, conf, logs is not None))
            cluster.submit(topology, layers.overrides, state=state_start)
            ended = LocalRun(cluster, topology.name, view, interrupts, seconds, drain_seconds, logs).follow()
        except EndNow:  # a signal between two steps
            interrupts.ignore()
            ended = Ended("cut off", status_at_end(cluster, topology.name, interrupts, logs), 0.0)
        except BaseException:  # a closed pipe, for example
            end_at_once(cluster, interrupts, logs is not None)
            raise
        finally:
            view.close()
        ended = structs.replace(
            close(cluster, ended, interrupts, logs is not None), folder=folder_of(topology, conf)
        )
        if logs is not None:  # what the workers wrote at their end
            text = logs.read(last=True)
            logs.close()
            if text:
                view.output(text)
        return ended


def folder_of(topology: Topology, conf: Mapping[str, object]) -> str:
    """Return the folder of a topology's state; "": it keeps none."""
    path = state_path(conf)
    return f"{str(path).removeprefix('file://')}/{topology.name}" if path is not None else ""


def start_cluster(layers: Layers, workers: int | None) -> tuple[LocalCluster, WorkerLogs | None]:
    """Start a cluster. Return the cluster, and, if it has worker processes, the reader of their logs."""
    settings = (layers.files, layers.environment)
    if workers is None or workers == 1:
        return LocalCluster(settings=settings), None
    user_output.show_supervisor()
    return LocalCluster(processes=True, slots=workers, settings=settings), WorkerLogs()


def status_at_end(
    cluster: LocalCluster, name: str, interrupts: Interrupts, logs: WorkerLogs | None
) -> TopologyStatus:
    """Return the last status of a topology that was cut off. Raises SquallError if it was never submitted."""
    try:
        return cluster.last_status(name)
    except NoSuchTopology:
        end_at_once(cluster, interrupts, logs is not None)
        raise SquallError(f"topology {name!r} was cut off before it was submitted") from None


def close(cluster: LocalCluster, ended: Ended, interrupts: Interrupts, processes: bool) -> Ended:
    """End the cluster. Return how the run ended, with the final counters, which include trees that the end has cut off."""
    how = ended.how
    if how == "cut off":
        end_at_once(cluster, interrupts, processes)
    else:
        shutdown = begin_shutdown(cluster)
        try:
            shutdown.result()
        except EndNow:
            how = "cut off"
            end_at_once(cluster, interrupts, processes, shutdown)
    name = ended.status.name
    letters = cluster.dead_letters(name) or ended.letters  # the files of worker processes are gone
    return Ended(how, cluster.last_status(name), ended.seconds, ended.reported, letters)


def opening(topology: Topology, conf: Mapping[str, object], processes: bool) -> str:
    """Return the first line of output without a live table."""
    tasks = sum(component.parallelism for component in topology.components)
    number = int(str(conf[WORKERS]))
    workers = plural(number, "worker process", "worker processes") if processes else plural(number, "worker")
    size = f"{plural(len(topology.components), 'component')}, {plural(tasks, 'task')}"
    return f"{topology.name}: {size}, {workers}; Ctrl-C drains"
