"""`squall submit FILE`: loads a topology, packs its modules and files, and sends all of this to Nimbus. With --wait, it also
shows how the topology starts.

Must not know: which modules are shipped, how they are sent, when a topology has come up (see the imported modules).
"""

from __future__ import annotations

import os
import sys
import tempfile
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import click
import msgspec

from squall.packages.travel_rules import NEEDED
from squall_cli.cluster import cluster_client
from squall_cli.cluster.waiting import Interrupted
from squall_cli.commands.completion import settings_option
from squall_cli.options import kinds
from squall_cli.options.site import Layers, read_layers, with_workers
from squall_cli.options.state_start import state_option, what_comes_again
from squall_cli.packing import packing
from squall_cli.packing.loading import load_topology, parse_source
from squall_cli.packing.packing import Package, Packed
from squall_cli.terminal.formats import in_bytes, to_type
from squall_cli.terminal.interrupts import all_as_ctrl_c
from squall_cli.terminal.lines import write, write_json
from squall_cli.terminal.user_output import keep_stdout
from topology_api.epoch_rules import (
    STATE_PATH,
    is_auto,
    keeps_something,
    memory_note,
    state_in_memory,
    state_path,
)
from topology_api.errors import SquallError
from topology_api.state_places import AUTO
from topology_api.topology import Topology

if TYPE_CHECKING:
    from squall_cli.cluster.nimbus_client import NimbusClient
    from squall_cli.packing.submission import Accepted, OutgoingSubmission
    from squall_cli.packing.watching import Steps

#: Libraries that are installed with Squall on every host.
WITH_SQUALL: Final = (*NEEDED, "click", "kazoo", "nacl", "rich", "starlette", "uvicorn")


class SubmitOptions(msgspec.Struct, frozen=True):
    """The options and arguments of the command, except the options that name the cluster."""

    source: str
    arguments: tuple[str, ...]
    name: str | None
    workers: int | None
    check: bool
    wait: bool
    timeout: float | None
    inactive: bool
    replaces: bool
    reset_options: bool
    wait_secs: float | None
    include: tuple[str, ...]
    resource: tuple[str, ...]
    requirements: str | None
    wheels: str | None
    state_start: str


@click.command()
@click.argument("source", metavar="FILE[:NAME]", shell_complete=kinds.files)
@click.argument(
    "arguments", metavar="[-- ARGS]...", nargs=-1, type=click.UNPROCESSED, shell_complete=kinds.files
)
@click.option("--name", metavar="NAME", help="The name on the cluster.  [default: the name in FILE]")
@click.option(
    "-n",
    "--workers",
    metavar="N",
    type=kinds.Whole(1),
    help="The number of worker processes; short for -o topology.workers=N.",
)
@click.option("--check", is_flag=True, help="Do everything but submit: nothing on the cluster is changed.")
@click.option("--wait", is_flag=True, help="Show how the topology comes up; return when a tree is acked.")
@cluster_client.timeout_option()
@click.option("--inactive", is_flag=True, help="Do not start the spouts; `squall activate` starts them.")
@click.option(
    "--replace",
    "replaces",
    is_flag=True,
    help="Drain and replace the topology with this name; if the new version does not come up, the old version continues.",
)
@click.option(
    "--reset-options",
    is_flag=True,
    help="With --replace: forget what -o and `squall rebalance` have set for the running version.",
)
@cluster_client.wait_secs_option(
    "With --replace: how long the old version may drain.  [default: the old version's message timeout]"
)
@click.option(
    "--include",
    metavar="PATH",
    shell_complete=kinds.files,
    multiple=True,
    help="Also ship this module, package or folder: for imports that Squall cannot find in the code.",
)
@click.option(
    "--resource",
    metavar="PATH[=NAME]",
    shell_complete=kinds.files,
    multiple=True,
    help="A data file or folder to put beside FILE: Path(__file__).with_name(...) finds it.",
)
@click.option(
    "--requirements",
    metavar="FILE",
    shell_complete=kinds.files,
    help="A requirements file for pip: packages that the hosts install for the topology.",
)
@click.option(
    "--wheels",
    metavar="DIR",
    shell_complete=kinds.folders,
    help="Install the packages of --requirements only from the wheels in DIR; no package index is used.",
)
@state_option
@settings_option
@cluster_client.cluster_options
def submit(cluster: cluster_client.ClusterOptions, settings: tuple[str, ...], **typed: Any) -> None:
    """Send a topology to a cluster.

    FILE defines `topology`: a Topology, or a function that returns one; the function's arguments follow --, as strings. To use
    a different object than `topology`, give FILE:NAME or package.module:NAME.

    Your own modules that FILE imports are shipped with it. Installed packages are not shipped: they must be installed on the
    hosts, or be listed in --requirements.

    \b
    Examples:
      squall submit word_count.py -- /data/book.txt
      squall submit word_count.py --wait --timeout 60 --name books -n 4
      squall submit app.topologies:clicks --include plugins --resource words.txt
      squall submit clicks.py --requirements requirements.txt --wheels wheels
      squall submit clicks.py --replace --check
      squall submit clicks.py --replace --wait
      squall submit clicks.py --state @1417
      squall submit clicks.py --name trial --state /var/lib/squall-state/clicks

    --wait returns when the first tree is acked or the topology is completed, or goes on from its state and finds nothing new
    in its input. --state returns when the epoch was found. Exit status: 0 done; 1 if Nimbus refused the topology or if, with
    --wait or --state, the topology did not come up; 2 wrong usage.
    """
    asked = SubmitOptions(**typed)
    if asked.check and asked.wait:
        raise click.UsageError("--check submits nothing, so there is nothing to --wait for")
    cluster_client.check_timeout(asked.wait, asked.timeout)
    if asked.wait_secs is not None and not asked.replaces:
        raise click.UsageError("-w says how long a replaced topology may drain, so it needs --replace")
    if asked.reset_options and not asked.replaces:
        raise click.UsageError("--reset-options is about the version that is replaced, so it needs --replace")
    if asked.wheels is not None and asked.requirements is None:
        raise click.UsageError("--wheels holds the packages that --requirements lists: give both options")
    with all_as_ctrl_c():
        go(cluster, asked, settings)


