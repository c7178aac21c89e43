"""`Spout.ack_many`: whether a spout has it, and its call.

Must not know: trees, when acks are due.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from topology_api import Spout

if TYPE_CHECKING:
    from worker.tasks.spout import SpoutTask


def acks_by_many(instance: Spout) -> Callable[[list[Any]], Any] | None:
    """Return the `ack_many` of a spout, unless it has none, or has overridden `ack` since."""
    owners = [each for each in (instance, *type(instance).__mro__) if {"ack", "ack_many"} & vars(each).keys()]
    has_many = "ack_many" in vars(owners[0]) and owners[0] is not Spout
    return instance.ack_many if has_many else None


def call_ack_many(task: SpoutTask, ids: list[Any]) -> None:
    """Call `ack_many` for these message ids. It cannot emit: there may be no room for what it emits, and no end to it."""
    task.acked += len(ids)
    first = ids[0] if ids else None  # the user's method may change the list
    assert task.ack_many is not None
    emitter = task.emitter
    owner, why_not, acking = emitter.owner, emitter.why_not, task.acking
    if owner:
        emitter.close_for("ack_many() must not emit: emit in next_tuple")
    task.acking = True
    try:
        task.ack_many(ids)
    except BaseException as error:
        task.final_call_raised("ack_many", error, first)
    finally:
        emitter.owner, emitter.why_not, task.acking = owner, why_not, acking
