"""Where a submission begins (`--state [PATH][@EPOCH]`): an epoch of its own state, or of another topology's.

Must not know: logs, what is at a path, how it is reached.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import msgspec

from squall.stores.paths import InvalidPath, check_path
from topology_api.errors import SquallError
from topology_api.wording import shown

_SCHEME: Final = "file://"
HDFS: Final = "hdfs://"
_FORM: Final = re.compile(r"(?P<path>.*?)(?:@(?P<epoch>[0-9]{1,18}))?", re.DOTALL)


class BadStart(SquallError):
    """A text that does not say where to begin."""


class StateStart(msgspec.Struct, frozen=True):
    """`path`: the absolute path of a folder with the state of a topology, or "" for the topology's own. `epoch`: its number;
    None: the newest one."""

    path: str
    epoch: int | None

    @classmethod
    def parse(cls, text: str, here: Path | None = None) -> StateStart:
        """Return what a text says. Raises BadStart. `here`: to which a relative path belongs; None: there must be none."""
        found = _FORM.fullmatch(text)
        assert found is not None
        path, number = found["path"].removeprefix(_SCHEME), found["epoch"]
        epoch = None if number is None else int(number)
        on_hdfs = path.startswith(HDFS)
        # file://host/folder would be a relative path without its scheme.
        if "://" in found["path"] and not (on_hdfs or found["path"].startswith(f"{_SCHEME}/")):
            raise BadStart(
                f"--state {shown(text)}: give a folder that all hosts see, as /folder or file:///folder, or "
                "hdfs://host:port/folder"
            )
        if path.startswith("@"):
            raise BadStart(f"--state {shown(text)}: an epoch is a number, such as @17")
        if path and here is not None and not on_hdfs:
            path = str(here / path)
        if path and not path.startswith("/") and not on_hdfs:
            raise BadStart(f"--state {shown(text)}: the path has to be absolute")
        if not path and not epoch:
            raise BadStart(f"--state {shown(text)}: give PATH, PATH@EPOCH or @EPOCH, such as @17")
        try:
            if path:
                check_path(path)
        except InvalidPath as error:
            raise BadStart(f"--state {shown(text)}: {error}") from None
        return cls(path, epoch)

    def __str__(self) -> str:
        return self.path + ("" if self.epoch is None else f"@{self.epoch}")
