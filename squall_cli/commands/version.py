"""`squall version`: the version of the command, the core that it runs, and the versions of a cluster's daemons."""

from __future__ import annotations

import os
import sys
from typing import Any, Final

import click

from squall import __version__
from squall.api.cluster_answers import NimbusEntry, SupervisorEntry
from squall_cli.cluster.cluster_client import VARIABLE, ClusterOptions, cluster_options, echo_json
from squall_cli.terminal.lines import echo
from topology_api.core_choice import CHOICE

#: The fields of a daemon that are shown. A supervisor lacks `url` and `leader`.
SHOWN: Final = ("host", "id", "url", "leader", "versions")


@click.command()
@cluster_options
def version(cluster: ClusterOptions) -> None:
    """Show the versions of Squall and Python on this machine, whether the core runs compiled or as plain Python, and, if you
    name a cluster, the versions of its daemons.

    \b
    Examples:
      squall version
      squall version --nimbus http://nimbus-1:6627
    """
    here: dict[str, Any] = {
        "squall": __version__,
        "python": sys.version.split()[0],
        "executable": sys.executable,
        "core": "compiled" if CHOICE.compiled else "plain",
        "core_why": CHOICE.why,
    }
    asked = bool(cluster.nimbus or os.environ.get(VARIABLE))
    if not cluster.as_json:  # these facts do not need an answer of the cluster
        echo(f"squall {__version__} (Python {here['python']}, {sys.executable})")
        echo(f"core: {CHOICE}")
    if asked:
        with cluster.asked() as client:
            daemons: list[NimbusEntry | SupervisorEntry] = [*client.cluster().nimbuses, *client.supervisors()]
        here["daemons"] = [_in_json(daemon) for daemon in daemons]
        if not cluster.as_json:
            for line in map(_line, daemons):
                echo(line)
    if cluster.as_json:
        echo_json(here)


def _in_json(daemon: NimbusEntry | SupervisorEntry) -> dict[str, object]:
    kind = "supervisor" if hasattr(daemon, "slots") else "nimbus"
    return {"daemon": kind} | {name: getattr(daemon, name) for name in SHOWN if hasattr(daemon, name)}


def _line(daemon: NimbusEntry | SupervisorEntry) -> str:
    """Return a line with a daemon and its versions. The URL distinguishes several Nimbuses on one host."""

    place = f"supervisor on {daemon.host}"
    if isinstance(daemon, NimbusEntry):
        place = f"nimbus on {daemon.host} at {daemon.url}" + (", leads" if daemon.leader else "")
    versions = ", ".join(f"{name} {number}" for name, number in daemon.versions.items())
    return f"{place}: {versions or 'unknown'}"
