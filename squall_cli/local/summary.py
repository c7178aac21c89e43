"""The end of a run: its summary as text and as JSON, and its exit status, which follows from the topology's final status.

Must not know: terminals, clusters.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from squall.dead_letters.letter import DeadLetter
from squall.reports.error_reports import STARTING
from squall.status import TopologyStatus
from squall_cli.local.local_run import Ended
from squall_cli.local.rates import done
from squall_cli.terminal import formats
from squall_cli.terminal.component_table import final_table, rows_of, with_left
from squall_cli.terminal.epoch_lines import had_ended
from squall_cli.terminal.error_feed import report_of_failure, troubles
from squall_cli.terminal.lines import Line
from squall_cli.terminal.views import MOST_TROUBLE
from worker.errors.reports import one_line
from worker.tracking.dead_letters import MOST_IN_MEMORY

#: How many different reasons of dead letters are shown.
FIRST_REASONS = 3
#: The words for each outcome.
OUTCOMES = {
    "completed": "completed in",
    "failed": "failed after",
    "drained": "ran for",
    "interrupted": "interrupted after",
    "cut off": "cut off after",
}


class Trees(msgspec.Struct, frozen=True):
    """The trees of a topology by outcome. `failed`: failed for good; `left`: cut off by the end, or still open."""

    acked: int
    failed: int
    left: int
    replayed: int
    first_failure: str


def trees_of(status: TopologyStatus) -> Trees:
    """Return the trees of all spouts."""
    spouts = {name: with_left(each) for name, each in status.components.items() if each.kind == "spout"}
    firsts = (f"spout {name!r}, {each.first_failure}" for name, each in spouts.items() if each.first_failure)
    return Trees(
        acked=sum(each.acked for each in spouts.values()),
        failed=sum(each.failed for each in spouts.values()),
        left=sum(each.pending for each in spouts.values()),
        replayed=sum(each.replayed for each in spouts.values()),
        first_failure=next(firsts, ""),
    )


def letters_of_bolts(ended: Ended) -> list[DeadLetter]:
    """Return the tuples that bolts have given up: in a topology with epochs, where a tuple is tried again in the bolt and its
    tree is acked with the commit. What a spout gives up is a failed tree. A run that had nothing to do shows those of a run
    before, if these were the last that it showed."""
    status = ended.status
    if had_ended(status.epoch, status.components):
        return []
    spouts = {name for name, each in status.components.items() if each.kind == "spout"}
    return [letter for letter in ended.letters if letter.component not in spouts]


def failures_of(ended: Ended) -> str:
    """Return how many trees and tuples failed for good, each with the first reason; "" if none did."""
    trees, letters = trees_of(ended.status), letters_of_bolts(ended)
    said = []
    if trees.failed:
        first = trees.first_failure or "unknown"
        said.append(f"{formats.plural(trees.failed, 'tree')} failed for good; the first: {first}")
    if letters:
        said.append(f"{in_bolts(letters)}; the first: {reason_of(letters[0])}")
    return "; ".join(said)


def in_bolts(letters: Sequence[DeadLetter]) -> str:
    """Return how many tuples bolts have given up."""
    return f"{counted(letters, 'tuple')} failed for good in bolts"


def counted(letters: Sequence[DeadLetter], what: str) -> str:
    """Return how many letters there are; no more than a number of them is in memory."""
    return ("at least " if len(letters) >= MOST_IN_MEMORY else "") + formats.plural(len(letters), what)


def exit_status(ended: Ended, allow_failures: bool) -> tuple[int, str | None]:
    """Return the exit status, and the reason if it is not 0."""
    status, trees = ended.status, trees_of(ended.status)
    if ended.how == "failed":
        shown = report_of_failure(status) if ended.reported else None  # this report was shown in full before
        report = (status.error or "for an unknown reason") if shown is None else shown.in_brief()
        return 1, f"topology {status.name!r} failed:\n{report}"
    if not allow_failures and (failed := failures_of(ended)):
        return 1, failed
    if trees.left:
        left, when = formats.plural(trees.left, "tree"), "cut off" if ended.how == "cut off" else "stopped"
        return 1, f"{left} had not been acked or failed when the topology was {when}"
    if ended.how == "cut off":
        return 1, "the topology was cut off before it had drained"
    never = never_started(status)
    if never is not None:
        return 1, f"{never} never started; its last error is above"
    if status.notes and not any(map(done, status.components.values())):
        return 1, "no tuple was processed, and workers died; see the last death above"
    raised = sorted({report.component for report in status.errors if report.call == "next_tuple"})
    if raised and not allow_failures:  # tuples that were not emitted are in no tree
        return 1, f"next_tuple() of {' and of '.join(raised)} raised errors: tuples may be missing"
    return 0, None


def never_started(status: TopologyStatus) -> str | None:
    """Return a component that could not be opened or prepared and has processed nothing, or None."""
    unopened = {report.component for report in status.errors if report.call in STARTING}
    idle = (name for name in status.components if name in unopened and not done(status.components[name]))
    return next(idle, None)


def average_rates(ended: Ended) -> dict[str, float | None]:
    """Return the tuples per second of each component, over the whole run."""
    return {name: per_second(done(each), ended) for name, each in ended.status.components.items()}


def per_second(tuples: int, ended: Ended) -> float | None:
    """Return a number of tuples as a rate over the whole run."""
    return tuples / ended.seconds if ended.seconds > 0 else None


def executed(status: TopologyStatus) -> int:
    """Return the number of tuples executed by all bolts."""
    return sum(component.executed for component in status.components.values())


def summary_lines(ended: Ended, width: int) -> list[Line]:
    """Return the summary as lines: the table, then the totals."""
    status, trees, letters = ended.status, trees_of(ended.status), letters_of_bolts(ended)
    lines = final_table(rows_of(status.components, average_rates(ended)), width)
    lines.append((("", ""),))
    total = executed(status)
    facts = [f"{formats.plural(total, 'tuple')} executed, {formats.rate(per_second(total, ended))}/s"]
    if trees.acked or trees.failed or trees.left:
        counts = f"{formats.plural(trees.acked, 'tree')} acked, {trees.failed:,} failed"
        if trees.left:
            counts += f", {trees.left:,} left"
        if trees.replayed:
            counts += f" ({formats.plural(trees.replayed, 'replay')})"
        if letters:
            counts += f"; {in_bolts(letters)}"
        facts.insert(0, counts)
    bad = ended.how == "failed" or trees.failed or letters
    style = "bad" if bad else "warn" if trees.left else "good"
    lines.append(((f"{status.name} {OUTCOMES[ended.how]} {formats.duration(ended.seconds)}", style),))
    if ended.how == "completed" and (why := had_ended(status.epoch, status.components)):
        again = (
            f"; to read it again, type {formats.to_type('state', 'drop', ended.folder)}"
            if ended.folder
            else ""
        )
        facts = [f"{why}{again}"]
    lines += [(("  ", ""), (fact, "")) for fact in facts]
    for trouble in troubles(status):
        count = formats.plural(trouble.count, "error")
        room = min(max(width - len(count) - 6, 40), MOST_TROUBLE)  # below 40, the line may wrap
        lines.append((("  ", ""), (count, "bad"), (f" in {formats.cropped_inside(trouble.line, room)}", "")))
    return lines + letter_lines(ended.letters, width)


def letter_lines(letters: Sequence[DeadLetter], width: int) -> list[Line]:
    """Return how many tuples were given up, and the first reasons. They end with the run, so nothing else shows them."""
    if not letters:
        return []
    count = counted(letters, "dead letter")
    lines: list[Line] = [(("  ", ""), (count, "bad"), (", kept until the end of this run:", ""))]
    reasons = Counter(map(reason_of, letters))
    first = list(reasons.items())[:FIRST_REASONS]
    for reason, times in first:
        room = min(max(width - len(f"{times:,}") - 6, 40), MOST_TROUBLE)
        lines.append((("    ", ""), (f"{times:,}", "bad"), (f" {formats.cropped_inside(reason, room)}", "")))
    if others := len(letters) - sum(times for _, times in first):
        lines.append((("    ", ""), (f"{others:,}", "bad"), (" for other reasons", "")))
    return lines


def reason_of(letter: DeadLetter) -> str:
    """Return why a tuple was given up, in a line that tuples with the same reason share."""
    failure = letter.failure
    where = f" in {failure.component}" if failure.component else ""
    return one_line(f"{failure.reason}{where}" + (f": {failure.error}" if failure.error else ""))


def as_json(ended: Ended, exit_status: int, reason: str | None) -> Any:
    """Return the summary as the values of one JSON object."""
    status, trees, letters = ended.status, trees_of(ended.status), letters_of_bolts(ended)
    values = status.as_dict()
    rates = average_rates(ended)
    for name, component in values["components"].items():
        component["rate"] = rates[name]
    total = executed(status)
    summary = {
        "name": status.name,
        "outcome": ended.how,
        "exit_status": exit_status,
        "reason": reason,
        "state": status.state,
        "seconds": ended.seconds,
        "trees": {
            name: number for name, number in msgspec.structs.asdict(trees).items() if name != "first_failure"
        },
        "failed_in_bolts": len(letters),
        "first_failure": trees.first_failure or (reason_of(letters[0]) if letters else None),
        "dead_letters": len(ended.letters),
        "executed": total,
        "rate": per_second(total, ended),
        "components": values["components"],
        "errors": values["errors"],
        "error": values["error"],
        "notes": values["notes"],
    }
    if status.epoch is not None:
        summary["epoch"] = values["epoch"]
    return _jsonable(summary)


def _jsonable(value: Any) -> Any:
    """Convert the value to JSON values: a user's gauge may return anything."""
    if isinstance(value, Mapping):
        return {str(key): _jsonable(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_jsonable(inner) for inner in value]
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if value is None or isinstance(value, (bool, int, str)):
        return value
    try:
        return _jsonable(float(value))  # a library's own type of numbers
    except Exception:
        return repr(value)