def go(cluster: cluster_client.ClusterOptions, asked: SubmitOptions, settings: tuple[str, ...]) -> None:
    """Load, pack, send, watch, and print the outcome to stdout. Raise `SquallError` for a failure."""
    from squall_cli.packing.watching import Steps, watch, watch_begin

    layers = with_workers(read_layers(cluster.config, os.environ, settings), asked.workers)
    client = cluster.connected()
    out = keep_stdout() if cluster.as_json else sys.stdout  # before the user's file runs: it may print
    accepted: Accepted | None = None
    try:
        topology, package = load(asked, layers)
        with Steps() as steps:
            with tempfile.TemporaryDirectory(prefix="squall-submit-") as folder:
                steps.now("packing")
                files = packing.pack_all(package, Path(folder))
                size = f", {in_bytes(sum(file.size for file in files))}" if files else ""
                steps.done(f"packed: {package.summary}{size}")
                for hint in hints(package):
                    steps.done(hint)
                submission = made(asked, layers, topology, tuple(files))
                begins = ""  # said when nothing can refuse it any more
                if asked.state_start:
                    for line in check_kept(asked.state_start, submission, client, topology):
                        steps.done(line)
                    begins = what_comes_again(asked.state_start, topology)
                if asked.check:
                    found = checked(client, submission, topology, package, steps)
                    steps.done(begins)
                    if cluster.as_json:
                        write_json(out, found)
                    else:
                        write(out, f"{submission.name} can be submitted; nothing was changed")
                    return
                accepted = sent(client, submission, topology, package, steps)
            result: dict[str, Any] = {"name": accepted.name, "id": accepted.id, "state": accepted.state}
            result |= {"kept": accepted.kept, "changed": accepted.changed, "state_path": accepted.state_path}
            result |= {"uploaded": accepted.uploaded, "files": {file.purpose: file.sha256 for file in files}}
            failure = None
            if asked.wait:
                failure = watch(
                    client, accepted, steps, result, asked.timeout, not asked.inactive, asked.replaces
                )
            elif begins and not asked.inactive:
                failure, begins = watch_begin(client, accepted, steps, result, asked.replaces, begins), ""
            if failure is None:
                steps.done(begins)
        if cluster.as_json:
            write_json(out, {**result, "failure": failure})
        elif failure is None:
            name, state = result["name"], result["state"]
            write(out, f"{name} is {state} at {client.addresses[0].url}: {to_type('status', name)}")
        if failure is not None:
            raise SquallError(failure)
    except KeyboardInterrupt:
        if accepted is None:  # if the submission may have arrived, `sent` has raised a different error
            raise Interrupted("interrupted: nothing was submitted") from None
        raise Interrupted(
            f"stopped waiting; {accepted.name} is submitted and continues: {to_type('status', accepted.name)}"
        ) from None


