"""`squall version`: the version of the command, which core runs, and the cluster's daemons where one is named."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import click

from squall import __version__
from squall_cli import cluster_client
from topology_api.core_choice import CHOICE

if TYPE_CHECKING:
    from squall.http_client import Client

HELP = """Show the version of Squall and of Python here, whether the core runs compiled or as plain Python, and the versions of
the daemons of a cluster when one is named.

\b
Examples:
  squall version
  squall version --nimbus http://nimbus-1:6627
"""

#: Of each daemon, what of it is known; a supervisor has no URL here, and does not lead.
TOLD: Final = ("host", "id", "url", "leader", "versions")


@click.command(help=HELP)
@cluster_client.options
def version(nimbus: str | None, config: str | None, as_json: bool) -> None:
    here: dict[str, Any] = {
        "squall": __version__,
        "python": sys.version.split()[0],
        "executable": sys.executable,
        "core": "compiled" if CHOICE.compiled else "plain",
        "core_why": CHOICE.why,
    }
    asked = bool(nimbus or os.environ.get(cluster_client.VARIABLE))
    if not as_json:  # this much is known whether or not a cluster answers
        click.echo(f"squall {__version__} (Python {here['python']}, {sys.executable})")
        click.echo(f"core: {CHOICE}")
    if asked:
        client = cluster_client.connect(nimbus, config)
        with cluster_client.about(client):
            daemons = daemons_of(client)
        here["daemons"] = daemons
        if not as_json:
            for each in daemons:
                click.echo(f"{each['daemon']} on {each['host']}{_which(each)}: {_told(each['versions'])}")
    if as_json:
        click.echo(json.dumps(here, indent=2))


def daemons_of(client: Client) -> list[dict[str, Any]]:
    """Every daemon of the cluster, with the versions that it gave."""
    found = [("nimbus", each) for each in client.get("cluster")["nimbuses"]]
    found += [("supervisor", each) for each in client.get("supervisors")["supervisors"]]
    return [{"daemon": kind} | {key: each[key] for key in TOLD if key in each} for kind, each in found]


def _which(daemon: Mapping[str, Any]) -> str:
    """What tells the Nimbuses of one host apart: ` at http://host:6627, leads`; "" of a supervisor."""
    return (f" at {daemon['url']}" if "url" in daemon else "") + (", leads" if daemon.get("leader") else "")


def _told(versions: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {number}" for name, number in versions.items()) or "unknown"
