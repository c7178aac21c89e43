"""Which task sends a dead letter again, or why none can.

The spout's component must run, with the stream and the fields of the letter. A task on the host that holds the letter takes it.
If the component has tasks on other hosts only, the letter moves there, unless its values are pickled: pickles leave no host.
A letter of a bolt goes to the bolt, first to the task that gave it up: if another one owns its key now, it passes it on.
Must not know: HTTP, files, values.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from squall.api.letters import LetterEntry
from squall.cluster.records import Placement, TopologyRecord
from squall.field_names import missing_fields, of_which_no

#: The codec whose values may move to another host.
MOVABLE: Final = "msgpack"


class PassingReason(str):
    """Why a letter cannot be sent again now; it can be when tasks run again, or a host is back."""


class Recipient(msgspec.Struct, frozen=True):
    """The task that sends a letter again, and its supervisor."""

    supervisor: str
    task: int


class SpoutTasks(msgspec.Struct, frozen=True):
    """The tasks of a spout, or of a bolt, that can send letters again, by supervisor; or `why` there are none."""

    tasks: Mapping[str, Sequence[int]]
    why: str = ""

    def only(self, task: int) -> SpoutTasks:
        """Return one task alone, if it is among these."""
        found = {supervisor: [task] for supervisor, tasks in self.tasks.items() if task in tasks}
        return SpoutTasks(found, self.why) if found else self


def spout_tasks(
    record: TopologyRecord | None, name: str, component: str, placements: Iterable[Placement]
) -> SpoutTasks:
    """Return the tasks of a component that run. `record`: the topology that has the letter's name now."""
    if record is None:
        return SpoutTasks({}, f"there is no topology {name} at the moment: submit it first")
    if record.state.asks not in ("run", "pause"):
        return SpoutTasks({}, f"{name} is {record.state}, so no task of it takes letters")
    own = {task for task, owner, _ in record.tasks if owner == component}
    if not own:
        return SpoutTasks({}, f"{name} has no component {component} any more")
    if not (running := own - set(record.finished)):
        return SpoutTasks({}, f"the source of {component} has ended: submit {name} again first")
    found: dict[str, list[int]] = {}
    for place in placements:
        if mine := sorted(running.intersection(place.tasks)):
            found.setdefault(place.supervisor, []).extend(mine)
    if not found:
        return SpoutTasks({}, PassingReason(f"no task of {component} runs at the moment: try again soon"))
    return SpoutTasks(found)


def of_bolt(letter: LetterEntry, components: Mapping[str, Mapping[str, Any]]) -> bool:
    """Return whether a letter is of a bolt, by the components as they are described now."""
    described = components.get(letter.component)
    return (
        described is not None and described["kind"] == "bolt" and bool(letter.source or not letter.message_id)
    )


def problem_at_bolt(letter: LetterEntry, components: Mapping[str, Mapping[str, Any]]) -> str:
    """Return why a letter cannot enter its bolt again; "" if it can, as far as descriptions say."""
    if not letter.codec:
        return f"its values were not kept: {letter.why_no_values or 'the reason is unknown'}"
    if not letter.source:  # a timer, or of an earlier release: its task looks
        return ""
    read = components[letter.component]["inputs"]
    if not any((each["source"], each["stream"]) == (letter.source, letter.stream) for each in read):
        return f"{letter.component} reads no stream {letter.stream!r} of {letter.source} any more"
    then, now = letter.fields, list(components[letter.source]["outputs"][letter.stream]["fields"])
    if not (missing := missing_fields(then, now)):
        return ""
    return (
        f"the fields of stream {letter.stream!r} of {letter.source} are ({', '.join(now)}) now, and were ({', '.join(then)}): "
        f"the letter has no {of_which_no(missing)}"
    )


def problem_with(letter: LetterEntry, described: Mapping[str, Any] | None) -> str:
    """Return why a letter cannot be emitted by this component, as it is described now; "" if it can."""
    if not letter.codec:
        return f"its values were not kept: {letter.why_no_values or 'the reason is unknown'}"
    if described is None or described["kind"] != "spout":
        return f"{letter.topology} has no spout {letter.component} any more"
    output = described["outputs"].get(letter.stream)
    if output is None:
        return f"{letter.component} has no stream {letter.stream!r} any more"
    if list(output["fields"]) != letter.fields:
        now, then = ", ".join(output["fields"]), ", ".join(letter.fields)
        return (
            f"the fields of stream {letter.stream!r} of {letter.component} are ({now}) now, and were ({then})"
        )
    return ""


def recipient_of(
    letter: LetterEntry, number: int, holder: str, tasks: SpoutTasks, reachable: Collection[str]
) -> Recipient | str:
    """Return the task that sends a letter again, or why none can. `number`: the letter's place in the request, so that letters
    are spread over the tasks. `holder`: the supervisor that has the letter. `reachable`: supervisors that can be asked."""
    if tasks.why:
        return tasks.why
    if letter.sent_to is not None and letter.sent_to in tasks.tasks.get(holder, ()):
        return Recipient(holder, letter.sent_to)
    if mine := tasks.tasks.get(holder):
        return Recipient(holder, mine[number % len(mine)])
    others = [Recipient(each, task) for each, owned in sorted(tasks.tasks.items()) for task in owned]
    where = ", ".join(sorted(tasks.tasks))
    if letter.codec != MOVABLE:
        return (
            f"its values are pickled, so they do not leave supervisor {holder}, and {letter.component} runs on {where} only:"
            " rebalance the topology so that a task of the spout runs there"
        )
    others = [each for each in others if each.supervisor in reachable]
    if not others:
        return PassingReason(f"{letter.component} runs on {where}, which is away")
    return others[number % len(others)]
