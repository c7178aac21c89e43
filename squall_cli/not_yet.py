"""The commands that need a cluster, which this release lacks: what each takes, and what to do instead.

Their options are the real ones, so that wrong usage is told apart (exit status 2) from "not yet" (1). When a
command comes to life it leaves this table for a module of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

import click
from click import IntRange, Option

from topology_api.errors import NotYet


@dataclass(frozen=True)
class Later:
    """What a command takes, what it cannot do yet, and what a user can do today."""

    parameters: tuple[click.Parameter, ...]
    what: str
    instead: str


CONFIG = Option(["--config"], metavar="FILE", type=click.Path(), help="The site's file.")
STATE = Option(["--state"], metavar="DIR", type=click.Path(), help="Where it keeps its files.")
SLOTS = Option(
    ["--slots"], type=IntRange(min=1), default=4, show_default=True, help="How many workers it may run."
)
ZOOKEEPER = Option(["--zookeeper"], metavar="HOST:PORT,...", required=True, help="The ZooKeeper servers.")
HOST = Option(["--host"], metavar="NAME", help="The name that others reach this host by.")


def listen(default: str) -> Option:
    return Option(
        ["--listen"], metavar="HOST:PORT", default=default, show_default=True, help="Where it listens."
    )


NO_DAEMON = "this release has no daemons"
RUN = "`squall run FILE` runs a topology on this machine"

LATER: dict[str, Later] = {
    "nimbus": Later((ZOOKEEPER, listen("127.0.0.1:6627"), STATE, CONFIG), NO_DAEMON, RUN),
}


def command(name: str, text: str) -> click.Command:
    """The command of that name: takes what it will take, and says that it does nothing yet."""
    later = LATER[name]

    def callback(**_: object) -> None:
        raise NotYet(later.what, later.instead)

    return click.Command(
        name,
        help=f"{text}\n\nNot yet: {later.what}; {later.instead}.",
        params=list(later.parameters),
        callback=callback,
    )
