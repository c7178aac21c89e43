"""The structs of dead letters over HTTP: between a command and Nimbus, and between Nimbus and a supervisor.

Must not know: paths, handlers, files.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from msgspec import Meta, Struct

#: The most letters of one request that changes them.
MOST_IDS: Final = 100
LetterId = Annotated[str, Meta(pattern="^[0-9a-f]{4,32}$")]
LetterIds = Annotated[
    list[LetterId], Meta(max_length=MOST_IDS, description="The ids of letters of this host.")
]


# From commands to Nimbus


class LetterQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Selects a page of a host's dead letters."""

    after: Annotated[str, Meta(description="The `next` of the page before.")] = ""
    id: Annotated[str, Meta(description="Only the letter with this id.")] = ""
    values: Annotated[Literal["yes", "no"], Meta(description="Whether the letters have their values.")] = (
        "yes"
    )


class LetterIdsRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Letters to send again, or to drop."""

    ids: LetterIds


# From Nimbus


class LetterHost(Struct, frozen=True):
    """A host that may hold dead letters of a topology. `letters`: how many, counted some seconds ago; `away`: its supervisor is
    not registered, so the letters cannot be read now."""

    supervisor: str
    host: str
    letters: int
    away: bool


class LetterHostsAnswer(Struct, frozen=True):
    """The hosts to ask for dead letters of a topology."""

    topology: str
    hosts: list[LetterHost]


class LetterFailure(Struct, frozen=True):
    """The last failure of a letter's tuple. `attempts`: since it was emitted, or sent again."""

    reason: str
    component: str | None = None
    task: int | None = None
    error: str | None = None
    attempts: int = 1


class LetterEntry(Struct, frozen=True, kw_only=True):
    """A tuple that a spout gave up. `values`: for each of `fields` the value, or its text if the position is in `as_text`; null
    if the query asked for no values. `message_id`: its text. `attempts`: all of them. Times are in seconds since 1970;
    `expires_at`: when the letter is removed (null: never). `acked`: whether a dead-letter bolt acked it. `resent`: how often it
    was sent again; `sent_to`: the task that is sending it again now. `note`: why it could not be sent again. `codec`: how the
    values are kept, `pickle` values are never read outside workers; "": they are not kept, for the reason in
    `why_no_values`. `target`: the task of a direct emission, or 0. `source`: of a
    letter of a bolt the component that emitted the tuple, "" for a timer. `heir`: of a tuple that was pending at a
    rollback, the version that is to send it, or ""."""

    id: str
    topology: str
    topology_id: str
    component: str
    task: int
    stream: str
    message_id: str
    fields: list[str]
    values: list[Any] | None = None
    as_text: list[int] = []
    failure: LetterFailure
    attempts: int
    emitted_at: float
    given_up_at: float
    expires_at: float | None = None
    acked: bool = False
    resent: int = 0
    sent_to: int | None = None
    target: int = 0
    source: str = ""
    note: str = ""
    codec: str = ""
    why_no_values: str = ""
    heir: str = ""


class LetterPage(Struct, frozen=True):
    """Some letters of one host, the oldest first. `next`: where the next page begins; null: this is the last. `damaged`: what
    cannot be read. A letter that is sent again while pages are read may be on two of them."""

    letters: list[LetterEntry]
    next: str | None
    damaged: list[str]


class UnsentLetter(Struct, frozen=True):
    """A letter that was not sent again, and why; it stays. `passes`: whether it is gone, or can be sent later."""

    id: str
    why: str
    passes: bool = False


class ResentAnswer(Struct, frozen=True):
    """The letters that were handed to tasks of the spout, which emit them at once, and those that were not."""

    sent: list[str]
    unsent: list[UnsentLetter]


class DroppedAnswer(Struct, frozen=True):
    """The letters that were removed."""

    dropped: list[str]


# From Nimbus to a supervisor, all with POST


class PageRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """A page: the letters after a place, or the letters with these ids."""

    after: str = ""
    ids: LetterIds | None = None
    values: bool = True


class HandOverRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Letters that a task of this host sends again."""

    ids: LetterIds
    task: Annotated[int, Meta(ge=1, le=999_999_999)]


class DisinheritRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Letters that no version is to send by itself any more, and why."""

    ids: LetterIds
    why: str


class KeptRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """A letter with its encoded values, for another host."""

    id: LetterId


class KeptAnswer(Struct, frozen=True):
    """The bytes of a file with one letter, as base64."""

    file: str


class AcceptRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """A letter of another host, as the bytes of a file, that a task of this host sends again."""

    file: str
    task: Annotated[int, Meta(ge=1, le=999_999_999)]
