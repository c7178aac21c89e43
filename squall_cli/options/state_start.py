"""`--state [PATH][@EPOCH]`: the epoch of a kept state with which a topology begins, and what to say of it.

Must not know: the format of logs and snapshots.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from squall.packages.state_paths import HDFS, BadStart, StateStart
from squall_cli.options.kinds import folders
from topology_api.committing_sink import CommittingSink
from topology_api.epoch_rules import STATE_WEBHDFS, state_path
from topology_api.errors import SquallError
from topology_api.topology import Topology
from topology_api.wording import listed

if TYPE_CHECKING:
    from worker.loop.committed_state import CommittedState


def start_of(ctx: click.Context, parameter: click.Parameter, given: str | None) -> str:
    """Return what was typed, with an absolute path; "": nothing. A callback of click."""
    try:
        return "" if given is None else str(StateStart.parse(given, Path.cwd()))
    except BadStart as error:
        raise click.BadParameter(str(error)) from None


state_option = click.option(
    "--state",
    "state_start",
    metavar="[PATH][@EPOCH]",
    callback=start_of,
    shell_complete=folders,
    help="Begin with this epoch of the topology's own state (@17), or with the state of another topology, in a folder that all "
    "hosts see (/folder/name, /folder/name@17).  [default: the last commit]",
)


def what_comes_again(start: str, topology: Topology | None) -> str:
    """Return what a topology begins with, and what its sinks show again. None: its components are not known here."""
    wanted = StateStart.parse(start)
    epoch = "the last epoch" if wanted.epoch is None else f"epoch {wanted.epoch}"
    again = "what came after it in the input is processed again"
    own_state = f"begins with {epoch} of {wanted.path}, as a state of its own from then on"
    if topology is None:
        if wanted.path:
            return f"{own_state}: {again}, and sinks that have shown later epochs of it show that again"
        return f"begins with {epoch}: {again}, and sinks that have shown later epochs show that again"
    sinks = [spec.id for spec in topology.bolts if isinstance(topology.load(spec.id), CommittingSink)]
    if not wanted.path:
        own = f", and {listed(sinks)} show again what they have shown of later epochs"
        return f"begins with {epoch}: {again}{own if sinks else ''}"
    if not sinks:
        return own_state
    if wanted.epoch is None:
        return (
            f"{own_state}: what was shown up to this epoch is not shown again; if that topology still runs, {listed(sinks)} "
            "show again what it shows after it"
        )
    return f"{own_state}: {again}, and {listed(sinks)} show again what was shown of later epochs"


@contextmanager
def kept_state(
    start: str, name: str, conf: Mapping[str, object], here: bool
) -> Iterator[CommittedState | None]:
    """Provide the state with which a topology is to begin; None if this host does not see it. `conf`: that of the topology,
    whose name it is; `here`: whether its workers run on this host, so that they have the same folders."""
    from squall.stores.opening import default_webhdfs, open_store
    from squall.stores.paths import check_path
    from worker.epochs.trimming import LOG
    from worker.loop.committed_state import CommittedState
    from worker.loop.epoch_store import EpochFiles

    wanted = StateStart.parse(start)
    path, webhdfs = state_path(conf), conf.get(STATE_WEBHDFS)
    place = wanted.path or (f"{path}/{name}" if path is not None else "")
    found = None
    if place and (here or place.startswith(HDFS)):
        with suppress(SquallError, OSError):  # such as a folder of another user
            place = check_path(place)
            if wanted.path or not isinstance(webhdfs, str):
                webhdfs = default_webhdfs(place)
            with open_store(place, webhdfs=webhdfs) as files:
                there = files.exists(LOG)
            above, _, last = place.rpartition("/")
            if there:
                found = CommittedState(EpochFiles(above, last, webhdfs))
    yield found


def epoch_problem(start: str, name: str, conf: Mapping[str, object], here: bool) -> str:
    """Return why a topology cannot begin with an epoch, if this host sees that it is not kept; "" otherwise. Arguments as those
    of `kept_state`."""
    wanted = StateStart.parse(start)
    if wanted.epoch is None:
        return ""
    with kept_state(start, name, conf, here) as state:
        if state is None:
            return ""  # the workers know better
        try:
            kept = [each.record.epoch for each in state.epochs()]
        except (SquallError, OSError):
            return ""
    if not kept or wanted.epoch in kept:
        return ""
    there = ", ".join(map(str, sorted(kept)))
    return (
        f"--state {start}: {state.store.folder} does not keep epoch {wanted.epoch}; these are kept: {there}"
    )
