"""Reads and changes the dead letters of a topology, which lie on the hosts whose spout tasks gave them up.

Each host is asked by itself, through Nimbus, a page at a time: so a host that does not answer is named, and the letters of a
topology are never in memory at once.
Must not know: the commands.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec
from msgspec import Struct, to_builtins

from squall.api.letters import MOST_IDS, LetterEntry, LetterHost, LetterHostsAnswer, LetterPage
from squall.http.client import Refused, Unreachable
from squall_cli.terminal.formats import plural
from squall_cli.terminal.lines import echo

if TYPE_CHECKING:
    from squall_cli.cluster.nimbus_client import NimbusClient

S = TypeVar("S", bound=Struct)

#: Seconds for a request that changes letters: each change is written to a disk.
CHANGE_SECS: Final = 60.0
#: The errors of one host. Any other error is about the cluster, and ends the command.
_OF_A_HOST: Final = ("SupervisorUnreachable", "NotFound", "LettersUnavailable")


class HeldLetter(msgspec.Struct, frozen=True):
    """A letter and the host that holds it."""

    host: LetterHost
    letter: LetterEntry

    @property
    def shown(self) -> dict[str, Any]:
        """The letter as JSON."""
        place = {"host": self.host.host, "supervisor": self.host.supervisor}
        return {**place, **to_builtins(self.letter)}


@dataclass
class LetterReader:
    """Reads and changes the letters of one topology, host by host. `silent`: the hosts that could not be asked, and why."""

    client: NimbusClient
    name: str
    silent: dict[str, str] = field(default_factory=dict)
    damaged: set[str] = field(default_factory=set)

    def hosts(self) -> list[LetterHost]:
        """Return the hosts that hold letters; name those that are away."""
        found = self.client.read(LetterHostsAnswer, *self._at()).hosts
        for each in found:
            if each.away:
                self._is_silent(each, f"its supervisor is away; it had {plural(each.letters, 'dead letter')}")
        return [each for each in found if not each.away]

    def letters(self, values: bool, id: str = "") -> Iterator[HeldLetter]:
        """Yield the letters of all hosts that answer, each once. `id`: only this one."""
        for host in self.hosts():
            seen: set[str] = set()
            after: str | None = ""
            while after is not None:
                try:
                    query = {"after": after, "values": "yes" if values else "no", "id": id}
                    page = self.client.read(LetterPage, *self._at(host), **query)
                except (Unreachable, Refused) as error:
                    self._failed(host, error)
                    break
                for text in page.damaged:
                    self._is_damaged(host, text)
                for letter in page.letters:
                    if letter.id not in seen:  # one that is sent again meanwhile is on two pages
                        seen.add(letter.id)
                        yield HeldLetter(host, letter)
                after = page.next

    def change(self, kind: type[S], action: str, chosen: Collection[HeldLetter]) -> Iterator[S]:
        """Drop letters, or send them again; yield the answers."""
        by_host: dict[str, list[HeldLetter]] = {}
        for each in chosen:
            by_host.setdefault(each.host.supervisor, []).append(each)
        for held in by_host.values():
            ids = [each.letter.id for each in held]
            place = *self._at(held[0].host), action
            try:
                for start in range(0, len(ids), MOST_IDS):
                    body = {"ids": ids[start : start + MOST_IDS]}
                    yield self.client.post_json(
                        kind, *place, body=body, repeatable=True, timeout=CHANGE_SECS
                    )[0]
            except (Unreachable, Refused) as error:
                self._failed(held[0].host, error)

    def _at(self, host: LetterHost | None = None) -> tuple[str, ...]:
        place = "topologies", self.name, "dead-letters"
        return place if host is None else (*place, host.supervisor)

    def _failed(self, host: LetterHost, error: Exception) -> None:
        """Name a host that does not answer. Raises the error again if Nimbus itself does not."""
        if getattr(error, "kind", "") not in _OF_A_HOST:
            raise error
        self._is_silent(host, str(error))

    def _is_silent(self, host: LetterHost, why: str) -> None:
        text = f"host {host.host} (supervisor {host.supervisor}) could not be asked: {why}"
        if self.silent.get(host.supervisor) != why:
            echo(text, err=True)
        self.silent[host.supervisor] = why

    def _is_damaged(self, host: LetterHost, text: str) -> None:
        if text not in self.damaged:
            self.damaged.add(text)
            echo(f"host {host.host}: {text}", err=True)
