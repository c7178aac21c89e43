"""What `topology.state.path` and `topology.state.webhdfs` may be, by their texts alone. Must not know: what is there."""

from __future__ import annotations

import re
from typing import Final

from topology_api.wording import shown

#: Nimbus chooses the place, for a topology that keeps something.
AUTO: Final = "auto"
_FOLDER: Final = re.compile(r"(file:///|hdfs://[^/]*/)[^/].*", re.DOTALL)
_ADDRESS: Final = re.compile(r"(https?://)?([^\s/:@?#,]+|\[[0-9A-Fa-f:.]+\]):[0-9]{1,5}/?")


def path_problem(value: object) -> str | None:
    """Return why a value is neither `auto` nor the URL of a folder; None if it is one of them."""
    if value == AUTO or (isinstance(value, str) and _FOLDER.fullmatch(value)):
        return None
    return f"is {shown(value)}: give a folder as file:///path or hdfs://host:port/path, or auto for a folder of the cluster"


def webhdfs_problem(value: object) -> str | None:
    """Return why a value is no list of web addresses; None if it is one."""
    if isinstance(value, str) and all(_ADDRESS.fullmatch(each.strip()) for each in value.split(",")):
        return None
    return f"is {shown(value)}: give HOST:PORT, http://HOST:PORT or https://HOST:PORT"
