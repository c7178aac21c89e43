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
    return "\n".join([f"{label} {what}{_what_next(backoff, now)}", *lines])


def not_started_note(label: str, why: str, backoff: Backoff, now: float) -> str:
    """`worker w2 of topology 'words' cannot be started, which is tried again in 2 s: its code cannot be fetched: ...`."""
    wait = backoff.not_before - now
    when = f"in {wait:.0f} s" if wait > 0 else "at once"
    return f"{label} cannot be started, which is tried again {when}: {why}"


def waiting_note(label: str, what: str) -> str:
    """`worker w2 of topology 'words' waits: its environment is being built`."""
    return f"{label} waits: {what}"


def _what_next(backoff: Backoff | None, now: float) -> str:
    if backoff is None:
        return ""
    wait = backoff.not_before - now
    again = f"it is started again in {wait:.0f} s" if wait > 0 else "it is started again at once"
    if backoff.deaths < 2:
        return f"; {again}"
    return f"; its {_ordinal(backoff.deaths)} death in {now - backoff.since:.0f} s; {again}"


def _ordinal(number: int) -> str:
    tens, ones = divmod(number % 100, 10)
    ending = "th" if tens == 1 else {1: "st", 2: "nd", 3: "rd"}.get(ones, "th")
    return f"{number}{ending}"