def check_kept(
    start: str, submission: OutgoingSubmission, client: NimbusClient, topology: Topology
) -> list[str]:
    """Return what tables have of later epochs than the one with which a submission is to begin. Raise `SquallError` if that is
    not kept. Both as far as it is known here: the cluster may be on other hosts, with other folders."""
    from squall.http.host_names import is_local_name
    from squall_cli.options.state_start import epoch_problem
    from squall_cli.packing.later_rows import later_rows

    here = all(is_local_name(urlsplit(address.url).hostname or "") for address in client.addresses)
    problem = epoch_problem(start, submission.name, submission.body["conf"], here)
    if problem:
        raise SquallError(problem)
    return list(later_rows(start, topology, submission.body["conf"], here))


def load(asked: SubmitOptions, layers: Layers) -> tuple[Topology, Package]:
    """Load the topology of the user's file, and find the files that are shipped with the topology. All paths are read before
    the user's file runs, since the file may change the working directory."""
    source = parse_source(asked.source)
    if source.file is not None:
        source = msgspec.structs.replace(source, file=Path(os.path.abspath(source.file)))
    resources = [packing.Resource.parse(text) for text in asked.resource]
    requirements = None if asked.requirements is None else packing.read_requirements(Path(asked.requirements))
    wheels = () if asked.wheels is None else packing.find_wheels(Path(asked.wheels))
    before = frozenset(sys.modules)
    includes = packing.included(asked.include, Path.cwd() if source.file is None else source.file.parent)
    topology = load_topology(asked.source, asked.arguments)
    if asked.name is not None:
        topology = topology.renamed(asked.name)
    confs = [layers.files, layers.environment, topology.conf, layers.overrides.topology]
    confs += [component.conf for component in topology.components]
    confs += layers.overrides.components.values()
    package = packing.gather(source, before, includes, resources, confs)
    return topology, msgspec.structs.replace(package, requirements=requirements, wheels=wheels)


def made(
    asked: SubmitOptions, layers: Layers, topology: Topology, files: tuple[Packed, ...]
) -> OutgoingSubmission:
    """Return the submission. Raises InvalidConfig with all problems of the settings, or the error that Nimbus would raise."""
    from nimbus.submission.parse import read_submission
    from squall.cluster.records import SetOptions
    from squall.settings import merged
    from squall_cli.packing.submission import OutgoingSubmission, request_body

    conf, component_confs = merged(topology, layers.files, layers.environment, layers.overrides)
    if is_auto(conf):  # it is what Nimbus assumes; one of an earlier release does not know the word
        for each in (conf, *component_confs.values()):
            del each[STATE_PATH]
    body = request_body(
        topology,
        files,
        submission=uuid.uuid4().hex,
        conf=conf,
        component_confs=component_confs,
        active=not asked.inactive,
        replace=asked.replaces,
        wait_secs=asked.wait_secs,
        options=SetOptions(layers.overrides.topology, layers.overrides.components),
        reset_options=asked.reset_options,
        state=asked.state_start,
    )
    read_submission(body)
    return OutgoingSubmission(topology.name, body, files)


def sent(
    client: NimbusClient, submission: OutgoingSubmission, topology: Topology, package: Package, steps: Steps
) -> Accepted:
    """Send the submission, and show its parts."""
    from squall.http.client import Refused
    from squall_cli.packing import submission as sending
    from squall_cli.packing.watching import differences

    try:
        with cluster_client.about(client, submission.name):
            steps.now("asking Nimbus")
            sending.check_versions(client, submission.name)
            accepted = sending.submit(client, submission, steps.show, steps.now)
    except Refused as error:
        if error.status != 413:
            raise
        # A file is too large: `made` has checked the submission itself.
        raise too_large(error, package) from None
    if submission.files:
        all_there = "nothing to upload: the cluster has it already"
        steps.done(f"uploaded: {in_bytes(accepted.uploaded)}" if accepted.uploaded else all_there)
    steps.done(f"submitted: {accepted.name} as {accepted.id}")
    notes = *state_notes(submission, accepted), *spout_notes(topology, submission, accepted)
    for line in (*differences(accepted), *notes):
        steps.done(line)
    return accepted


