"""`squall backup` and `squall restore`: all topologies of a cluster into a file, and from a file into a cluster.

Must not know: the form of the file, what a topology consists of (see the imported modules).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from squall_cli.cluster.cluster_client import ClusterOptions, cluster_options
from squall_cli.options.kinds import files
from squall_cli.terminal.formats import in_bytes, known_moment, plural, to_type
from squall_cli.terminal.interrupts import all_as_ctrl_c
from squall_cli.terminal.lines import echo
from topology_api.errors import SquallError
from topology_api.wording import nearest

if TYPE_CHECKING:
    from squall_cli.backups.gathering import GatheredTopologies
    from squall_cli.backups.layout import BackedUp
    from squall_cli.backups.reading import Backup
    from squall_cli.backups.restoring import RestoreRequests
    from squall_cli.packing.watching import Steps


@click.command()
@click.argument("path", metavar="FILE", type=click.Path(dir_okay=False, path_type=Path), shell_complete=files)
@cluster_options
def backup(cluster: ClusterOptions, path: Path) -> None:
    """Write all topologies of a cluster into a new file, for `squall restore`.

    The file has the records, code and files of every topology and of its earlier versions, with the secrets in their settings.
    Only its owner can read it. Tuples, positions of sources, tables, dead letters and counters are not in it: they are not in
    ZooKeeper either.

    Exit status: 1 if there is no file, or if a topology is not in it because the cluster has it in part only; 2 wrong usage.

    \b
    Examples:
      squall backup /var/backups/squall/monday.tar
      squall backup "squall-$(date +%F).tar" --json | jq -r '.topologies[].name'
    """
    from squall_cli.backups.gathering import Gatherer, head_of
    from squall_cli.backups.writing import BackupWriter, new_file
    from squall_cli.packing.watching import Steps

    with all_as_ctrl_c(), cluster.asked() as client, Steps() as steps, new_file(path) as file:
        writer = BackupWriter(file, head_of(client, time.time()))
        gathered = Gatherer(client, writer, steps.now, steps.done).gather()
        size = writer.finish()
    said = f"{counted(len(gathered.topologies))} ({in_bytes(size)}) written to {path}."
    cluster.answer(backup_as_json(path, size, gathered), said)
    for what, why in gathered.left_out.items():
        echo(f"not in the backup: {what}: {why}", err=True)
    if gathered.left_out:
        raise SquallError(f"{path} lacks {', '.join(gathered.left_out)}; the rest of the cluster is in it")


@click.command()
@click.argument(
    "path", metavar="FILE", type=click.Path(exists=True, dir_okay=False, path_type=Path), shell_complete=files
)
@click.option("--name", "names", metavar="NAME", multiple=True, help="Only this topology; may be repeated.")
@click.option("--inactive", is_flag=True, help="Do not start the spouts; `squall activate` starts them.")
@cluster_options
def restore(cluster: ClusterOptions, path: Path, names: tuple[str, ...], inactive: bool) -> None:
    """Bring back the topologies of a backup, each in the state that it had, with its history and its options.

    The whole file is checked first. If the cluster has a topology with one of the names, or refuses one for another reason,
    nothing is restored, and every reason is printed.

    The topologies keep their ids, so that Spark sinks and readers continue where they were. Stop the other cluster before: if
    it still runs, each of its sources is read twice, and its sinks are shut out by those of this cluster.

    \b
    Examples:
      squall restore /var/backups/squall/monday.tar
      squall restore monday.tar --inactive --name word-count --name clicks
    """
    from squall_cli.backups.reading import read_backup
    from squall_cli.backups.restoring import RestoreRequests
    from squall_cli.packing.watching import Steps

    with all_as_ctrl_c(), Steps() as steps:
        size = path.stat().st_size
        content = read_backup(path, lambda done: steps.now(f"checking {path}: {done * 100 // size}%"))
        chosen = chosen_of(content, names)
        with cluster.asked() as client:
            restorer = RestoreRequests(client, content, chosen, inactive, steps.now, steps.done)
            restorer.check_all()
            if uploaded := restorer.upload():
                steps.done(f"uploaded: {in_bytes(uploaded)}")
            restorer.check_all()
            restored = restore_all(restorer, chosen, steps)
    result = {"cluster": content.head.cluster, "time": content.head.time, "topologies": restored}
    of = f"as of {known_moment(content.head.time)}"
    cluster.answer({**result, "drained": content.head.drained}, f"{counted(len(restored))} restored, {of}.")
    for supervisor in content.head.drained:
        echo(f"{supervisor} was drained: {to_type('drain', supervisor)} drains it again", err=True)


def restore_all(restorer: RestoreRequests, chosen: Sequence[BackedUp], steps: Steps) -> list[dict[str, Any]]:
    """Restore the topologies one after the other, and show each. If one fails, the error says how to go on."""
    from squall_cli.backups.restoring import cut_short

    restored: list[dict[str, Any]] = []
    for number, topology in enumerate(chosen):
        try:
            answer = restorer.restore(topology)
        except (SquallError, KeyboardInterrupt) as error:
            why = error if isinstance(error, SquallError) else SquallError("interrupted")
            left = [each.backup.name for each in chosen[number:]]
            raise cut_short([each["name"] for each in restored], left, why) from error
        steps.done(f"restored: {answer.name} as {answer.id}, {answer.state}")
        restored.append({"name": answer.name, "id": answer.id, "state": answer.state})
    return restored


def chosen_of(content: Backup, names: Sequence[str]) -> list[BackedUp]:
    """Return the topologies to restore: those with these names, or all. Raises SquallError for a name that is not there, and
    for a topology whose files are not there."""
    found = {each.backup.name: each for each in content.topologies}
    for name in names:
        if name not in found:
            advice = nearest(name, list(found)) or f"; it has: {', '.join(found) or 'no topology'}"
            raise SquallError(f"{content.path} has no topology {name!r}{advice}")
    chosen = [each for name, each in found.items() if not names or name in names]
    for each in chosen:
        content.files_of(each)
    return chosen


def backup_as_json(path: Path, size: int, gathered: GatheredTopologies) -> dict[str, Any]:
    """Return the outcome of a backup."""
    topologies = [
        {
            "name": each.name,
            "id": each.topology.get("id"),
            "state": each.topology.get("state"),
            "versions": list(each.files_by_version()),
        }
        for each in gathered.topologies
    ]
    return {"file": str(path), "bytes": size, "topologies": topologies, "left_out": gathered.left_out}


def counted(number: int) -> str:
    """Return a number of topologies."""
    return plural(number, "topology", "topologies")
