"""Encode and decode control frames: XORs and their roots as raw columns, the rest by msgpack with a closed set of types.

No bytes can make the receiver run code: a value that does not fit the types raises `BadFrame`.
Must not know: headers, links, sender and receiver.
"""

from __future__ import annotations

import struct
from typing import Any, Final

import msgspec

from squall.transport.errors import BadFrame
from squall.transport.frames import (
    MOST_CLAIMED,
    Control,
    CycleMessage,
    CyclePhase,
    CycleProbe,
    CycleReply,
    FailureClaim,
    KeepAlive,
    More,
)
from squall.transport.id_columns import from_raw, raw
from topology_api import Failure

#: number of control frames received, number of tables of XORs, length of the rest.
HEAD: Final = struct.Struct("<QHI")
XOR_HEAD: Final = struct.Struct("<II")

_PROBE, _REPLY, _PHASE = range(3)

#: The reason of an entry among the failures that is a claim. Its root is that of no tree, so earlier releases ignore it; its
#: `attempts` holds the tuples, the verdict and, in units of `_CLAIM_STEP`, the age in milliseconds. The verdict is sent as
#: earlier releases know it, too.
_CLAIM: Final = "claim"
_VERDICT: Final = MOST_CLAIMED + 1
_CLAIM_STEP: Final = 2 * _VERDICT

#: A failure: root, reason, component, task, error, attempts.
_Failed = tuple[int, str, str | None, int | None, str | None, int]
_HeldHere = tuple[str, int, list[int]]
#: Kind, cycle, round or phase; a reply also has worker, idle, sent, executed, phase.
_Cycle = tuple[int, int, int, str, bool, int, int, int]
_Rest = tuple[list[_Failed], dict[int, int], list[_HeldHere], bool, list[_Cycle], list[tuple[int, int]]]

#: The same with the sender's rewind number and messages of epochs: only topologies with epochs send it.
_RestOfEpochs = tuple[
    list[_Failed],
    dict[int, int],
    list[_HeldHere],
    bool,
    list[_Cycle],
    list[tuple[int, int]],
    int,
    list[bytes],
]
#: The first byte of an array of eight.
_EIGHT: Final = 0x98

_ENCODER: Final = msgspec.msgpack.Encoder()
_REST: Final = msgspec.msgpack.Decoder(_Rest)
_REST_OF_EPOCHS: Final = msgspec.msgpack.Decoder(_RestOfEpochs)
_MORE: Final = msgspec.msgpack.Decoder(dict[int, list[tuple[int, int]]])


def pack_control(control: Control, received: int) -> bytes:
    """Return the body of a control frame; `received`: number of control frames received from the peer."""
    rest = _rest_of(control)
    packed = _ENCODER.encode(rest) if any(rest) else b""
    pieces = [HEAD.pack(received, len(control.xors), len(packed))]
    for spout, (roots, xors) in control.xors.items():
        pieces += (XOR_HEAD.pack(spout, len(roots)), raw(roots), raw(xors))
    pieces.append(packed)
    return b"".join(pieces)


def unpack_control(sender: str, body: memoryview) -> tuple[Control, int]:
    """Return the control frame in a body, and the number of control frames its sender has received."""
    if len(body) < HEAD.size:
        raise BadFrame("a control frame without a head")
    received, tables, size = HEAD.unpack_from(body)
    at = HEAD.size
    control = Control(sender)
    for _ in range(tables):
        if len(body) - at < XOR_HEAD.size:
            raise BadFrame("a control frame that ends in its XORs")
        spout, count = XOR_HEAD.unpack_from(body, at)
        at += XOR_HEAD.size
        if len(body) - at < 16 * count:
            raise BadFrame("a control frame that ends in its XORs")
        middle, end = at + 8 * count, at + 16 * count
        control.xors[spout] = from_raw(body[at:middle]), from_raw(body[middle:end])
        at = end
    if len(body) - at != size:
        raise BadFrame("a control frame whose lengths do not add up")
    if size:
        try:
            rest = body[at:]
            if rest[0] == _EIGHT:
                *rest_of_all, control.rewind, control.epochs = _REST_OF_EPOCHS.decode(rest)
                _fill(control, tuple(rest_of_all))
            else:
                _fill(control, _REST.decode(rest))
        except (msgspec.MsgspecError, ValueError) as error:
            raise BadFrame(f"a control frame that cannot be decoded: {error}") from error
    return control, received


