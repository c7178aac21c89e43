"""The dead letters on a supervisor's host: pages of them, their removal, and their way back to a task of this host.

Spout tasks write letters into `<state>/letters/` (see `squall.dead_letters.folder`), where they outlive the topology. A letter
is sent again by being moved to where its task looks. Pages are limited by their size, and one file is read at a time, so the
letters of a topology are never in memory at once. Values are never decoded.
Must not know: HTTP, which tasks run.
"""

from __future__ import annotations

import logging
import os
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

import msgspec
from msgspec import MsgspecError, convert, json, to_builtins

from squall.api.letters import LetterEntry, LetterPage
from squall.cluster.paths import unquoted
from squall.cluster.records import HeldLetters
from squall.dead_letters.contents import BadLetters, KeptLetter, decode, encode
from squall.dead_letters.folder import DAMAGED_SECS, RESEND, LetterFolder, folder_name
from supervisor.rare_warnings import RareWarnings
from topology_api.errors import SquallError

_log = logging.getLogger(__name__)

#: A page ends after this many bytes of letters, or this many letters.
PAGE_BYTES: Final = 1024 * 1024
PAGE_LETTERS: Final = 1000
#: The last moment that is shown, in seconds since 1970: the year 5138.
_LATEST: Final = 1e11
#: The most bytes of a letter that is shown.
_MOST_SHOWN: Final = 16 * 1024 * 1024
#: The codec whose values may move to another host: decoding them runs no code.
MOVABLE: Final = "msgpack"
#: The most topologies that are counted.
_MOST_TOPOLOGIES: Final = 1000
#: Where the letters begin that tasks are sending again; they follow all others.
_SENT: Final = "sent"


