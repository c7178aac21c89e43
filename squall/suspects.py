"""Tuples in whose calls worker processes have died, and the file that keeps them on a host.

A supervisor keeps one file for each topology, in the topology's directory: it outlives processes, incarnations and the
supervisor, and goes with the topology's version. Each worker gets a copy before it starts. A suspect is the key of a tuple
(`worker.tasks.tuple_keys`), with the deaths that count against it; a tuple that was in a call beside others when their worker
died is a suspect without one. The times are the wall clock's.
Must not know: which deaths count, what is done about a suspect.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Final

from msgspec import Meta, Struct
from msgspec.structs import replace

from squall import worker_files
from squall.exact_structs import Finite, build_type_info, read_exactly
from squall.running_calls import KEY_BYTES, MOST_TASKS, CallAtDeath
from squall.worker_files import SUSPECTS, BadFile

#: The most suspects of a topology on a host, and the most characters of a reason.
MOST_SUSPECTS: Final = 100
MOST_REASON: Final = 300
#: How long a suspect is kept after the last death that named it.
KEPT_SECS: Final = 86_400.0
#: How long the next process marks its calls, at least. If the next death comes later than that, the process after it marks for
#: twice as long as it took: a source may need that time to come back to the tuple.
MARK_SECS: Final = 600.0


class Suspect(Struct, frozen=True, forbid_unknown_fields=True):
    """A tuple that may end its worker's process."""

    #: Hexadecimal digits.
    key: Annotated[str, Meta(pattern=f"^[0-9a-f]{{{2 * KEY_BYTES}}}$")]
    #: How many processes have died while its call, and no other, was running.
    deaths: int
    #: How the last one ended.
    reason: str
    at: Finite


class Suspects(Struct, frozen=True, forbid_unknown_fields=True):
    """What is known after the last death in a call."""

    at: Finite
    mark_secs: Finite
    known: tuple[Suspect, ...] = ()
    #: The tasks in whose batches processes have died: which tuple of a batch it was is not known.
    batches: tuple[int, ...] = ()


build_type_info(Suspects)


def after_death(before: Suspects | None, calls: Iterable[CallAtDeath], reason: str, now: float) -> Suspects:
    """Return what is known after another death. `calls`: those that were running."""
    before = None if before is None else unexpired(before, now)
    found = {} if before is None else {each.key: each for each in before.known}
    running = list(calls)
    for call in running:
        if call.key and call.size == 1:
            deaths = found[call.key].deaths if call.key in found else 0
            counts = len(running) == 1
            found[call.key] = Suspect(call.key, deaths + counts, reason[:MOST_REASON], now)
    known = sorted(found.values(), key=lambda each: (each.deaths, each.at), reverse=True)
    batches = {call.task for call in running if call.size > 1}
    secs = MARK_SECS
    if before is not None:
        batches.update(before.batches)
        secs = min(KEPT_SECS, max(secs, before.mark_secs, 2 * (now - before.at)))
    return Suspects(now, secs, tuple(known[:MOST_SUSPECTS]), tuple(sorted(batches)[:MOST_TASKS]))


def unexpired(found: Suspects, now: float) -> Suspects | None:
    """Return what is kept at a time; None: nothing."""
    if abs(now - found.at) > KEPT_SECS:
        return None
    return replace(found, known=tuple(each for each in found.known if abs(now - each.at) <= KEPT_SECS))


def for_next_process(found: Suspects, now: float) -> Suspects | None:
    """Return what a process that starts now has to know; None: nothing, and it need not mark its calls."""
    kept = unexpired(found, now)
    return (
        kept if kept is not None and (kept.known or kept.batches or now - kept.at <= kept.mark_secs) else None
    )


def read_suspects(directory: Path | str) -> Suspects | None:
    """Return the suspects in a directory; None if it has no file of them. Raises `BadFile` or `OSError`."""
    body = worker_files.read(directory, SUSPECTS)
    try:
        return None if body is None else read_exactly(Suspects, body)
    except Exception as error:
        raise BadFile(f"{directory}/{SUSPECTS}: {error}") from error


def write_suspects(directory: Path | str, suspects: Suspects) -> None:
    """Write the suspects into a directory, readable by their owner only. Raises `OSError`."""
    worker_files.write(directory, SUSPECTS, suspects, 0o600)
