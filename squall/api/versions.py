"""The answers of the HTTP API about the versions of a topology, in the form that `squall.api.answers` describes.

Must not know: paths, handlers, who reads an answer.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

Option = Annotated[str, Meta(title="option")]
Settings = dict[Option, Any]
HowVersion = Literal["waiting", "on trial", "running", "on standby", "replaced", "rolled back"]


class VersionEntry(Struct, frozen=True):
    """A version of a topology. `how`: `waiting` to replace the present one; `on trial`, or `running`, whatever its state; `on
    standby` while the next one is on trial; `replaced`, or `rolled back` because of `error`. `state`: the state of the present
    version. `by`: the submitter's credentials and address; "" if unknown. `options`: what operators set. `code`: the SHA-256 of
    its modules and data. `repeats`: for a rollback, the version (an id) that it repeats."""

    id: str
    how: HowVersion
    state: str | None
    error: str | None
    submitted: float
    ended: float | None
    by: str
    options: Settings
    code: str | None
    repeats: str | None = None


class StandbyVersion(Struct, frozen=True):
    """The previous version of a topology, while a rollback to it is possible. `components`: their names, in the answer about
    one topology; null if they are not known."""

    id: str
    secs: float
    suspended: bool = False
    components: tuple[str, ...] | None = None


class HistoryAnswer(Struct, frozen=True):
    """The versions of a topology: the one that waits, the present one, and those that ended, the newest first."""

    name: str
    versions: list[VersionEntry]
