"""Puts probes into folders, and looks for those of other hosts, so that Nimbus knows which hosts share a folder.

A probe is an empty file with a random name. It lies in the folder of a topology's state, or, while that is missing, in the
nearest folder above it that exists: there the topology's workers would make the missing ones. No folder is made, and no file is
read, changed or removed but probes that this supervisor has put. Workers run as the supervisor's user, so none of this is more
than they may do; a supervisor of root follows no symbolic link, which another user may have put there.

A probe is removed when Nimbus says so, after `KEEP_SECS` at the latest, and when the supervisor stops.
Must not know: HTTP, topologies, what Nimbus concludes.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Lock, Timer
from typing import Final

from msgspec import DecodeError, ValidationError, json

from squall.api.folder_probes import LOOK, PREFIX, PUT, REMOVE, FolderProbe, ProbeSeen
from squall.http.json_app import Refusal

#: Seconds after which a probe is removed, if Nimbus does not say so before.
KEEP_SECS: Final = 30.0
#: Seconds for which a probe is looked for: other hosts may see it a moment later.
PATIENCE: Final = 1.0
#: The most bytes of a request.
MOST_BODY: Final = 16 * 1024
_PAUSE: Final = 0.1
_FOLDER: Final = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC


class NoWay(Exception):
    """A folder that cannot be used; the text says why."""


class FolderProbes:
    """The probes of one supervisor. Threads may use it at the same time; they take turns, so that a file system that does not
    answer holds up one of them, and the others say so."""

    def __init__(
        self,
        root: str = "/",
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], object] = time.sleep,
    ) -> None:
        """`root`: where paths begin."""
        self._root, self._clock, self._pause = root, clock, pause
        self._turn = Lock()
        #: Where each probe that lies somewhere is, and what removes it in the end.
        self._put: dict[str, tuple[str, Timer]] = {}

    def answer(self, step: str, body: bytes) -> ProbeSeen:
        """Do a step of a request. Raises `Refusal`."""
        steps = {PUT: self._put_probe, LOOK: self._look, REMOVE: self._remove}
        if step not in steps:
            raise Refusal(
                404, "NoSuchPage", f"there is no step {step!r:.40} of a probe: give put, look or remove"
            )
        try:
            probe = json.decode(body, type=FolderProbe)
        except (ValidationError, DecodeError, RecursionError) as error:
            raise Refusal(400, "BadRequest", f"the request cannot be read: {error}") from None
        if not _is_clear(probe.folder):
            raise Refusal(
                400, "BadRequest", f"{probe.folder!r:.200} is no absolute path without '.' and '..'"
            )
        if not self._turn.acquire(timeout=PATIENCE):
            return ProbeSeen(
                probe.folder, False, "it looks for another file, and its file system does not answer"
            )
        try:
            return steps[step](probe)
        except NoWay as error:
            return ProbeSeen(probe.folder, False, str(error))
        except OSError as error:
            return ProbeSeen(probe.folder, False, f"{probe.folder}: {error.strerror or error}")
        finally:
            self._turn.release()

    def close(self) -> None:
        """Remove all probes."""
        for number in list(self._put):
            self._take_back(number)

    def _put_probe(self, probe: FolderProbe) -> ProbeSeen:
        if probe.number in self._put:  # the answer to the first request was lost
            return ProbeSeen(self._put[probe.number][0], True)
        with self._opened(probe.folder) as (descriptor, folder):
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            try:
                os.close(os.open(PREFIX + probe.number, flags, 0o600, dir_fd=descriptor))
            except OSError as error:
                raise NoWay(f"it cannot write into {folder}: {error.strerror or error}") from error
        timer = Timer(KEEP_SECS, self._take_back, (probe.number,))
        timer.daemon = True
        self._put[probe.number] = folder, timer
        timer.start()
        return ProbeSeen(folder, True)

    def _look(self, probe: FolderProbe) -> ProbeSeen:
        end = self._clock() + PATIENCE
        while True:
            with self._opened(probe.folder) as (descriptor, folder):
                if folder == probe.folder and _is_there(PREFIX + probe.number, descriptor):
                    return ProbeSeen(folder, True)
            if self._clock() >= end:
                return ProbeSeen(folder, False)
            self._pause(_PAUSE)

    def _remove(self, probe: FolderProbe) -> ProbeSeen:
        self._take_back(probe.number)
        return ProbeSeen(probe.folder, False)

    def _take_back(self, number: str) -> None:
        folder, timer = self._put.pop(number, ("", None))
        if timer is None:
            return
        timer.cancel()
        with suppress(OSError, NoWay), self._opened(folder) as (descriptor, found):
            if found == folder:
                os.unlink(PREFIX + number, dir_fd=descriptor)

    @contextmanager
    def _opened(self, folder: str) -> Iterator[tuple[int, str]]:
        """Open a folder, or the nearest one above it that exists; yield its descriptor and its path. Raises `NoWay`, and
        `OSError`."""
        descriptor, at = os.open(self._root, _FOLDER), ""
        try:
            for part in _parts(folder):
                here = f"{at}/{part}"
                is_link = _is_followed(part, descriptor, here)
                try:
                    below = os.open(part, _FOLDER | (0 if is_link else os.O_NOFOLLOW), dir_fd=descriptor)
                except FileNotFoundError:
                    if is_link:
                        raise NoWay(f"{here} is a symbolic link that leads nowhere") from None
                    break
                except OSError as error:
                    raise NoWay(f"it cannot enter {here}: {error.strerror or error}") from error
                os.close(descriptor)
                descriptor, at = below, here
            yield descriptor, at or "/"
        finally:
            os.close(descriptor)


def _parts(folder: str) -> list[str]:
    return folder[1:].split("/") if folder != "/" else []


def _is_clear(folder: str) -> bool:
    """Return whether a path means one place only, whatever lies there."""
    return folder.startswith("/") and "\0" not in folder and not {"", ".", ".."} & {*_parts(folder)}


def _is_there(name: str, descriptor: int) -> bool:
    try:
        return stat.S_ISREG(os.stat(name, dir_fd=descriptor, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return False


def _is_followed(name: str, descriptor: int, here: str) -> bool:
    """Return whether a name is a symbolic link that is followed, as workers do: one of the own user or of root. Raises `NoWay`
    for any other, and if the own user is root."""
    try:
        state = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
    except OSError:  # missing; or opening it says why
        return False
    if not stat.S_ISLNK(state.st_mode):
        return False
    user = os.geteuid()
    if user == 0:
        raise NoWay(f"{here} is a symbolic link, which a supervisor of root does not follow")
    if state.st_uid not in (user, 0):
        raise NoWay(f"{here} is a symbolic link of another user (uid {state.st_uid})")
    return True
