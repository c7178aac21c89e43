"""The argument PATH of `squall state`: the folder in which a topology keeps its state, and how it is reached.

Must not know: what is in the folder.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click
import msgspec

from squall.packages.state_paths import HDFS
from squall.stores.paths import InvalidPath, check_path
from topology_api.errors import SquallError
from topology_api.wording import listed

_SCHEME: Final = "file://"
#: The folder that the state of every topology has.
_LOG: Final = "log"

webhdfs_option = click.option(
    "--webhdfs", metavar="HOST:PORT",
    help="Where the NameNode of an hdfs:// path serves WebHDFS.  [default: HDFS is reached by Java]",
)  # fmt: skip


class StateFolder(msgspec.Struct, frozen=True):
    """The folder of one topology: `name` below `above`."""

    above: str
    name: str
    webhdfs: str | None = None

    def __str__(self) -> str:
        return f"{self.above}/{self.name}"


def state_place(given: str) -> str:
    """Return the path of a folder, absolute. Raises `click.BadParameter`."""
    if given.startswith(HDFS):
        try:
            return check_path(given)
        except InvalidPath as error:
            raise click.BadParameter(str(error)) from None
    if "://" in given and not given.startswith(f"{_SCHEME}/"):
        raise click.BadParameter(
            f"{given!r}: give a folder of this host, as /folder or file:///folder, or hdfs://host:port/folder"
        )
    return str(Path(given.removeprefix(_SCHEME)).absolute())


def topology_folder(path: str, webhdfs: str | None = None) -> StateFolder:
    """Return the folder of the topology at a path: this folder, or the only one below it. Raises `SquallError`."""
    from squall.stores.opening import open_state

    if not path.startswith(HDFS) and not Path(path).is_dir():  # also named so if `check_path` refuses it
        raise SquallError(f"there is no folder {path}: give the topology's folder below topology.state.path")
    with open_state(path, webhdfs) as files:
        entries = [each.name for each in files.list("") if each.is_folder]
        below = [] if _LOG in entries else [name for name in entries if files.exists(f"{name}/{_LOG}")]
        if not entries and not files.exists(""):
            raise SquallError(
                f"there is no folder {path}: give the topology's folder below topology.state.path"
            )
    if _LOG in entries:
        above, _, name = path.rpartition("/")
        return StateFolder(above, name, webhdfs)
    if not below:
        raise SquallError(
            f"{path} has no state of a topology: there is no folder {_LOG!r} in it, or in a folder below it"
        )
    if len(below) > 1:
        raise SquallError(
            f"{path} has the state of several topologies ({listed(below)}): give the folder of one"
        )
    return StateFolder(path, below[0], webhdfs)
