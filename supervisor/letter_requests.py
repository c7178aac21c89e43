"""The requests of Nimbus about the dead letters of a supervisor's host: `POST /letters/<topology>/<action>` with JSON.

`page` reads, `drop` removes, `resend` hands letters to a task of this host; `disinherit` says that no version sends a letter by
itself any more; `kept` and `accept` move a letter to another host.
Must not know: sockets, who may ask.
"""

from __future__ import annotations

import binascii
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from typing import Any, Final

from msgspec import DecodeError, Struct, ValidationError, json

from squall.api.letters import (
    AcceptRequest,
    DisinheritRequest,
    DroppedAnswer,
    HandOverRequest,
    KeptAnswer,
    KeptRequest,
    LetterIdsRequest,
    LetterPage,
    PageRequest,
)
from squall.dead_letters.contents import MOST_BYTES
from squall.http.json_app import Refusal
from supervisor.host_letters import HostLetters
from topology_api.errors import SquallError

#: The most bytes of a request: a letter with its values as base64 in JSON.
MOST_BODY: Final = 2 * MOST_BYTES


def _page(letters: HostLetters, name: str, asked: PageRequest) -> LetterPage:
    return letters.page(name, asked.after, asked.ids, asked.values)


def _drop(letters: HostLetters, name: str, asked: LetterIdsRequest) -> DroppedAnswer:
    return DroppedAnswer(letters.drop(name, asked.ids))


def _resend(letters: HostLetters, name: str, asked: HandOverRequest) -> LetterIdsRequest:
    return LetterIdsRequest(letters.hand_over(name, asked.ids, asked.task))


def _disinherit(letters: HostLetters, name: str, asked: DisinheritRequest) -> LetterIdsRequest:
    return LetterIdsRequest(letters.disinherit(name, asked.ids, asked.why))


def _kept(letters: HostLetters, name: str, asked: KeptRequest) -> KeptAnswer:
    return KeptAnswer(b64encode(letters.kept(name, asked.id)).decode())


def _accept(letters: HostLetters, name: str, asked: AcceptRequest) -> LetterIdsRequest:
    try:
        data = b64decode(asked.file, validate=True)
    except (binascii.Error, ValueError) as error:
        raise Refusal(400, "BadRequest", f"the letter is not base64: {error}") from None
    return LetterIdsRequest([letters.accept(name, data, asked.task)])


_ACTIONS: Final[Mapping[str, tuple[type[Struct], Callable[[HostLetters, str, Any], Struct]]]] = {
    "page": (PageRequest, _page),
    "drop": (LetterIdsRequest, _drop),
    "resend": (HandOverRequest, _resend),
    "disinherit": (DisinheritRequest, _disinherit),
    "kept": (KeptRequest, _kept),
    "accept": (AcceptRequest, _accept),
}


def answer(letters: HostLetters, name: str, action: str, body: bytes) -> Struct:
    """Carry out a request. Raises `Refusal`."""
    if action not in _ACTIONS:
        raise Refusal(
            404, "NoSuchPage", f"dead letters have no {action!r:.40}: there are {', '.join(_ACTIONS)}"
        )
    shape, carry_out = _ACTIONS[action]
    try:
        return carry_out(letters, name, json.decode(body, type=shape))
    except (ValidationError, DecodeError, RecursionError) as error:
        raise Refusal(400, "BadRequest", f"the request cannot be read: {error}") from None
    except (SquallError, OSError) as error:
        text = f"the dead letters of {name} cannot be used at the moment: {error}"
        raise Refusal(409, "LettersUnavailable", text) from error