class HostLetters:
    """The letters below one state directory. Several threads may use it."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def folder(self, topology: str) -> LetterFolder:
        """Return the letters of a topology; there may be none."""
        return LetterFolder(self.root / folder_name(topology))

    def page(
        self, topology: str, after: str = "", ids: Collection[str] | None = None, values: bool = True
    ) -> LetterPage:
        """Return the letters after a place, or those with these ids, up to the size of a page."""
        found: list[LetterEntry] = []
        damaged: list[str] = []
        size, last = 0, after
        for place, kept, sent_to, damage in self._all(topology, after):
            if damage:
                damaged.append(damage)
            if kept is None or (ids is not None and kept.letter.id not in ids):
                continue
            if found and (size >= PAGE_BYTES or len(found) >= PAGE_LETTERS):
                return LetterPage(found, last, damaged)
            last = place
            shown, length = _entry(kept, sent_to, values)
            if shown is None:
                damaged.append(
                    f"dead letter {kept.letter.id} cannot be shown: it is too large, or no letter of Squall"
                )
                continue
            found.append(shown)
            size += length
            if ids is not None and len(found) == len(ids):
                break
        return LetterPage(found, None, damaged)

    def drop(self, topology: str, ids: Collection[str]) -> list[str]:
        """Remove letters; return the ids of those that were there. Raises `SquallError` or `OSError`."""
        folder = self.folder(topology)
        dropped = {each.letter.id for each in self._taken(folder, ids)}
        for task, id, _ in folder.resends():
            if id in ids:
                folder.remove_resend(task, id)
                dropped.add(id)
        return sorted(dropped)

    def hand_over(self, topology: str, ids: Collection[str], task: int) -> list[str]:
        """Move letters to a task of this host, which sends them again; return the ids of those that were there. The letters of
        tasks that do not run any more are moved from these. Raises `SquallError` or `OSError`."""
        folder = self.folder(topology)
        done: set[str] = set()
        if not folder.path.is_dir():
            return []
        with folder.locked():
            for file in folder.files():
                wanted = [each for each in folder.read(file.name)[0] if each.letter.id in ids]
                for kept in wanted:  # it is in two files until it is taken out of the first one
                    folder.add_resend(task, kept)
                    done.add(kept.letter.id)
                if wanted:
                    folder.take_letters(file.name, lambda each: each.letter.id in ids)
            for before, id, _ in folder.resends():
                if id not in ids or id in done:
                    continue
                if before != task and (waiting := folder.read_resend(before, id)) is not None:
                    folder.add_resend(task, waiting)
                    folder.remove_resend(before, id)
                done.add(id)
        return sorted(done)

    def disinherit(self, topology: str, ids: Collection[str], why: str) -> list[str]:
        """Note that no version sends these letters by itself any more, and why; return the ids of those that were there. Raises
        `SquallError` or `OSError`."""
        folder = self.folder(topology)
        done: set[str] = set()

        def without_heir(kept: KeptLetter) -> KeptLetter:
            if kept.letter.id not in ids:
                return kept
            done.add(kept.letter.id)
            return msgspec.structs.replace(kept, letter=replace(kept.letter, heir="", note=why))

        if folder.path.is_dir():
            with folder.locked():
                for file in folder.files():
                    folder.change_letters(file.name, without_heir)
        return sorted(done)

    def kept(self, topology: str, id: str) -> bytes:
        """Return the bytes of a letter for another host. Raises `SquallError` if there is none, or its values are pickled."""
        for _, kept, _, _ in self._all(topology):
            if kept is not None and kept.letter.id == id:
                if kept.letter.codec != MOVABLE:
                    raise SquallError(f"the values of dead letter {id} are pickled: they leave no host")
                return encode([kept])
        raise SquallError(f"there is no dead letter {id} of {topology} on this host")

    def accept(self, topology: str, data: bytes, task: int) -> str:
        """Hand a letter of another host to a task of this one; return its id. Raises `SquallError` or `OSError`."""
        letters, damage = decode(data)
        if damage or len(letters) != 1:
            raise BadLetters(f"this is not one dead letter: {damage or f'there are {len(letters)}'}")
        if letters[0].letter.codec != MOVABLE or letters[0].letter.topology != topology:
            raise BadLetters(f"dead letter {letters[0].letter.id} may not be moved to this host")
        self.folder(topology).add_resend(task, letters[0])
        return letters[0].letter.id

    def _taken(self, folder: LetterFolder, ids: Collection[str]) -> list[KeptLetter]:
        if not folder.path.is_dir():
            return []
        with folder.locked():
            return [
                kept
                for file in folder.files()
                for kept in folder.take_letters(file.name, lambda each: each.letter.id in ids)
            ]

    def _all(
        self, topology: str, after: str = ""
    ) -> Iterator[tuple[str, KeptLetter | None, int | None, str]]:
        """Yield (its place, a letter, the task that is sending it again, what is wrong with its file)."""
        folder = self.folder(topology)
        begun, _, last = after.partition(":")
        if begun != _SENT:
            for file in folder.files():
                stem = file.name.partition(".")[0]
                if begun and _order(stem) < _order(begun):
                    continue
                letters, damage = folder.read(file.name)
                if damage:
                    yield after, None, None, damage
                there = [each.letter.id for each in letters]
                first = there.index(last) + 1 if stem == begun and last in there else 0
                for kept in letters[first:]:
                    yield f"{stem}:{kept.letter.id}", kept, None, ""
        for task, id, _ in sorted(folder.resends(), key=lambda each: each[1]):
            if begun != _SENT or id > last:
                yield f"{_SENT}:{id}", folder.read_resend(task, id), task, ""


class _Counted(msgspec.Struct, frozen=True):
    """What is known of a file: the ids of its letters, when the first and the last of them expires (None: never), and how many
    of them wait for which version."""

    stamp: tuple[int, int]
    ids: frozenset[str]
    first: float | None
    last: float | None
    heirs: Mapping[str, int]


class LetterCount:
    """Counts the letters of a host, and removes those that are too old. A file is only read when it has changed."""

    def __init__(self, letters: HostLetters, supervisor: str, host: str) -> None:
        self._letters, self._supervisor, self._host = letters, supervisor, host
        self._known: dict[Path, _Counted] = {}
        #: The names of topologies whose folders have shortened names.
        self._names: dict[Path, str] = {}
        self._warnings = RareWarnings()

    def count(self, now: float) -> HeldLetters:
        """Remove the letters that have expired, and return what is left. `now`: the wall clock."""
        before, self._known = self._known, {}
        counts: dict[str, int] = {}
        heirs: Counter[str] = Counter()
        until: list[float | None] = []
        for path in sorted(_folders(self._letters.root))[:_MOST_TOPOLOGIES]:
            try:
                self._count_folder(LetterFolder(path), now, before, counts, heirs, until)
            except (SquallError, OSError) as error:
                if self._warnings.due(path, time.monotonic()):
                    _log.warning("the dead letters in %s cannot be counted at the moment: %s", path, error)
        last = None if None in until else max((each for each in until if each is not None), default=None)
        return HeldLetters(
            self._supervisor, self._host, dict(sorted(counts.items())), last, dict(sorted(heirs.items()))
        )

    def _count_folder(
        self,
        folder: LetterFolder,
        now: float,
        before: dict[Path, _Counted],
        counts: dict[str, int],
        heirs: Counter[str],
        until: list[float | None],
    ) -> None:
        there: set[str] = set()  # a letter that is in two files is one letter
        for file in folder.files():
            path = folder.path / file.name
            known = before.get(path)
            if known is None or known.stamp != file.stamp:
                letters, damage = folder.read(file.name)
                if damage and self._warnings.due(path, time.monotonic()):
                    _log.warning("dead letters cannot be read: %s", damage)
                self._names[folder.path] = letters[0].letter.topology if letters else ""
                known = _counted(letters, file.stamp)
            if not known.ids and now - int(file.name.partition("-")[0]) / 1000 > DAMAGED_SECS:
                folder.remove(file.name)
                continue
            if known.first is not None and known.first <= now:
                known = self._expire(folder, file.name, now)
            self._known[path] = known
            there |= known.ids
            heirs.update(known.heirs)
            until += [known.last] if known.ids else []
        for task, id, file in folder.resends():  # also of tasks that are gone, so these expire too
            path = folder.path / RESEND / file.name
            known = before.get(path)
            if known is None or known.stamp != file.stamp:
                kept = folder.read_resend(task, id)
                known = _counted([] if kept is None else [kept], file.stamp)
            if known.first is not None and known.first <= now:
                folder.remove_resend(task, id)
                continue
            self._known[path] = known
            there |= known.ids
            until += [known.last] if known.ids else []
        if there:
            shown = unquoted(folder.path.name)
            own = folder_name(shown) == folder.path.name
            counts[shown if own else self._names.get(folder.path, shown)] = len(there)
        else:
            self._names.pop(folder.path, None)
            folder.sweep()

    def _expire(self, folder: LetterFolder, file: str, now: float) -> _Counted:
        """Remove the expired letters of a file."""

        def has_expired(each: KeptLetter) -> bool:
            return each.letter.expires_at is not None and each.letter.expires_at <= now

        with folder.locked():
            gone = folder.take_letters(file, has_expired)
        if gone:
            _log.info(
                "%d dead letters of %s were too old and are removed", len(gone), gone[0].letter.topology
            )
        return _counted(folder.read(file)[0], (0, 0))


def _counted(letters: Collection[KeptLetter], stamp: tuple[int, int]) -> _Counted:
    times = [each.letter.expires_at for each in letters]
    ends = [each for each in times if each is not None]
    return _Counted(
        stamp,
        frozenset(each.letter.id for each in letters),
        min(ends, default=None),
        None if None in times else max(ends, default=None),
        Counter(each.letter.heir for each in letters if each.letter.heir),
    )


def _entry(kept: KeptLetter, sent_to: int | None, values: bool) -> tuple[LetterEntry | None, int]:
    """Return a letter as it is shown, and its size; None if it cannot be shown, since user code can write any file."""
    try:
        body = {**to_builtins(kept.letter), "sent_to": sent_to}
        if not values:
            body["values"] = None
        size = len(json.encode(body))
        if not all(
            0 <= each <= _LATEST
            for each in (kept.letter.emitted_at, kept.letter.given_up_at, kept.letter.expires_at or 0)
        ):
            return None, 0
        return (convert(body, LetterEntry) if size <= _MOST_SHOWN else None), size
    except (RecursionError, MsgspecError):
        return None, 0


def _order(stem: str) -> tuple[int, str]:
    """Return the place of a file in the list of files; raise `BadLetters` for what is no place."""
    moment, _, rest = stem.partition("-")
    if not (moment.isascii() and moment.isdigit() and len(moment) <= 16):
        raise BadLetters(f"{stem!r:.40} is no place in a list of dead letters")
    return int(moment), rest


def _folders(root: Path) -> list[Path]:
    try:
        return [root / name for name in os.listdir(root) if name.isascii()]  # any other is not of Squall
    except OSError:  # there are none
        return []