def pack_more(more: More) -> bytes:
    """Encode the further trees of a batch's tuples; empty if there are none."""
    return _ENCODER.encode(more) if more else b""


def unpack_more(data: memoryview) -> More:
    """Decode the further trees of a batch's tuples."""
    try:
        found = _MORE.decode(data)
    except (msgspec.MsgspecError, ValueError) as error:
        raise BadFrame(f"a batch whose trees cannot be decoded: {error}") from error
    return {position: tuple(pairs) for position, pairs in found.items()}


def _rest_of(control: Control) -> tuple[Any, ...]:
    failures: list[_Failed] = [
        (root, failure.reason, failure.component, failure.task, _sound(failure.error), failure.attempts)
        for root, failure in control.failures
    ]
    # A keep-alive without a component names a task that is down; earlier releases ignore it.
    held = [(kept.component, kept.task, kept.roots) for kept in control.keep_alives]
    if control.down:
        held += [("", task, (root,)) for task, root in control.down]
    if control.claims:
        failures += [_packed_claim(*claim) for claim in control.claims]
        held += [("", task, (root,)) for task, root, claim in control.claims if claim.is_down]
    cycles = [_packed_cycle(message) for message in control.cycles]
    rest = (failures, control.grants, held, control.flush, cycles, control.missing)
    return (*rest, control.rewind, control.epochs) if control.rewind or control.epochs else rest


def _fill(control: Control, rest: _Rest) -> None:
    """Set what was received. A control frame is new, so most of its lists may stay the empty ones that it has."""
    failures, control.grants, held, control.flush, cycles, control.missing = rest
    if failures:
        control.failures = [(failed[0], Failure(*failed[1:])) for failed in failures if failed[1] != _CLAIM]
        control.claims = [_unpacked_claim(failed) for failed in failures if failed[1] == _CLAIM]
    if held:
        control.keep_alives = [
            KeepAlive(component, task, tuple(roots)) for component, task, roots in held if component
        ]
        claimed = {(task, root) for task, root, _ in control.claims}
        down = [(task, roots[0]) for component, task, roots in held if not component and roots]
        control.down = [entry for entry in down if entry not in claimed]
    if cycles:
        control.cycles = [_unpacked_cycle(message) for message in cycles]


def _sound(text: str | None) -> str | None:
    """Escape characters that UTF-8 cannot encode: a user's error may hold half a surrogate pair."""
    return None if text is None else text.encode("utf-8", "backslashreplace").decode()


def _packed_claim(task: int, root: int, claim: FailureClaim) -> _Failed:
    numbers = max(0, round(1000 * claim.age)) * _CLAIM_STEP + min(claim.tuples, MOST_CLAIMED)
    numbers += _VERDICT if claim.is_down else 0
    return root, _CLAIM, None, task, _sound(claim.error), numbers


def _unpacked_claim(failed: _Failed) -> tuple[int, int, FailureClaim]:
    root, _, _, task, error, numbers = failed
    if task is None or numbers < 0:
        raise ValueError("a claim that names no task, or has a negative age")
    milliseconds, rest = divmod(numbers, _CLAIM_STEP)
    return task, root, FailureClaim(rest % _VERDICT, milliseconds / 1000, error, rest >= _VERDICT)


def _packed_cycle(message: CycleMessage) -> _Cycle:
    if isinstance(message, CycleProbe):
        return _PROBE, message.cycle, message.round, "", False, 0, 0, 0
    if isinstance(message, CyclePhase):
        return _PHASE, message.cycle, message.phase, "", False, 0, 0, 0
    numbers = message.sent, message.executed, message.phase
    return _REPLY, message.cycle, message.round, message.worker, message.idle, *numbers


def _unpacked_cycle(message: _Cycle) -> CycleMessage:
    kind, cycle, number, worker, idle, sent, executed, phase = message
    if kind == _PROBE:
        return CycleProbe(cycle, number)
    if kind == _PHASE:
        return CyclePhase(cycle, number)
    if kind == _REPLY:
        return CycleReply(cycle, number, worker, idle, sent, executed, phase)
    raise ValueError(f"a cycle message of unknown kind {kind}")
