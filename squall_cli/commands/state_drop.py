"""`squall state drop`: deletes what a topology has kept, if nothing that runs needs it.

Must not know: the format of logs and snapshots.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import click
import msgspec

from squall_cli.cluster.cluster_client import ClusterOptions, cluster_options, site_settings
from squall_cli.options.state_path import StateFolder, state_place, topology_folder, webhdfs_option
from squall_cli.terminal.formats import in_bytes, plural
from squall_cli.terminal.lines import echo, harmless
from topology_api.epoch_rules import STATE_PATH, STATE_WEBHDFS, state_path
from topology_api.errors import SquallError
from topology_api.wording import listed

if TYPE_CHECKING:
    from worker.loop.state_drop import Dropped

#: The states in which a topology has no workers.
AT_REST: Final = ("COMPLETED", "FAILED")


class Target(msgspec.Struct, frozen=True):
    """Where the state of a topology is. `running`: the components of the version that runs; None: none runs. `standby`: the
    version that runs again if that one fails its trial; "": none may. `of_standby`: its components; None: they are not known.
    `unknown`: why it is not known what runs."""

    folder: StateFolder
    running: frozenset[str] | None = None
    standby: str = ""
    of_standby: frozenset[str] | None = None
    unknown: str = ""


@click.command("drop")
@click.argument("topology", metavar="TOPOLOGY")
@click.argument("what", metavar="[COMPONENT[.STATE]]", required=False)
@webhdfs_option
@click.option("--yes", is_flag=True, help="Do not ask.")
@cluster_options
def drop(cluster: ClusterOptions, topology: str, what: str | None, webhdfs: str | None, yes: bool) -> None:
    """Delete the state that a topology has kept: all of it, that of a component, or one state of a component.

    TOPOLOGY is a name, or the folder of its state: one that this host sees, or an hdfs:// path. The topology must not run; only
    components that the running version does not have may be dropped meanwhile. What is deleted is gone from all epochs that are
    kept. Without COMPONENT the topology begins with nothing when it is submitted again.

    \b
    Examples:
      squall state drop word-count
      squall state drop word-count count.times --yes
      squall state drop /var/lib/squall-state/word-count count
    """
    from worker.loop.epoch_store import EpochFiles
    from worker.loop.state_drop import StateDrop

    component, _, state = (what or "").partition(".")
    target = find(cluster, topology, webhdfs)
    check_at_rest(target, component or None)
    folder = target.folder
    files = EpochFiles(folder.above, folder.name, folder.webhdfs)
    job = StateDrop(files)
    found = job.find(component or None, state or None)
    if not yes:
        if target.unknown:
            echo(f"{target.unknown}: if {folder.name} runs, it ends with an error.", err=True)
        click.confirm(f"Delete {text_of(found, folder)} for good?", abort=True, err=True)
    if target.running is None:
        job.fence()
    size = found.bytes
    if not component:
        files.delete_all()
    elif state:
        size = job.drop_state(component, state)
    else:
        job.drop_component(component)
    done = {**msgspec.structs.asdict(found), "bytes": size, "folder": str(folder)}
    said = f"deleted: {found.what} of {folder.name}: {plural(found.keys, 'key')}, {in_bytes(size)}"
    cluster.answer(done, f"{said} in {plural(found.files, 'snapshot')}")


def text_of(found: Dropped, folder: StateFolder) -> str:
    """Return what is about to be deleted."""
    name = harmless(folder.name)
    what = (
        f"all state of {name}"
        if found.what == "everything"
        else f"the state of {harmless(found.what)} of {name}"
    )
    size = in_bytes(found.bytes)
    return f"{what} ({plural(found.keys, 'key')}, {plural(found.files, 'snapshot')} of {size}, in {folder})"


def find(cluster: ClusterOptions, topology: str, webhdfs: str | None) -> Target:
    """Return where the state of a topology is, and what runs of it. Raises `SquallError`."""
    from squall.http.client import Unreachable

    if "/" not in topology:
        return named(cluster, topology, webhdfs)
    folder = topology_folder(state_place(topology), webhdfs)
    try:
        found = known(cluster, folder.name)
    except Unreachable as error:
        return Target(folder, unknown=f"no cluster answers ({error})")
    if found is None or not may_be_same(str(found.folder), str(folder)):
        return Target(folder)
    return msgspec.structs.replace(found, folder=folder)


def may_be_same(one: str, other: str) -> bool:
    """Return whether two paths can name one folder: links, and the names of one HDFS, are looked through."""
    from squall.stores.paths import LOCAL, check_path, folder_of, scheme_of

    one, other = check_path(one), check_path(other)
    if scheme_of(one) != scheme_of(other):
        return False
    if scheme_of(one) == LOCAL:
        return os.path.realpath(folder_of(one)) == os.path.realpath(folder_of(other))
    return folder_of(one) == folder_of(other)


def named(cluster: ClusterOptions, name: str, webhdfs: str | None) -> Target:
    """Return where the state of the topology with a name is. `webhdfs`: what was typed, instead of what the settings say."""
    found = known(cluster, name)
    if found is None:
        settings = site_settings(cluster.config)
        if state_path(settings) is not None:
            found = Target(folder_in(settings, name))
    if found is None:
        found = Target(kept_here(cluster, name))
    return msgspec.structs.replace(
        found, folder=topology_folder(str(found.folder), webhdfs or found.folder.webhdfs)
    )


def kept_here(cluster: ClusterOptions, name: str) -> StateFolder:
    """Return the folder of a topology that is on the cluster no more, where a supervisor of this host keeps state. Raises
    `SquallError`."""
    with cluster.asked(name) as client:
        places = {each.state_folder: each.host for each in client.supervisors() if each.state_folder}
    here = [place for place in places if os.path.isdir(f"{place}/{name}")]
    if len(here) == 1:
        return StateFolder(here[0], name)
    what = f"no topology {name!r} is on the cluster, so it is not known where its state is"
    if here:
        raise SquallError(f"{what}: give one of {listed(f'{place}/{name}' for place in here)}")
    looked = ", ".join(f"{place} of host {host}" for place, host in places.items())
    where = (
        f"; supervisors keep state in {looked}, which is looked at if it is on this host" if looked else ""
    )
    raise SquallError(f"{what}: give its folder, as in /folder/{name}{where}")


def folder_in(settings: Mapping[str, object], name: str) -> StateFolder:
    """Return the folder of a topology, from its settings."""
    webhdfs = settings.get(STATE_WEBHDFS)
    return StateFolder(
        state_place(str(settings[STATE_PATH])), name, webhdfs if isinstance(webhdfs, str) else None
    )


def known(cluster: ClusterOptions, name: str) -> Target | None:
    """Return what the cluster knows of a topology; None: it has none of this name."""
    from squall.api.answers import ConfigurationsAnswer

    with cluster.asked(name) as client:
        answer = client.topology_or_none(name)
        if answer is None:
            return None
        conf = client.read(ConfigurationsAnswer, "topologies", name, "configuration").conf
    if state_path(conf) is None:
        raise SquallError(f"topology {name!r} keeps no state: {STATE_PATH} is null")
    if answer.state == "REPLACING":  # of the version that waits, nothing is known here
        raise SquallError(f"topology {name!r} is being replaced: try again when the new version runs")
    running = None if answer.state in AT_REST else frozenset(answer.components)
    back = answer.stands_by
    if back is None:
        return Target(folder_in(conf, name), running)
    components = None if back.components is None else frozenset(back.components)
    return Target(folder_in(conf, name), running, back.id, components)


def check_at_rest(target: Target, component: str | None) -> None:
    """Raise `SquallError` if the running version needs what is to be deleted."""
    name = target.folder.name
    if target.running is None:
        return
    if component is None:
        raise SquallError(f"topology {name!r} runs: `squall kill {name}` first")
    if component in target.running:
        raise SquallError(
            f"component {component!r} is part of the running version of {name!r}: `squall kill {name}` first, and submit it "
            "again afterwards"
        )
    if target.standby and (target.of_standby is None or component in target.of_standby):
        known = "may be" if target.of_standby is None else "is"
        raise SquallError(
            f"component {component!r} {known} part of version {target.standby} of {name!r}, which runs again if the present "
            "one fails its trial: try again when the trial has ended"
        )
