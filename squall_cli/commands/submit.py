"""`squall submit FILE`: load a topology, gather its files, send both to Nimbus, and with --wait watch it start.

Must not know: which modules travel, how things are sent, when a topology has come up (see the modules it imports).
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
import time
import uuid
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from squall.packages.travel_rules import NEEDED
from squall_cli.cluster import cluster_client
from squall_cli.cluster.cluster_client import ClusterOptions
from squall_cli.cluster.waiting import Interrupted, WaitProgress, patiently
from squall_cli.commands.completion import settings_option
from squall_cli.options import kinds
from squall_cli.options.site import Layers, read_layers
from squall_cli.packing.loading import WrongSource, load_topology, parse_source
from squall_cli.packing.packing import (
    Package,
    Packed,
    Resource,
    find_wheels,
    gather,
    included,
    largest,
    pack_all,
    read_requirements,
)
from squall_cli.packing.user_modules import Before
from squall_cli.terminal.formats import duration, in_bytes, to_type
from squall_cli.terminal.interrupts import all_as_ctrl_c
from squall_cli.terminal.lines import harmless
from squall_cli.terminal.user_output import keep_stdout
from topology_api.errors import SquallError
from topology_api.topology import Topology

if TYPE_CHECKING:
    from squall_cli.cluster.nimbus_client import NimbusClient
    from squall_cli.packing.submission import Accepted, OutgoingSubmission

#: Libraries that are installed wherever Squall is.
WITH_SQUALL: Final = (*NEEDED, "click", "kazoo", "nacl", "rich", "starlette", "uvicorn")
#: Seconds between two lines that differ in their numbers only.
LINE_SECS: Final = 5.0
NUMBER: Final = re.compile(r"[\d,.]+(?:st|nd|rd|th)?")
#: Seconds between two checks of a topology that is starting.
LOOK_SECS: Final = 0.25


@dataclass(frozen=True)
class SubmitOptions:
    """The options and arguments, without those that name the cluster."""

    source: str
    arguments: tuple[str, ...]
    name: str | None
    wait: bool
    inactive: bool
    replaces: bool
    wait_secs: float | None
    include: tuple[str, ...]
    resource: tuple[str, ...]
    requirements: str | None
    wheels: str | None


@click.command()
@click.argument("source", metavar="FILE[:NAME]", shell_complete=kinds.files)
@click.argument(
    "arguments", metavar="[-- ARGS]...", nargs=-1, type=click.UNPROCESSED, shell_complete=kinds.files
)
@click.option("--name", metavar="NAME", help="The name to submit it under.  [default: its own]")
@click.option("--wait", is_flag=True, help="Show how it comes up; end when its first tree was acked.")
@click.option("--inactive", is_flag=True, help="Let no spout run before `squall activate`.")
@click.option(
    "--replace",
    "replaces",
    is_flag=True,
    help="Take the place of the topology of that name after its drain; when the new one does not come up, the old goes on.",
)
@click.option(
    "-w",
    "--wait-secs",
    metavar="SECS",
    type=kinds.Seconds(),
    help="With --replace: how long the old one may drain.  [default: its message timeout]",
)
@click.option(
    "--include",
    metavar="PATH",
    shell_complete=kinds.files,
    multiple=True,
    help="A module, package or folder that is imported by a name that is not in the code.",
)
@click.option(
    "--resource",
    metavar="PATH[=NAME]",
    shell_complete=kinds.files,
    multiple=True,
    help="A data file or folder, which lands beside the file: Path(__file__).with_name(...) finds it.",
)
@click.option(
    "--requirements",
    metavar="FILE",
    shell_complete=kinds.files,
    help="Packages that the hosts install for it, as pip reads them.",
)
@click.option(
    "--wheels",
    metavar="DIR",
    shell_complete=kinds.folders,
    help="The wheels to install them from; nothing else is asked then.",
)
@settings_option
@cluster_client.options
def submit(cluster: ClusterOptions, settings: tuple[str, ...], **typed: Any) -> None:
    """Send a topology to a cluster.

    FILE holds `topology`: a Topology, or a function that returns one; its arguments stand after --, as strings.
    FILE:NAME or package.module:NAME picks another name.

    What it imports of your own modules travels with it. What is installed does not: it must be there on the hosts,
    or be listed in --requirements.

    \b
    Examples:
      squall submit word_count.py -- /data/book.txt
      squall submit word_count.py --wait --name books -o topology.workers=4
      squall submit app.topologies:clicks --include plugins --resource words.txt
      squall submit clicks.py --requirements requirements.txt --wheels wheels
      squall submit clicks.py --replace --wait

    --wait ends when the first tree was acked or the topology is completed. Exit status: 0 done; 1 when it was not
    taken, or with --wait did not come up; 2 wrong usage.
    """
    asked = SubmitOptions(**typed)
    check_usage(asked)
    with all_as_ctrl_c():
        go(cluster, asked, settings)


def go(cluster: ClusterOptions, asked: SubmitOptions, settings: tuple[str, ...]) -> None:
    """Load, pack, send, and watch."""
    layers = read_layers(cluster.config, os.environ, settings)
    client = cluster_client.connect(cluster.nimbus, cluster.config)
    out = keep_stdout() if cluster.as_json else sys.stdout  # before the user's file may print
    accepted: Accepted | None = None
    try:
        topology, package = load(asked, layers)
        with Steps() as steps:
            with tempfile.TemporaryDirectory(prefix="squall-submit-") as folder:
                steps.now("packing")
                files = pack_all(package, Path(folder))
                steps.done(f"packed: {package.summary}{sizes(files)}")
                for hint in hints(package):
                    steps.done(hint)
                submission = made(asked, layers, topology, tuple(files))
                accepted = sent(client, submission, package, steps)
            result: dict[str, Any] = {"name": accepted.name, "id": accepted.id, "state": accepted.state}
            result |= {"uploaded": accepted.uploaded, "files": {file.purpose: file.sha256 for file in files}}
            failure = watch(client, accepted, submission, steps, result) if asked.wait else None
        print_outcome(out, cluster.as_json, result, client, failure)
    except WrongSource as error:
        raise click.UsageError(str(error), click.get_current_context()) from None
    except KeyboardInterrupt:
        if accepted is None:  # if it is unknown whether it has arrived, `sent` has printed that
            raise Interrupted("interrupted: nothing was submitted") from None
        raise Interrupted(
            f"not waited for any longer; {accepted.name} is submitted and goes on: {to_type('status', accepted.name)}"
        ) from None


def check_usage(asked: SubmitOptions) -> None:
    """UsageError for options that do not go together."""
    if asked.wait_secs is not None and not asked.replaces:
        problem = "-w says how long the replaced topology may drain: it goes with --replace"
    elif asked.wheels is not None and asked.requirements is None:
        problem = "--wheels holds what --requirements lists: give both"
    else:
        return
    raise click.UsageError(problem, click.get_current_context())


def load(asked: SubmitOptions, layers: Layers) -> tuple[Topology, Package]:
    """Return the topology of the user's file, and its package. All paths are read before that file runs: it
    may change the working folder."""
    source = parse_source(asked.source)
    if source.file is not None:
        source = replace(source, file=Path(os.path.abspath(source.file)))
    resources = [Resource.parse(text) for text in asked.resource]
    requirements = None if asked.requirements is None else read_requirements(Path(asked.requirements))
    wheels = () if asked.wheels is None else find_wheels(Path(asked.wheels))
    before = Before.now()
    includes = included(asked.include, Path.cwd() if source.file is None else source.file.parent)
    topology = load_topology(asked.source, asked.arguments)
    if asked.name is not None:
        topology = topology.renamed(asked.name)
    confs = [layers.site, layers.environment, topology.conf, layers.overrides.topology]
    confs += [component.conf for component in topology.components]
    confs += layers.overrides.components.values()
    package = gather(source, before, includes, resources, confs)
    return topology, replace(package, requirements=requirements, wheels=wheels)


def made(
    asked: SubmitOptions, layers: Layers, topology: Topology, files: tuple[Packed, ...]
) -> OutgoingSubmission:
    """Return what to send; raise InvalidConfig with all problems of the settings, or the error that Nimbus would answer."""
    from nimbus.submission.parse import read_submission
    from squall.settings import merged
    from squall_cli.packing.submission import OutgoingSubmission

    conf, component_confs = merged(topology, layers.site, layers.environment, layers.overrides)
    submission = OutgoingSubmission(
        key=uuid.uuid4().hex,
        topology=topology,
        conf=conf,
        component_confs=component_confs,
        files=files,
        active=not asked.inactive,
        replace=asked.replaces,
        wait_secs=asked.wait_secs,
    )
    read_submission(submission.body())
    return submission


def sent(client: NimbusClient, submission: OutgoingSubmission, package: Package, steps: Steps) -> Accepted:
    """Send it, and print the amount that was sent."""
    from squall.http.client import Refused
    from squall_cli.packing import submission as sending

    name = submission.topology.name
    try:
        with cluster_client.about(client, name):
            steps.now("asking Nimbus")
            sending.check_versions(client, name)
            accepted = sending.submit(client, submission, steps.show, steps.now)
    except Refused as error:
        if error.status == 413:  # a file, since the submission itself was looked at here
            raise SquallError(f"{error}; the largest files that would travel: {largest(package)}") from None
        raise
    if submission.files:
        all_there = "nothing to upload: it is there already"
        steps.done(f"uploaded: {in_bytes(accepted.uploaded)}" if accepted.uploaded else all_there)
    steps.done(f"submitted: {accepted.name} as {accepted.id}")
    return accepted


class Steps(WaitProgress):
    """Shows on stderr the current step, and a line for each step that is done."""

    said = 0.0

    def __enter__(self) -> Steps:
        super().__enter__()
        return self

    def now(self, text: str) -> None:
        """Progress, shown only on a terminal that can erase it again."""
        if self.status is not None:
            self.show(text)

    def show(self, text: str) -> None:
        """Show the progress. If lines cannot be erased, changed numbers alone get a new line only now and then."""
        same = NUMBER.sub("", text) == NUMBER.sub("", self.shown)
        if self.status is None and same and time.monotonic() - self.said < LINE_SECS:
            return
        self.said = time.monotonic()
        super().show(text)

    def done(self, text: str) -> None:
        """A line that stays."""
        if self.status is not None:
            self.status.console.print(harmless(text))
        else:
            with suppress(BrokenPipeError):
                print(harmless(text), file=sys.stderr, flush=True)


def hints(package: Package) -> list[str]:
    """Return what the user may not know about the hosts."""
    found = []
    libraries = [name for name in package.libraries if name not in WITH_SQUALL]
    if libraries and package.requirements is None:
        found.append(
            f"not packed, must be installed on the hosts: {', '.join(libraries)} (or list them in --requirements FILE)"
        )
    if package.missing:
        names = ", ".join(f"{name} ({place})" for name, place in sorted(package.missing.items()))
        ways = "--include PATH sends a module along, --requirements FILE has a package installed"
        if package.requirements is not None:
            ways = "--requirements must bring it, or --include PATH"
        found.append(f"imported, but nowhere to be found here: {names}; {ways}")
    return found


def sizes(files: list[Packed]) -> str:
    """Return `, 12.3 kB`, or "" if only pickles are sent."""
    return f", {in_bytes(sum(file.size for file in files))}" if files else ""


def watch(
    client: NimbusClient,
    accepted: Accepted,
    submission: OutgoingSubmission,
    steps: Steps,
    result: dict[str, Any],
) -> str | None:
    """Follow the topology until it has started; return None, or why it will not start."""
    from squall_cli.packing.coming_up import Arrival, Seen

    began = time.monotonic()
    arrival = Arrival(accepted.name, accepted.id, submission.active, began, submission.replace)

    def check() -> Seen:
        status = client.topology_or_none(accepted.name)
        if status is None:
            return arrival.missing(time.monotonic())
        result["state"] = status.state if status.id == accepted.id else result["state"]
        return arrival.update(status, time.monotonic())

    while True:
        seen = patiently(check, steps)
        for stage in seen.stages:
            first, *rest = stage.splitlines()
            steps.done("\n".join([f"{first} ({duration(time.monotonic() - began)})", *rest]))
        if seen.done or seen.failure is not None:
            result["up_secs"] = round(time.monotonic() - began, 3) if seen.done else None
            return seen.failure
        steps.show(seen.now)
        time.sleep(LOOK_SECS)


def print_outcome(
    out: Any, as_json: bool, result: dict[str, Any], client: NimbusClient, failure: str | None
) -> None:
    """The outcome on stdout; a failure is an error as well."""
    if as_json:
        out.write(json.dumps({**result, "failure": failure}, indent=2) + "\n")
        out.flush()
    elif failure is None:
        out.write(
            f"{result['name']} is {result['state']} at {client.addresses[0].url}: {to_type('status', result['name'])}\n"
        )
    if failure is not None:
        raise SquallError(failure)
