"""Lines about the epochs of a topology with `topology.state.path`: the last commit, and what is waited for.

Must not know: terminals, colours, clusters, this machine's clock.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from squall.epoch_status import EpochStatus, EpochWait
from squall.status import ComponentStatus
from squall_cli.terminal import formats
from squall_cli.terminal.lines import Line, harmless

#: The most tasks that a line names.
MOST_NAMED: Final = 3
HEAD_WIDTH: Final = 7


def commit_text(epoch: EpochStatus) -> str:
    """Return the last commit in a sentence: its number and age, how long its epoch took to end, its size, its slowest task."""
    parts = ["no epoch is committed yet"]
    if epoch.number:
        parts = [f"epoch {epoch.number}"]
        if epoch.age is not None:
            quiet = ", and nothing has happened since" if epoch.quiet else ""
            parts = [f"epoch {epoch.number} committed {formats.duration(epoch.age)} ago{quiet}"]
    if epoch.on_trial:
        parts.append("commits wait for the end of the trial")
    if epoch.duration is not None:
        longest = f" (at most {formats.latency(epoch.longest)} lately)" if epoch.longest else ""
        parts.append(f"took {formats.latency(epoch.duration)}{longest}")
    if epoch.bytes is not None:
        parts.append(formats.in_bytes(epoch.bytes))
    if epoch.slowest is not None:
        slow = epoch.slowest
        parts.append(f"slowest task {slow.component}[{slow.task}] with {formats.latency(slow.secs)}")
    return harmless("; ".join(parts))


def short_commit(epoch: EpochStatus) -> str:
    """Return the number and the age of the last commit."""
    said = "no epoch committed"
    if epoch.number:
        said = f"epoch {epoch.number}" + ("" if epoch.age is None else f" {formats.span(epoch.age)} ago")
    return f"{said}, commits wait for the trial" if epoch.on_trial else said


def had_ended(epoch: EpochStatus | None, components: Mapping[str, ComponentStatus]) -> str:
    """Return that the input of a COMPLETED topology had been read to its end before it started; "" if it had not."""
    if epoch is None or not epoch.number or epoch.began != epoch.number:
        return ""
    if any(each.emitted or each.executed for each in components.values()):
        return ""  # an earlier process of this version has worked
    return f"there was nothing to do: its input had been read to its end by epoch {epoch.number}"


def contents_text(components: Mapping[str, ComponentStatus]) -> str:
    """Return the keys of each component, its parked tuples, and the uncommitted tuples of each spout; "" if there are none."""
    parts = [
        f"{name} {formats.plural(each.keys, 'key')}"
        for name, each in components.items()
        if each.keys is not None
    ]
    parts += [f"{name} {each.parked:,} parked" for name, each in components.items() if each.parked]
    parts += [
        f"{name} {each.uncommitted:,} uncommitted" for name, each in components.items() if each.uncommitted
    ]
    return harmless(", ".join(parts))


def rewinds_text(epoch: EpochStatus) -> str:
    """Return how often all tasks have returned to the last commit, when they did so last, and why; "" if they never did."""
    if not epoch.rewinds:
        return ""
    when = ""
    if epoch.rewound is not None and formats.tells_day(epoch.rewound):
        when = f" at {formats.moment(epoch.rewound)}"
    why = f": {epoch.rewind_reason}" if epoch.rewind_reason else ""
    last = ", the last" if epoch.rewinds > 1 else ""
    return harmless(" ".join(f"{formats.plural(epoch.rewinds, 'rewind')}{last}{when}{why}".split()))


def epoch_lines(
    epoch: EpochStatus | None, components: Mapping[str, ComponentStatus], width: int, folder: str = ""
) -> list[Line]:
    """Return the lines of `squall status`; none if the topology has no epochs. `folder`: where its state is; "": not known."""
    if epoch is None:
        return []
    room = width - HEAD_WIDTH - 2
    texts = (
        ("EPOCH", formats.cropped(commit_text(epoch), room)),
        ("STATE", formats.cropped(contents_text(components), room)),
        ("KEPT IN", harmless(folder)),  # whole: to be copied
        ("REWINDS", formats.cropped(rewinds_text(epoch), room)),
    )
    return [((f"{head:<{HEAD_WIDTH}}", "head"), ("  ", ""), (text, "")) for head, text in texts if text]


def wait_sentences(epoch: EpochStatus | None, shown: Callable[[str], str] = str) -> dict[str, str]:
    """Return a sentence for each thing that is waited for, by a key that stays the same while the wait goes on. `shown`: how a
    text with a line of the user's code is shown."""
    found: dict[str, str] = {}
    if epoch is None:
        return found
    for wait in epoch.waits:
        if wait.what == "store":
            text = f"the topology waits for the state store{formats.since(wait.since)}: {shown(wait.why)}"
            found.setdefault("store", _sentence(text))
        elif wait.what == "commit":
            text = f"{_task(wait)} has emitted nothing{formats.since(wait.since)}: {shown(wait.why)}"
            found[f"commit {wait.task}"] = _sentence(text)
    goals = (
        ("alignment", "the topology waits for alignment"),
        ("rewind", f"the topology returns to epoch {epoch.number}, and has waited"),
    )
    for what, goal in goals:
        waits = [wait for wait in epoch.waits if wait.what == what]
        if waits:
            found[what] = _sentence(
                f"{goal}{formats.since(waits[0].since)}: {_tasks(waits, epoch.more_waits)}"
            )
    return found


def _tasks(waits: Sequence[EpochWait], more: int) -> str:
    named = [f"{_task(wait)}: {wait.why}" if wait.why else _task(wait) for wait in waits[:MOST_NAMED]]
    others = len(waits) - len(named) + more
    if others:
        named.append(f"and {formats.plural(others, 'more task')}")
    return "; ".join(named)


def _task(wait: EpochWait) -> str:
    return f"{wait.component}[{wait.task}]"


def _sentence(text: str) -> str:
    return harmless(" ".join(text.split()))
