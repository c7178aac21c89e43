"""The present code of the product, by the names of the fixtures: messages between workers, keys of groupings, ids of trees.

See `current_code.py`. Must not know: the contents of the fixtures.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from msgspec import structs

from squall.transport import columns, wire
from squall.transport.control import pack_control, unpack_control
from squall.transport.frames import Batch, Control, CyclePhase, CycleProbe, CycleReply, KeepAlive
from squall.values import Incarnation
from topology_api import Failure
from topology_api.tuples import Source
from worker.routing import key_hash, text_hash
from worker.tracking import ids

# Messages between workers. A message is described by values: {"kind", "header", ...}, so that no class of it needs to stay.

KINDS: Final = {
    "batch": wire.BATCH,
    "end": wire.END,
    "ping": wire.PING,
    "control": wire.CONTROL_FRAME,
    "sign": wire.HEARTBEAT,
}
_CYCLES: Final = {"probe": CycleProbe, "reply": CycleReply, "phase": CyclePhase}


def write_message(message: Mapping[str, Any]) -> list[bytes]:
    """The parts of a message."""
    sender, incarnation, receiver, version, number = message["header"]
    kind = KINDS[message["kind"]]
    body, further = _body_of(message)
    header = wire.Header(kind, sender, Incarnation(*incarnation), Incarnation(*receiver), version, number)
    return [bytes(part) for part in (wire.seal(header, body), *further)]


def _body_of(message: Mapping[str, Any]) -> tuple[bytes, Any]:
    if message["kind"] == "ping":
        return b"", ()
    if message["kind"] == "control":
        return pack_control(_control_of(message), message["received"]), ()
    if message["kind"] == "sign":
        (sent, received, data_sent, data_received), silence, flags, address = message["sign"]
        sign = wire.LinkHeartbeat(sent, received, data_sent, data_received, silence, flags, address)
        return wire.pack_heartbeat(sign), ()
    component, task, stream, fields = message["source"]
    batch = Batch(
        Source(component, task, stream, tuple(fields)), message["target"], list(message["rows"]), message["roots"],
        message["edges"], {position: tuple(pairs) for position, pairs in message["more"].items()},
    )  # fmt: skip
    batch.frame, batch.cycle, batch.ended = message["frame"], message["cycle"], message["kind"] == "end"
    return wire.pack_batch(batch, message["codec"], {(component, stream): message["stream number"]})


def _control_of(message: Mapping[str, Any]) -> Control:
    return Control(
        message["header"][0],
        xors=dict(message["xors"]),
        failures=[(root, Failure(*failure)) for root, failure in message["failures"]],
        grants=dict(message["grants"]),
        keep_alives=[KeepAlive(component, task, tuple(roots)) for component, task, roots in message["held"]],
        flush=message["hurry"],
        cycles=[_CYCLES[kind](*values) for kind, values in message["cycles"]],
        missing=[(first, last) for first, last in message["missing"]],
    )


def read_message(
    parts: Sequence[bytes], codec: str, source: tuple[str, int, str, tuple[str, ...]]
) -> dict[str, Any]:
    """A message from its parts. `source`: the component that any task and stream number means."""
    header, body = wire.open_header(parts)
    kind = next(name for name, number in KINDS.items() if number == header.kind)
    told: dict[str, Any] = {
        "kind": kind,
        "header": [header.sender, header.incarnation, header.receiver, header.version, header.number],
    }
    if kind == "control":
        return told | _control_values(*unpack_control(header.sender, body))
    if kind == "sign":
        sign = wire.unpack_heartbeat(body)
        numbers = sign.control_sent, sign.control_received, sign.data_sent, sign.data_received
        return told | {"sign": [numbers, sign.silence, sign.flags, sign.address]}
    if kind == "ping":
        return told
    asked: list[int] = []

    def find(task: int, number: int) -> Source:
        asked.append(number)
        return Source(source[0], task, source[2], source[3])

    batch = wire.unpack_batch(header, body, parts[1:], codec, find)
    return told | {
        "source": [batch.source.component, batch.source.task, batch.source.stream, tuple(batch.source.fields)],
        "stream number": asked[0],
        "target": batch.target,
        "rows": list(batch.rows),
        "roots": list(batch.roots),
        "edges": list(batch.edges),
        "more": dict(batch.more),
        "frame": batch.frame,
        "cycle": batch.cycle,
        "codec": codec,
    }  # fmt: skip


def reader_of(message: Mapping[str, Any]) -> Callable[[Sequence[bytes]], dict[str, Any]]:
    """A reader of messages like this one."""
    codec, source = (
        message.get("codec", "pickle"),
        message.get("source", ("words", 7, "default", ("f0", "f1"))),
    )
    return lambda parts: read_message(parts, codec, source)


def _control_values(control: Control, received: int) -> dict[str, Any]:
    kinds = {kind: name for name, kind in _CYCLES.items()}
    return {
        "received": received,
        "xors": {task: (list(roots), list(xors)) for task, (roots, xors) in control.xors.items()},
        "failures": [
            (root, (each.reason, each.component, each.task, each.error, each.attempts))
            for root, each in control.failures
        ],
        "grants": dict(control.grants),
        "held": [(each.component, each.task, each.roots) for each in control.keep_alives],
        "hurry": control.flush,
        "cycles": [(kinds[type(each)], structs.astuple(each)) for each in control.cycles],
        "missing": list(control.missing),
    }


def pack_values(codec: str, fields: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> list[bytes]:
    """The values of rows as the parts of a message."""
    return [bytes(part) for part in columns.pack_rows(codec, fields, rows)]


def unpack_values(codec: str, parts: Sequence[bytes], tuples: int, fields: int) -> list[tuple[Any, ...]]:
    """The rows in parts of a message."""
    return [tuple(row) for row in columns.unpack_rows(codec, parts, tuples, fields)]


# The targets of tuples, and the ids of trees

hash_of_key: Callable[[object], int] = key_hash.key_hash
two_choices: Callable[[object, int], tuple[int, int]] = key_hash.two_choices
hash_of_text: Callable[[str], int] = text_hash.text_hash
choice_of_text: Callable[[str, int], int] = text_hash.choice_of
first_root: Callable[[int, int, int], int] = ids.first_root
next_root: Callable[[int], int] = ids.next_root
task_of_root: Callable[[int], int] = ids.task_of
