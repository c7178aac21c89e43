"""Shows on stderr how a submission goes: its steps, what it changes, and how the topology comes up.

Must not know: how a submission is made, when a topology has come up.
"""

from __future__ import annotations

import json
import re
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from squall_cli.cluster.waiting import NoAnswer, WaitProgress, overdue, within_time
from squall_cli.packing.coming_back import Return
from squall_cli.packing.coming_up import Arrival, Seen
from squall_cli.terminal.formats import duration
from squall_cli.terminal.lines import harmless, write

if TYPE_CHECKING:
    from squall.api.answers import SubmittedAnswer
    from squall_cli.cluster.nimbus_client import NimbusClient

#: The minimum number of seconds between two lines that differ only in their numbers.
LINE_SECS: Final = 5.0
NUMBER: Final = re.compile(r"[\d,.]+(?:st|nd|rd|th)?")
#: Seconds for which a command that names an epoch waits until the epoch was found.
FIND_SECS: Final = 60.0
#: Seconds between two requests for the status of a topology that is coming up.
LOOK_SECS: Final = 0.25


class Steps(WaitProgress):
    """Shows the current step on stderr, and a line for each step that is done."""

    said = 0.0

    def now(self, text: str) -> None:
        """Show a short step if the output is a terminal, where the next step overwrites the text."""
        if self.status is not None:
            self.show(text)

    def show(self, text: str) -> None:
        """Show progress. Where lines cannot be overwritten, a line that differs from the last line only in numbers is shown
        every few seconds."""
        same = NUMBER.sub("", text) == NUMBER.sub("", self.shown)
        if self.status is None and same and time.monotonic() - self.said < LINE_SECS:
            return
        self.said = time.monotonic()
        super().show(text)

    def done(self, text: str) -> None:
        """Print a line that later steps do not overwrite, if there is one."""
        if not text:
            return
        if self.status is not None:
            self.status.console.print(harmless(text))
        else:
            with suppress(BrokenPipeError):
                write(sys.stderr, text)


def differences(accepted: SubmittedAnswer) -> list[str]:
    """Return lines about the settings of a version that replaces another one: what it keeps, and what differs."""
    lines = []
    if accepted.kept:
        kept = ", ".join(f"{key}={json.dumps(value)}" for key, value in accepted.kept.items())
        lines.append(
            f"kept from the running version: {kept} (--reset-options forgets what -o and rebalance set)"
        )
    for key, (before, after) in accepted.changed.items():
        old, new = ("not set" if each is None else json.dumps(each) for each in (before, after))
        lines.append(f"changed: {key}: {old} -> {new}")
    return lines


def watch_begin(
    client: NimbusClient,
    accepted: SubmittedAnswer,
    steps: Steps,
    result: dict[str, Any],
    replaces: bool,
    begins: str,
) -> str | None:
    """Watch a topology that was told with which epoch to begin, until its tasks have found this epoch, say `begins` and return
    None; if that is not known after `FIND_SECS`, return None. If the epoch is not kept, or the topology fails for another
    reason, return that."""
    if accepted.rolled_back is not None:
        return None  # a version returns that has begun before
    failure = watch(client, accepted, steps, result, FIND_SECS, replaces=replaces, begins=True)
    if result.pop("up_secs") is not None:
        steps.done(begins)
    return failure


def watch(
    client: NimbusClient,
    accepted: SubmittedAnswer,
    steps: Steps,
    result: dict[str, Any],
    timeout: float | None,
    active: bool = True,
    replaces: bool = True,
    begins: bool = False,
) -> str | None:
    """Watch the topology until it has come up, and return None. If it will not come up, return the reason. `result` gets the
    last state that was seen. `begins`: only until its tasks have found the state with which they begin."""
    began = time.monotonic()
    arrival: Arrival | Return = Arrival(accepted.name, accepted.id, active, began, replaces, begins)
    if accepted.rolled_back is not None:
        arrival = Return(accepted.name, accepted.id, accepted.rolled_back)

    def check() -> Seen:
        status = client.topology_or_none(accepted.name)
        if status is None:
            return arrival.missing(time.monotonic())
        result["state"] = status.state if status.id == accepted.id else result["state"]
        return arrival.update(status, time.monotonic())

    while True:
        left = None if timeout is None else timeout - (time.monotonic() - began)
        try:
            seen = within_time(check, steps.show, left)
        except NoAnswer as error:
            result["up_secs"] = None
            if begins:
                steps.done(f"not known yet whether it can begin with its epoch: {error}")
                return None
            return overdue(timeout or 0.0, f"{accepted.name} is not known to be up: {error}")
        for stage in seen.stages:
            first, *rest = stage.splitlines()
            steps.done("\n".join([f"{first} ({duration(time.monotonic() - began)})", *rest]))
        if seen.done or seen.failure is not None:
            result["up_secs"] = round(time.monotonic() - began, 3) if seen.done else None
            return seen.failure
        waited = time.monotonic() - began
        if timeout is not None and waited >= timeout:
            result["up_secs"] = None
            if begins:
                steps.done(f"not known yet whether it can begin with its epoch: {seen.now}")
                return None
            return overdue(timeout, f"{accepted.name} is not up yet: {seen.now}")
        steps.show(seen.now)
        time.sleep(LOOK_SECS)
