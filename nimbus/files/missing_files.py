"""Decides from the answers of the other Nimbuses whether a Nimbus may lead although it lacks files; if not, gives a reason.

| the other Nimbuses | decision |
|---|---|
| one has the file, and all files of this Nimbus | that Nimbus should lead: this Nimbus does not lead, or steps aside |
| all have answered that they lack the file | after `patience` seconds the file is lost, and this Nimbus may lead without it |
| one does not answer, or has the file but lacks other files | after `longer` seconds this Nimbus may lead without the file |

A silent Nimbus may have the file. The wait restarts when the set of Nimbuses that have the file changes, but only a limited
number of times. So the cluster always gets a leader, and running topologies continue without the file.
Must not know: how the other Nimbuses are asked, elections.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

_log = logging.getLogger(__name__)

#: The limit on the whole wait, as a multiple of `longer`: other Nimbuses may have the file now and then, yet be unable to lead.
_AT_MOST: Final = 5


class Inventory(msgspec.Struct, frozen=True):
    """The answer of another Nimbus: which of the missing files it has."""

    nimbus: str
    #: The missing files that the other Nimbus has.
    has: frozenset[str] = frozenset()
    #: Whether the other Nimbus also has all files of this Nimbus.
    whole: bool = False
    #: Why the other Nimbus did not answer; "" if it answered.
    silent: str = ""


class _Lack(msgspec.Struct, frozen=True):
    """The state of one missing file."""

    topology: str
    #: The start of the whole wait, which `_AT_MOST` limits.
    first: float
    #: The start of the present wait: the Nimbuses that have the file have not changed since.
    since: float
    holders: frozenset[str] = frozenset()
    #: A Nimbus that has the file and should lead instead of this Nimbus.
    better: str | None = None
    silent: Mapping[str, str] = msgspec.field(default_factory=dict)
    #: Whether this Nimbus has waited for the file long enough.
    given_up: bool = False


class MissingFiles:
    """One thread calls `update`; any thread may call the other methods."""

    def __init__(self, patience: float, longer: float) -> None:
        self._patience = patience
        self._longer = longer
        self._lacks: Mapping[str, _Lack] = {}

    def update(self, missing: Mapping[str, str], answers: Sequence[Inventory], now: float) -> None:
        """Record the missing files (SHA-256 -> a topology that needs it) and the answers of the other Nimbuses."""
        silent = {each.nimbus: each.silent for each in answers if each.silent}
        lacks = {}
        for sha256, topology in missing.items():
            holders = frozenset(each.nimbus for each in answers if sha256 in each.has)
            better = min((each.nimbus for each in answers if sha256 in each.has and each.whole), default=None)
            before = self._lacks.get(sha256)
            if before is None:
                before = _Lack(topology, now, now)
            elif not holders <= before.holders:  # a Nimbus has got the file since then
                before = _Lack(topology, before.first if better is None else now, now)
            elif holders != before.holders and not before.given_up:
                before = msgspec.structs.replace(before, since=now)
            lack = msgspec.structs.replace(before, holders=holders, better=better, silent=silent)
            patience = self._longer if silent or holders else self._patience
            late = now >= min(lack.since + patience, lack.first + _AT_MOST * self._longer)
            if not lack.given_up and late:
                lack = msgspec.structs.replace(lack, given_up=True)
                _tell(sha256, lack)
            lacks[sha256] = lack
        self._lacks = lacks

    def why_not(self, missing: Mapping[str, str]) -> str | None:
        """Return why this Nimbus should not begin to lead, given the files that it lacks now."""
        for sha256, topology in missing.items():
            lack = self._lacks.get(sha256)
            if lack is None:
                return f"lacks the file {sha256} of topology {topology!r}"
            if not lack.given_up:
                return _reason(sha256, lack)
        return None

    def steps_aside(self) -> str | None:
        """Return why this Nimbus should let another Nimbus lead, or None."""
        for sha256, lack in self._lacks.items():
            if lack.better is not None and not lack.given_up:
                return _reason(sha256, lack)
        return None

    def lost(self) -> frozenset[str]:
        """Return the files that no reachable Nimbus has."""
        return frozenset(sha256 for sha256, lack in self._lacks.items() if lack.given_up and not lack.holders)


def _reason(sha256: str, lack: _Lack) -> str:
    who = f", which {_named(lack.holders)} has" if lack.holders else ""
    silent = f"; no answer yet from {_named(lack.silent)}" if lack.silent else ""
    return f"lacks the file {sha256} of topology {lack.topology!r}{who}{silent}"


def _tell(sha256: str, lack: _Lack) -> None:
    file = f"the file {sha256} of topology {lack.topology!r}"
    unheard = "".join(f"; {nimbus} did not answer ({why})" for nimbus, why in sorted(lack.silent.items()))
    if lack.holders:
        holders = _named(lack.holders)
        _log.error("%s cannot be fetched from %s: this Nimbus may lead without it%s", file, holders, unheard)
        return
    _log.error(
        "%s is lost: %s has it%s. The topology's running workers continue, but none can be started on a host that lacks"
        " the file. Submit the topology again",
        file,
        "no Nimbus that answers" if unheard else "none of the present Nimbuses",
        unheard,
    )


def _named(ids: Mapping[str, str] | frozenset[str]) -> str:
    return ", ".join(sorted(ids))
