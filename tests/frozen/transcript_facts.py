"""Facts for transcripts: the messages between machines, without texts for people and without random values.

Values of the store by their frozen fields, messages without the ids of edges (two cores draw them differently), orders and
flags of workers. Must not know: how runs are made.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from tests.frozen.current_wire import read_message
from tests.frozen.frozen_data import load
from tests.frozen.plain_values import FIELDS

#: Fields with texts for people: only their presence is a fact.
SAID: Final = frozenset({"error", "crash", "note"})
#: Random fields, and those that get more entries with each new option.
LEFT_OUT: Final = frozenset({"public_key", "versions", "component_confs", "resources"})
RECKONED_WITH: Final = ("topology.message.timeout.secs", "topology.worker.timeout.secs", "topology.workers")
#: Below these are seals, and processes' reports about themselves: only that they are written is a fact.
DRAWN: Final = ("/keys/", "/presence/", "/blobs/", "/cluster")


def _fields_of_then() -> dict[str, frozenset[str]]:
    found: dict[str, frozenset[str]] = {}
    for frozen in load("records").values():
        found[frozen["kind"]] = frozenset(frozen["value"][FIELDS])
    return found


FIELDS_OF_THEN: Final = _fields_of_then()


def of_value(path: str, data: bytes | None) -> Any:
    """The value at a path of the store; None without one."""
    if data is None:
        return None
    if path.startswith(DRAWN):
        return "drawn"
    try:
        body = json.loads(data)
    except ValueError:
        return ascii(data)
    known = FIELDS_OF_THEN.get(body.get("kind", "")) if isinstance(body, dict) else None
    if known is None:
        return body
    return {name: _of_field(name, body[name]) for name in sorted(known - LEFT_OUT) if name in body}


def _of_field(name: str, value: Any) -> Any:
    if name in SAID:
        return bool(value)
    if name == "notes":
        return [[note["time"], note["worker"], note["waits"]] for note in value]
    if name == "conf":
        return [value.get(each) for each in RECKONED_WITH]
    return value


def of_orders(orders: Any) -> list[Any]:
    """The orders of a worker."""
    placements = [
        [place.worker, place.supervisor, place.slot, place.incarnation, place.tasks]
        for place in orders.placements
    ]
    return [
        orders.number, orders.topology_id, orders.worker, orders.incarnation, orders.asked, orders.version, placements,
        dict(orders.addresses), orders.tasks, orders.finished, orders.ports, orders.lease_secs, orders.seed,
    ]  # fmt: skip


def of_flags(flags: Any) -> list[Any]:
    """The report of a worker."""
    return [
        flags.asked, flags.version, flags.opened, flags.ended, flags.drained, flags.stopped, bool(flags.crash),
        flags.finished, flags.address,
    ]  # fmt: skip


def of_message(parts: Sequence[bytes], codec: str, fields: tuple[str, ...]) -> Any:
    """A message from one worker to another; `fields`: of every stream."""
    told = read_message(list(map(bytes, parts)), codec, ("", 0, "", fields))
    for name in ("edges", "codec", "source"):
        told.pop(name, None)
    if "rows" in told:
        told["rows"] = ascii(told["rows"])
        told["more"] = {at: [root for root, _ in pairs] for at, pairs in told["more"].items()}
    if "xors" in told:
        told["xors"] = {task: roots for task, (roots, _) in told["xors"].items()}
        told["failures"] = [
            [root, reason, component, task, error is None, attempts]
            for root, (reason, component, task, error, attempts) in told["failures"]
        ]
    return told


def line_of(moment: float, what: str, *facts: object) -> str:
    """A line of a transcript."""
    return f"{moment:.6f} {what} {json.dumps(facts, sort_keys=True, default=_plain, separators=(',', ':'))}"


def _plain(value: object) -> Any:
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    if isinstance(value, Mapping):
        return dict(value)
    return ascii(value)
