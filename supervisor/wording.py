"""What is said about a worker that died: one sentence, and lines of its output where they explain it.

Must not know: processes, files.
"""

from __future__ import annotations

from supervisor.plan import Backoff


def death_note(label: str, cause: str, backoff: Backoff | None, now: float) -> str:
    """`worker w2 (pid 123) ... was killed by SIGKILL (OOM killer: no); its 3rd death in 4 s; it is started again in 2 s`.

    `backoff`: None when none is started again.
    """
    what, *lines = cause.split("\n")
    next_ = ""
    if backoff is not None:
        next_ = _what_next(backoff.deaths - backoff.unstarted, "death", "started", backoff, now)
    return "\n".join([f"{label} {what}{next_}", *lines])


def not_started_note(label: str, why: str, backoff: Backoff, now: float) -> str:
    """`worker w2 of topology 'words' cannot be started: its code cannot be fetched: ...; its 3rd failed preparation in 4 s; it
    is tried again in 2 s`."""
    what, *lines = why.split("\n")
    next_ = _what_next(backoff.unstarted, "failed preparation", "tried", backoff, now)
    return "\n".join([f"{label} cannot be started: {what}{next_}", *lines])


def waiting_note(label: str, what: str) -> str:
    """`worker w2 of topology 'words' waits: its environment is being built`."""
    return f"{label} waits: {what}"


def _what_next(count: int, what: str, done: str, backoff: Backoff, now: float) -> str:
    wait = backoff.not_before - now
    again = f"it is {done} again in {wait:.0f} s" if wait > 0 else f"it is {done} again at once"
    if count < 2:
        return f"; {again}"
    return f"; its {_ordinal(count)} {what} in {now - backoff.since:.0f} s; {again}"


def _ordinal(number: int) -> str:
    tens, ones = divmod(number % 100, 10)
    ending = "th" if tens == 1 else {1: "st", 2: "nd", 3: "rd"}.get(ones, "th")
    return f"{number}{ending}"