def checked(
    client: NimbusClient, submission: OutgoingSubmission, topology: Topology, package: Package, steps: Steps
) -> dict[str, Any]:
    """Let Nimbus check the submission, show what it would change, and return that."""
    from nimbus.files.stored_files import FileTooLarge
    from squall_cli.packing import submission as sending
    from squall_cli.packing.watching import differences

    name = submission.name
    with cluster_client.about(client, name):
        steps.now("asking Nimbus")
        sending.check_versions(client, name)
        try:
            answer = sending.check(client, submission)
        except FileTooLarge as error:
            raise too_large(error, package) from None
        supervisors = client.supervisors()
    if answer.uploaded:
        steps.done(f"to upload: {in_bytes(answer.uploaded)}")
    notes = *state_notes(submission, answer), *spout_notes(topology, submission, answer)
    for line in (*differences(answer), *notes):
        steps.done(line)
    free = sum(each.slots - each.used for each in supervisors if each.takes_workers)
    free += sum(
        worker.topology == name for each in supervisors for worker in each.workers
    )  # the version that is replaced
    workers = submission.body["conf"]["topology.workers"]
    if workers > free:
        steps.done(f"not enough slots: it asks for {workers} workers, and there is room for {free}")
    result: dict[str, Any] = {
        "name": name,
        "state": answer.state,
        "kept": answer.kept,
        "changed": answer.changed,
    }
    result["state_path"] = answer.state_path
    return {**result, "uploaded": answer.uploaded, "slots": free, "submitted": False}


def state_notes(submission: OutgoingSubmission, answer: Accepted) -> list[str]:
    """Return what to know of the state of the components: where it is kept if the submission does not say so, or that it is
    not."""
    body = submission.body
    conf = {STATE_PATH: AUTO, **body["conf"]}
    keeps = {each["id"]: each.get("keeps", {}) for each in body["description"]["components"]}
    meant = answer.kept.get(STATE_PATH, AUTO) is None  # an operator has said so of the running version
    if meant or not is_auto(conf):
        given = (body["description"]["conf"], body.get("options", {}).get("topology", {}), answer.kept)
        bolts = state_in_memory(keeps, conf, *given)
    elif answer.state_path is not None:
        folder = f"{answer.state_path.removeprefix('file://')}/{submission.name}"
        return [f"its state is kept in {folder}; it goes on from what is there"]
    else:
        bolts = [each for each, own in keeps.items() if keeps_something(own)]
    return [memory_note(bolts)] if bolts else []


def spout_notes(topology: Topology, submission: OutgoingSubmission, answer: Accepted) -> list[str]:
    """Return which spouts may make kept state count a tuple twice."""
    from topology_api.guarantees import counting_again, rewind_note

    # A Nimbus of an earlier release does not say where the state is kept.
    kept_at = answer.state_path or state_path({**submission.body["conf"], **answer.kept})
    spouts = [] if kept_at is None else counting_again(topology)
    return [rewind_note(spouts)] if spouts else []


def too_large(error: SquallError, package: Package) -> SquallError:
    """Return the error for a package with a file that the cluster does not accept."""
    return SquallError(f"{error}; the largest files of the package: {packing.largest(package)}")


def hints(package: Package) -> list[str]:
    """Return hints about packages that the hosts may lack."""
    found = []
    libraries = [name for name in package.libraries if name not in WITH_SQUALL]
    if libraries and package.requirements is None:
        found.append(
            f"not packed, must be installed on the hosts: {', '.join(libraries)} (or list them in --requirements FILE)"
        )
    if package.missing:
        names = ", ".join(f"{name} ({place})" for name, place in sorted(package.missing.items()))
        ways = "--include PATH ships a module, --requirements FILE installs a package on the hosts"
        if package.requirements is not None:
            ways = "list it in --requirements, or ship it with --include PATH"
        found.append(f"imported, but not found on this machine: {names}; {ways}")
    return found
