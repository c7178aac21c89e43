"""Restores topologies of a backup: all are checked, then all files are sent, then all are checked with them, then they begin.

If the cluster refuses one in a check, nothing was changed (files without a topology are removed after hours). Each topology is
restored by one request, with a key, so that a lost answer does no harm.
Must not know: the form of a backup, how progress is shown.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from shlex import quote
from typing import Final, TypeVar

from msgspec import to_builtins

from squall.api.backups import RestoredAnswer
from squall.http.client import Refused, at
from squall_cli.backups.layout import BackedUp, BackupMember
from squall_cli.backups.reading import Backup
from squall_cli.cluster.nimbus_client import NimbusClient
from squall_cli.cluster.waiting import patiently
from squall_cli.terminal.formats import in_bytes
from topology_api.errors import SquallError

#: Seconds for each answer: Nimbus checks whole archives before it answers.
ANSWER_SECS: Final = 60.0
#: How many times files are sent at most: a new leader may lack files that were sent before.
ATTEMPTS: Final = 3
_FILE_MISSING: Final = "FileMissing"

Say = Callable[[str], object]
T = TypeVar("T")


class CannotRestore(SquallError):
    """The cluster refuses topologies of a backup."""


@dataclass(eq=False, repr=False)
class RestoreRequests:
    """Restores topologies. `now` shows the current step, `say` a line that stays."""

    client: NimbusClient
    backup: Backup
    chosen: Sequence[BackedUp]
    inactive: bool
    now: Say
    say: Say

    def __post_init__(self) -> None:
        key = uuid.uuid4().hex
        self._bodies = {
            each.backup.name: {
                "submission": f"{key}-{number}",
                "backup": to_builtins(each.backup),
                "bundles": each.bundles,
                "inactive": self.inactive,
            }
            for number, each in enumerate(self.chosen)
        }

    def check_all(self) -> None:
        """Let Nimbus check all topologies, as far as their files are there. Raises `CannotRestore` with all problems."""
        problems = []
        for name, body in self._bodies.items():
            self.now(f"checking {name}")
            try:
                self._post("restore-checks", body)
            except Refused as refused:
                if not 400 <= refused.status < 500 or refused.status == 401:
                    raise
                problems.append(f"{name}: {refused}")
        if problems:
            raise CannotRestore(f"nothing was restored: {'; '.join(problems)}")

    def upload(self) -> int:
        """Send the files that Nimbus lacks; return the number of bytes sent."""
        needed = {member.sha256: member for each in self.chosen for member in self.backup.files_of(each)}
        return sum(self._ask(partial(self._send, member)) for member in needed.values())

    def restore(self, topology: BackedUp) -> RestoredAnswer:
        """Restore one topology."""
        name = topology.backup.name
        self.now(f"restoring {name}")
        for attempt in range(ATTEMPTS):
            try:
                return self._post("restores", self._bodies[name])
            except Refused as refused:
                if refused.kind != _FILE_MISSING or attempt == ATTEMPTS - 1:
                    raise
                self.upload()
        raise AssertionError("the last attempt returns or raises")

    def _post(self, place: str, body: object) -> RestoredAnswer:
        return self._ask(
            lambda: self.client.post_json(
                RestoredAnswer, place, body=body, repeatable=True, timeout=ANSWER_SECS
            )[0]
        )

    def _send(self, member: BackupMember) -> int:
        """Send a file unless Nimbus has it; return the number of bytes sent."""
        place = at("files", member.sha256)
        if self.client.exists(place):
            return 0

        def progress(done: int) -> None:
            if done < member.size:
                self.now(f"uploading: {done * 100 // member.size}% of {in_bytes(member.size)}")

        part = member.start, member.size
        self.client.put_file(place, self.backup.path, progress, ANSWER_SECS, part)
        return member.size

    def _ask(self, ask: Callable[[], T]) -> T:
        return patiently(ask, self.say)


def cut_short(restored: Sequence[str], left: Sequence[str], error: SquallError) -> CannotRestore:
    """Return the error if it came when some topologies may have been restored: which ones are, and how to go on."""
    there = f"restored before that: {', '.join(restored)}" if restored else "nothing was restored before that"
    rest = " ".join(f"--name {quote(name)}" for name in left)
    return CannotRestore(f"{error}; {there}; when the cluster answers again, restore the others with {rest}")
