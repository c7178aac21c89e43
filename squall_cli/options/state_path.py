"""The argument PATH of `squall state`: the folder in which a topology keeps its state.

Must not know: what is in the folder.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

from topology_api.errors import SquallError
from topology_api.wording import listed

_SCHEME: Final = "file://"
#: The folder that the state of every topology has.
_LOG: Final = "log"


def state_path(ctx: click.Context, parameter: click.Parameter, given: str) -> Path:
    """Return the path of a folder. A callback of click."""
    if "://" in given and not given.startswith(f"{_SCHEME}/"):
        raise click.BadParameter(f"{given!r}: give a folder of this host, as /folder or file:///folder")
    return Path(given.removeprefix(_SCHEME)).absolute()


def topology_folder(path: Path) -> Path:
    """Return the folder of the topology at a path: this folder, or the only one below it. Raises `SquallError`."""
    if not path.is_dir():
        raise SquallError(f"there is no folder {path}: give the topology's folder below topology.state.path")
    if (path / _LOG).is_dir():
        return path
    below = sorted(each.name for each in path.iterdir() if (each / _LOG).is_dir())
    if not below:
        raise SquallError(
            f"{path} has no state of a topology: there is no folder {_LOG!r} in it, or in a folder below it"
        )
    if len(below) > 1:
        raise SquallError(
            f"{path} has the state of several topologies ({listed(below)}): give the folder of one"
        )
    return path / below[0]
