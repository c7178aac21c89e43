"""The ledger: a topology's own record of what happened under faults, and the check that it adds up.

Each life of each task (one process, from `open` or `prepare` on) appends to a file of its own, a line per event, written
before the event has consequences; a killed process loses at most the line that it was writing.

    spout-<index>-<began>-<pid>.log     E <ns> <number> <attempt>            emitted
                                        A <ns> <number> <attempt>            acked
                                        F <ns> <number> <attempt> <reason>   failed for good
                                        P <ns>                               asked to pause
    sink-<index>-<began>-<pid>.log      S <ns> <number>                      seen, with the values it was emitted with
                                        W <ns> <number> <what>               seen with other values

Numbers are the source's: index * STRIDE + position. The next life of a spout task emits again what was emitted and not acked,
as a source with a durable position does. Must not know: clusters, processes, who makes the faults.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

STRIDE = 10**9
SPOUT, SINK = "spout", "sink"
#: How many examples a problem names.
SHOWN = 5

Emission = tuple[int, int]


class Writer:
    """The file of one life of one task."""

    def __init__(self, directory: Path | str, role: str, index: int) -> None:
        name = f"{role}-{index}-{time.monotonic_ns():020d}-{os.getpid()}.log"
        self._file = os.open(
            Path(directory, name), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o644
        )

    def write(self, kind: str, *values: object) -> None:
        """Append a line in one write: data that the kernel has accepted outlives the process."""
        line = " ".join((kind, str(time.monotonic_ns()), *map(str, values)))
        os.write(self._file, line.encode() + b"\n")

    def close(self) -> None:
        os.close(self._file)


@dataclass(frozen=True)
class Entry:
    """A line: its kind, its time, and the rest."""

    kind: str
    at: int
    values: tuple[str, ...]

    @property
    def number(self) -> int:
        return int(self.values[0])

    @property
    def emission(self) -> Emission:
        return int(self.values[0]), int(self.values[1])


@dataclass(frozen=True)
class Life:
    """All lines of one life of a task."""

    role: str
    index: int
    began: int
    pid: int
    entries: tuple[Entry, ...]

    @property
    def name(self) -> str:
        return f"{self.role} {self.index}, process {self.pid}"

    def of(self, *kinds: str) -> Iterator[Entry]:
        return (entry for entry in self.entries if entry.kind in kinds)

    def after(self, moment: int, *kinds: str) -> list[Entry]:
        """Its lines after a moment (`time.monotonic_ns`)."""
        return [entry for entry in self.of(*kinds) if entry.at > moment]


def read(directory: Path | str) -> list[Life]:
    """All lives, oldest first."""
    lives = []
    for path in Path(directory).glob("s*-*-*-*.log"):
        role, index, began, pid = path.stem.split("-")
        lives.append(Life(role, int(index), int(began), int(pid), tuple(entries_of(path))))
    return sorted(lives, key=lambda life: life.began)


def entries_of(path: Path) -> Iterator[Entry]:
    """The complete lines of a file; a last line without its end was cut off when the process died."""
    whole, _, _ = path.read_bytes().rpartition(b"\n")
    for line in whole.decode().splitlines():
        kind, at, *values = line.split(" ", 4)
        yield Entry(kind, int(at), tuple(values))


def lives_of(lives: Iterable[Life], role: str, index: int | None = None) -> list[Life]:
    return [life for life in lives if life.role == role and index in (None, life.index)]


def unsettled(life: Life) -> set[Emission]:
    """The emissions of a life that were neither acked nor failed."""
    emitted = {entry.emission for entry in life.of("E")}
    return emitted - {entry.emission for entry in life.of("A", "F")}


@dataclass
class Account:
    """The totals of a ledger."""

    problems: list[str] = field(default_factory=list)
    emitted: int = 0
    acked: int = 0
    failed: Counter[str] = field(default_factory=Counter)
    seen: int = 0
    duplicates: int = 0
    #: Emissions whose spout task died before they were acked or failed.
    orphaned: int = 0
    spout_lives: int = 0
    sink_lives: int = 0

    def note(self, what: str, examples: Iterable[object]) -> None:
        """A problem, if it has examples."""
        found = sorted(examples, key=str)
        if found:
            more = "" if len(found) <= SHOWN else f" and {len(found) - SHOWN} more"
            self.problems.append(f"{what}: {', '.join(map(str, found[:SHOWN]))}{more}")

    def __str__(self) -> str:
        counts = (
            f"emitted {self.emitted}, acked {self.acked}, failed {dict(self.failed)}, orphaned {self.orphaned}, "
            f"seen {self.seen}, duplicates {self.duplicates}, lives {self.spout_lives} + {self.sink_lives}"
        )
        return "\n".join([counts, *self.problems])


def account(lives: list[Life], thawed: Mapping[int, int] = {}) -> Account:
    """Check a ledger. Call it when nothing is pending any more.

    `thawed`: processes that were suspended until their tasks had moved elsewhere, and when they were resumed. The run of calls
    in which such a process was frozen may continue until it checks the clock: what it emits then never leaves the process and
    gets no ack.

    Problems are: an acked number that no sink saw; an emission of a task's last life without an outcome, or with two; an
    outcome of something that was not emitted; a sink that saw a number that was not emitted, or with wrong values; an emission
    of a dead life that no later life emitted again; two lives of one spout task that emitted at the same time.
    """
    result = Account()
    spouts, sinks = lives_of(lives, SPOUT), lives_of(lives, SINK)
    result.spout_lives, result.sink_lives = len(spouts), len(sinks)
    seen = Counter(entry.number for life in sinks for entry in life.of("S"))
    emitted = {entry.number for life in spouts for entry in life.of("E")}
    acked = {entry.number for life in spouts for entry in life.of("A")}
    result.seen, result.duplicates = seen.total(), seen.total() - len(seen)
    result.note("acked but never seen by a sink", acked - seen.keys())
    result.note("seen by a sink but never emitted", seen.keys() - emitted)
    wrong = [f"{entry.number} ({entry.values[1:]})" for life in sinks for entry in life.of("W")]
    result.note("seen with values that are not its own", wrong)
    for life in spouts:
        judge(life, result)
        if life.pid in thawed:
            late = {entry.emission for entry in life.after(thawed[life.pid], "E")}
            heard = {entry.emission for entry in life.of("A", "F")}
            result.note(
                f"{life.name}: a final call of what it emitted when its tasks were another's", late & heard
            )
    spouts = [without_last_run(life, thawed.get(life.pid)) for life in spouts]
    for index in sorted({life.index for life in spouts}):
        succession(lives_of(spouts, SPOUT, index), acked, result)
    return result


def without_last_run(life: Life, thawed: int | None) -> Life:
    """A life without its emissions after it was thawed."""
    if thawed is None:
        return life
    kept = tuple(entry for entry in life.entries if entry.kind != "E" or entry.at <= thawed)
    return replace(life, entries=kept)


def judge(life: Life, result: Account) -> None:
    """The outcomes (acks and failures) of one life of a spout task."""
    emissions = Counter(entry.emission for entry in life.of("E"))
    final_calls = Counter(entry.emission for entry in life.of("A", "F"))
    result.emitted += emissions.total()
    result.acked += sum(1 for _ in life.of("A"))
    result.failed.update(entry.values[2] for entry in life.of("F"))
    twice = [emission for emission, times in emissions.items() if times > 1]
    result.note(f"{life.name}: the test's own fault, emitted twice under one id", twice)
    result.note(
        f"{life.name}: more than one final call", [which for which, times in final_calls.items() if times > 1]
    )
    result.note(f"{life.name}: a final call of what it did not emit", final_calls.keys() - emissions.keys())
    known: set[Emission] = set()
    early = []
    for entry in life.of("E", "A", "F"):
        if entry.kind == "E":
            known.add(entry.emission)
        elif entry.emission not in known and entry.emission in emissions:
            early.append(entry.emission)
    result.note(f"{life.name}: a final call before the emission", early)


def succession(lives: list[Life], acked: set[int], result: Account) -> None:
    """The lives of one spout task in turn: each emits again what the one before left open."""
    for life, after in zip(lives, [*lives[1:], None]):
        open_ones = unsettled(life)
        if after is None:
            result.note(f"{life.name}: no final call", open_ones)
            continue
        result.orphaned += len(open_ones)
        first = min((entry.at for entry in after.of("E")), default=None)
        if first is not None:
            result.note(
                f"{life.name}: emitted after {after.name} had begun to",
                {entry.emission for entry in life.of("E") if entry.at > first},
            )
        later = {entry.number for one in lives[lives.index(life) + 1 :] for entry in one.of("E")}
        lost = {number for number, _ in open_ones} - later - acked
        result.note(f"{life.name}: left open and not emitted again", lost)


def owner_changes(lives: list[Life], keys: int) -> Counter[int]:
    """How often each key (number modulo `keys`) moved from one sink task to another, in order of time."""
    seen = sorted(
        (entry.at, entry.number % keys, life.index)
        for life in lives_of(lives, SINK)
        for entry in life.of("S")
    )
    owners: dict[int, int] = {}
    changes: Counter[int] = Counter()
    for _, key, index in seen:
        if owners.setdefault(key, index) != index:
            owners[key] = index
            changes[key] += 1
    return changes
