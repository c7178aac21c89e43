"""The end of a run: what came of it, for people and as JSON, and which exit status it deserves.

Plain decisions over a final status.
Must not know: terminals, clusters.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from squall.error_reports import STARTING
from squall.status import TopologyStatus
from squall_cli import figures
from squall_cli.component_table import Line, final_table, rows_of, with_left
from squall_cli.error_feed import report_told, troubles
from squall_cli.local_run import Ended
from squall_cli.plain_lines import MOST_TROUBLE
from squall_cli.rates import done

#: How each way to end is told.
TOLD = {
    "completed": "completed in",
    "failed": "failed after",
    "drained": "ran for",
    "interrupted": "interrupted after",
    "cut off": "cut off after",
}


@dataclass(frozen=True)
class Trees:
    """The final verdicts of a topology's trees. `failed`: for good; `left`: cut off by the end, or open still."""

    acked: int
    failed: int
    left: int
    replayed: int
    first_failure: str


def trees_of(status: TopologyStatus) -> Trees:
    """The trees of all spouts."""
    spouts = {
        name: with_left(component)
        for name, component in status.components.items()
        if component.kind == "spout"
    }
    firsts = [
        f"spout {name!r}, {spout.first_failure}" for name, spout in spouts.items() if spout.first_failure
    ]
    return Trees(
        acked=sum(spout.acked for spout in spouts.values()),
        failed=sum(spout.failed for spout in spouts.values()),
        left=sum(spout.pending for spout in spouts.values()),
        replayed=sum(spout.replayed for spout in spouts.values()),
        first_failure=next(iter(firsts), ""),
    )


def verdict(ended: Ended, allow_failures: bool) -> tuple[int, str | None]:
    """The exit status, and the reason when it is not 0."""
    status, trees = ended.status, trees_of(ended.status)
    if ended.how == "failed":
        told = report_told(status) if ended.told else None  # in full, when it happened
        report = (status.error or "for an unknown reason") if told is None else told.in_brief()
        return 1, f"topology {status.name!r} failed:\n{report}"
    if trees.failed and not allow_failures:
        return (
            1,
            f"{figures.plural(trees.failed, 'tree')} failed for good; the first: {trees.first_failure or 'unknown'}",
        )
    if trees.left:
        return (
            1,
            f"{figures.plural(trees.left, 'tree')} had no verdict yet when the topology was {_ended(ended)}",
        )
    if ended.how == "cut off":
        return 1, "the topology was cut off before it had drained"
    never = never_started(status)
    if never is not None:
        return 1, f"{never} never started; its last error is above"
    if status.notes and not any(map(done, status.components.values())):
        return 1, "nothing was worked off, and workers died; the last of them is told of above"
    return 0, None


def never_started(status: TopologyStatus) -> str | None:
    """A component that could not be opened or prepared and so has done nothing, None when there is none."""
    unopened = {report.component for report in status.errors if report.call in STARTING}
    idle = (name for name in status.components if name in unopened and not done(status.components[name]))
    return next(idle, None)


def _ended(ended: Ended) -> str:
    return "cut off" if ended.how == "cut off" else "stopped"


def average_rates(ended: Ended) -> dict[str, float | None]:
    """Tuples a second of each component, over the whole run."""
    seconds = ended.seconds
    return {
        name: done(component) / seconds if seconds > 0 else None
        for name, component in ended.status.components.items()
    }


def executed(status: TopologyStatus) -> int:
    """Tuples executed by all bolts."""
    return sum(component.executed for component in status.components.values())


def summary_lines(ended: Ended, width: int) -> list[Line]:
    """The summary for people: the table, then what it comes to."""
    status, trees = ended.status, trees_of(ended.status)
    lines = final_table(rows_of(status.components, average_rates(ended)), width)
    lines.append((("", ""),))
    total = executed(status)
    rate = figures.rate(total / ended.seconds) if ended.seconds > 0 else "-"
    facts = [f"{figures.plural(total, 'tuple')} executed, {rate}/s"]
    if trees.acked or trees.failed or trees.left:
        verdicts = f"{figures.plural(trees.acked, 'tree')} acked, {trees.failed:,} failed"
        if trees.left:
            verdicts += f", {trees.left:,} left"
        if trees.replayed:
            verdicts += f" ({figures.plural(trees.replayed, 'replay')})"
        facts.insert(0, verdicts)
    style = "bad" if ended.how == "failed" or trees.failed else "warn" if trees.left else "good"
    lines.append(((f"{status.name} {TOLD[ended.how]} {figures.duration(ended.seconds)}", style),))
    lines += [(("  ", ""), (fact, "")) for fact in facts]
    for trouble in troubles(status):
        count = figures.plural(trouble.count, "error")
        room = min(max(width - len(count) - 6, 40), MOST_TROUBLE)  # a window narrower may as well wrap
        lines.append((("  ", ""), (count, "bad"), (f" in {figures.cropped_inside(trouble.line, room)}", "")))
    return lines


def as_json(ended: Ended, exit_status: int, reason: str | None) -> str:
    """The summary for programs: one JSON object."""
    status, trees = ended.status, trees_of(ended.status)
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
            "acked": trees.acked,
            "failed": trees.failed,
            "left": trees.left,
            "replayed": trees.replayed,
        },
        "first_failure": trees.first_failure or None,
        "executed": total,
        "rate": total / ended.seconds if ended.seconds > 0 else None,
        "components": values["components"],
        "errors": values["errors"],
        "error": values["error"],
        "notes": values["notes"],
    }
    return json.dumps(_jsonable(summary), indent=2)


def _jsonable(value: Any) -> Any:
    """The value without what JSON cannot say: a user's gauge may return anything."""
    if isinstance(value, Mapping):
        return {str(key): _jsonable(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_jsonable(inner) for inner in value]
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if value is None or isinstance(value, (bool, int, str)):
        return value
    try:
        return _jsonable(float(value))  # a number of another library
    except Exception:
        return repr(value)
