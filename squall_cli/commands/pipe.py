"""`squall pipe SOURCE SINK`: a topology from two addresses, run here or submitted.

Must not know: which addresses there are, how a topology is made of them (`squall_io.pipes`), run or submitted.
"""

from __future__ import annotations

from typing import Final

import click

from squall_cli.cluster import cluster_client
from squall_cli.commands import run as running
from squall_cli.commands import submit as submitting
from squall_cli.commands.completion import settings_option
from squall_cli.options import kinds
from squall_cli.options.state_start import state_option
from squall_cli.terminal.interrupts import all_as_ctrl_c

#: What makes the topology of the command's arguments.
TOPOLOGY: Final = "squall_cli.packing.pipe_topology:topology"


@click.command()
@click.argument("source", metavar="SOURCE", shell_complete=kinds.files)
@click.argument("sink", metavar="[SINK]", required=False, default="")
@click.option(
    "--map",
    "function",
    metavar="FILE:NAME",
    default="",
    shell_complete=kinds.files,
    help="A function from a row, as a dict, to a row, several rows, or None for no row.",
)
@click.option("--tasks", metavar="N", type=kinds.Whole(1), help="How many tasks each part has.  [default: 1]")
@click.option("--name", metavar="NAME", help="The name of the topology, also of its state.  [default: pipe]")
@click.option("-n", "--workers", metavar="N", type=kinds.Whole(1), help="The number of worker processes.")
@click.option("--seconds", metavar="S", type=kinds.Seconds(above=True), help="Drain after S seconds.")
@click.option("--submit", "submits", is_flag=True, help="Send it to a cluster instead of running it here.")
@click.option("--check", is_flag=True, help="With --submit: do everything but submit.")
@click.option("--replace", "replaces", is_flag=True, help="With --submit: replace the one with this name.")
@click.option("--wait", is_flag=True, help="With --submit: show how it comes up.")
@cluster_client.timeout_option()
@state_option
@settings_option
@cluster_client.cluster_options
def pipe(
    cluster: cluster_client.ClusterOptions,
    source: str,
    sink: str,
    function: str,
    tasks: int | None,
    name: str | None,
    workers: int | None,
    seconds: float | None,
    submits: bool,
    check: bool,
    replaces: bool,
    wait: bool,
    timeout: float | None,
    state_start: str,
    settings: tuple[str, ...],
) -> None:
    """Copy rows from a source to a sink, without a file of code: a topology that is run here, or submitted.

    SOURCE and SINK are addresses, SCHEME:PLACE?OPTION=VALUE&...; an option is an argument of the connector. With a YAML file as
    SOURCE, and no SINK, all pipes run that the file lists.

    \b
    Examples:
      squall pipe 'file:/var/log/app.jsonl?format=jsonl&schema=id long' file:/out
      squall pipe file:/in/words.txt file:/out --map clean.py:clean
      squall pipe pipes.yaml --submit --wait

    A map gets each row as a dict. If the source emits one value that is a dict, such as a message of JSON, this is the row. The
    row must have the fields that the sink writes. Between topics of Kafka only values are copied, unless the addresses name the
    other parts of messages (docs/pipes.md).

    The guarantee is that of any topology with these connectors: with -o topology.state.path=file:///folder each row is in the
    sink once if both can do that. Exit status: as of `squall run`, or of `squall submit`.
    """
    if not submits and (check or replaces or wait):
        raise click.UsageError("--check, --replace and --wait are about a cluster: give them with --submit")
    if submits and seconds is not None:
        raise click.UsageError("--seconds ends a run on this machine: leave it out with --submit")
    if not sink and (function or tasks):
        raise click.UsageError("--map and --tasks are in the file that lists the pipes: leave them out")
    cluster_client.check_timeout(wait, timeout)
    arguments = (source, sink, function, str(tasks or 1)) if sink else (source,)
    if not submits:
        options = running.RunOptions(
            source=TOPOLOGY, arguments=arguments, name=name, workers=workers, seconds=seconds, state_start=state_start,
            settings=settings, config=cluster.config, json_wanted=cluster.as_json, allow_failures=False,
        )  # fmt: skip
        running.go(options, "squall pipe")
        return
    if check and wait:
        raise click.UsageError("--check submits nothing, so there is nothing to --wait for")
    asked = submission_of(arguments, name, workers, state_start, check, replaces, wait, timeout)
    with all_as_ctrl_c():
        submitting.go(cluster, asked, settings)


def submission_of(
    arguments: tuple[str, ...],
    name: str | None,
    workers: int | None,
    state_start: str,
    check: bool,
    replaces: bool,
    wait: bool,
    timeout: float | None,
) -> submitting.SubmitOptions:
    """Return the options of a submission. All that the command does not have are as if they were not given."""
    return submitting.SubmitOptions(
        source=TOPOLOGY,
        arguments=arguments,
        name=name,
        workers=workers,
        check=check,
        wait=wait,
        timeout=timeout,
        inactive=False,
        replaces=replaces,
        reset_options=False,
        wait_secs=None,
        include=(),
        resource=(),
        requirements=None,
        wheels=None,
        state_start=state_start,
    )
