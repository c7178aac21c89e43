"""`--wait`: poll until a condition holds, and show the progress.

On a terminal, progress is one line that changes; elsewhere, each change is a new line. Progress goes to stderr, so that stdout
has only the outcome. If Nimbus does not answer, the request is repeated for a while, since a standby may take over. `obeyed`
repeats a command that was refused because no Nimbus led.
Must not know: the condition.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import cache
from typing import TYPE_CHECKING, Final, TypeVar

from squall_cli.terminal.formats import cropped
from squall_cli.terminal.lines import console, harmless, is_terminal, write
from topology_api.errors import SquallError

if TYPE_CHECKING:
    from rich.status import Status

    from squall.http.client import Refused, Unreachable

T = TypeVar("T")
Progress = TypeVar("Progress", bound="WaitProgress")

#: Seconds between two requests, at the beginning and later.
PAUSES: Final = (0.1, 1.0)
#: Seconds without an answer after which waiting ends.
PATIENCE: Final = 60.0
#: Seconds that a command waits for a leader. By default, a standby leads about 11 s after the leader was killed.
TAKEOVER_SECS: Final = 30.0
#: The error kind of a request that was refused because no Nimbus leads; nothing was changed.
NO_LEADER: Final = "NoLeader"


class Interrupted(SquallError):
    """The user pressed Ctrl-C during a wait."""


class Overdue(SquallError):
    """What a command waits for has not come within the time of --timeout."""


class NoAnswer(SquallError):
    """Nimbus did not answer before the time of --timeout was over."""


class WaitProgress:
    """Shows the latest text of the progress."""

    shown = ""
    status: Status | None = None

    def __enter__(self: Progress) -> Progress:
        if is_terminal(sys.stderr):
            self.status = console(sys.stderr).status("")
            self.status.start()
        return self

    def __exit__(self, *raised: object) -> None:
        if self.status is not None:
            self.status.stop()

    def show(self, text: str) -> None:
        """Show the progress."""
        if text == self.shown:
            return
        self.shown = text
        if self.status is None:
            with suppress(BrokenPipeError):
                write(sys.stderr, text)
        else:
            self.status.update(cropped(harmless(text), self.status.console.width - 4))


def overdue(seconds: float, progress: str) -> str:
    """Return the text of a wait that has lasted too long: `progress` says what is not done yet."""
    return f"stopped waiting after {seconds:g} s: {progress}; the cluster continues the work"


def wait(look: Callable[[], tuple[T | None, str]], within: float | None = None) -> T:
    """Call `look`, which returns (value, progress), until the value is not None; return the value. Raise `Overdue` after
    `within` seconds."""
    began = time.monotonic()
    try:
        with WaitProgress() as progress:
            while True:
                left = None if within is None else within - (time.monotonic() - began)
                found, text = within_time(look, progress.show, left)
                waited = time.monotonic() - began
                if found is not None:
                    return found
                if within is not None and waited >= within:
                    raise Overdue(overdue(within, text))
                progress.show(text)
                pause = min(PAUSES[1], max(PAUSES[0], waited / 10))
                time.sleep(pause if within is None else min(pause, max(0.0, within - waited)))
    except NoAnswer as error:
        raise Overdue(overdue(within or 0.0, str(error))) from None
    except KeyboardInterrupt:
        raise Interrupted("stopped waiting; the cluster continues the work") from None


def within_time(look: Callable[[], T], show: Callable[[str], object], left: float | None) -> T:
    """Return the result of `look`, which is repeated while Nimbus does not answer. Raise `NoAnswer` if the `left` seconds of
    --timeout are over before an answer comes. None: no time limit but the patience with Nimbus."""
    from squall.http.client import Refused, Unreachable

    if left is None or left >= PATIENCE:
        return patiently(look, show)
    try:
        return patiently(look, show, within=max(0.0, left))
    except (Unreachable, Refused) as error:
        if not is_away(error):
            raise
        raise NoAnswer(f"Nimbus does not say how far it is: {error}") from None


def obeyed(command: Callable[[], T]) -> T:
    """Return the result of `command`, which requests a change from Nimbus; repeat it while no Nimbus leads, as in the seconds
    after a leader's death. Raise any other refusal."""
    with ExitStack() as stack:
        # Show nothing for a command that succeeds at once.
        progress = cache(lambda: stack.enter_context(WaitProgress()))
        return patiently(
            command,
            lambda text: progress().show(text),
            lambda error: getattr(error, "kind", "") == NO_LEADER,
            TAKEOVER_SECS,
        )


def is_away(error: Unreachable | Refused) -> bool:
    """Whether the error means that no Nimbus leads or answers now."""
    return getattr(error, "status", 503) == 503


def patiently(
    ask: Callable[[], T],
    show: Callable[[str], object],
    passes: Callable[[Unreachable | Refused], bool] = is_away,
    within: float = PATIENCE,
) -> T:
    """Return the result of `ask`. If `ask` raises an error that will pass, call it again, for at most `within` seconds.
    `passes` says which errors will pass: by default, those that mean that no Nimbus leads or answers."""
    from squall.http.client import Refused, Unreachable

    began = time.monotonic()
    while True:
        try:
            return ask()
        except (Unreachable, Refused) as error:
            left = within - (time.monotonic() - began)
            if not passes(error) or left <= 0:
                raise
            show(f"asking again in a moment: {error}")
        time.sleep(min(PAUSES[1], left))
