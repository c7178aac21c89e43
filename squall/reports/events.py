"""What happened to a topology or to one of its workers: one typed record for all events.

Supervisors and Nimbus make events, Nimbus stores the latest of each topology, the HTTP API and the command line
show them. Code decides by the fields; only `squall.reports.event_text` makes sentences for people.
Must not know: sentences, who keeps events, who shows them.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct
from msgspec.structs import replace

from squall.exact_structs import build_type_info

#: Bounded, so that neither NaN nor infinity is accepted.
Seconds = Annotated[float, Meta(ge=0, le=1e12)]
CauseKind = Literal["killed", "reported", "signal", "status", "unknown"]
Kind = Literal[
    "died", "not_started", "waits", "host_lost", "file_lost", "rolled_back", "replacement_gone", "unreadable", "text"
]  # fmt: skip


class Cause(Struct, frozen=True, omit_defaults=True):
    """Why a worker process ended.

    | kind | meaning | fields |
    |---|---|---|
    | killed | its supervisor killed it | `reason`: why |
    | reported | it ended by itself and said why | `status`, `reason` |
    | signal | a signal ended it | `signal`; `core`; `oom`, for SIGKILL |
    | status | it exited without saying why | `status` |
    | unknown | its exit status is lost | |
    """

    kind: CauseKind
    reason: str = ""
    status: int | None = None
    signal: int | None = None
    #: Whether it dumped core.
    core: bool = False
    #: Whether the kernel's OOM killer did it; None: unknown.
    oom: bool | None = None
    #: The last lines that it wrote, where they may explain its end.
    output: tuple[str, ...] = ()


class Event(Struct, frozen=True, omit_defaults=True):
    """One thing that happened.

    | kind | meaning | fields besides `topology`, `worker` and `pid` |
    |---|---|---|
    | died | a worker process ended | `cause`, `attempt`, `within_secs`, `retry_in_secs`, `over` |
    | not_started | a worker could not be started | `part`, `error`, and those of a retry as above |
    | waits | a worker waits for something that its host prepares | `part` |
    | host_lost | a host was given up | `host`, `workers`: those that ran there, `within_secs`: of silence |
    | file_lost | no Nimbus has a file of the topology any more | `part`: its kind, `file`: its SHA-256 |
    | rolled_back | the previous version has the name again | `version`: that failed, `successor`, `error`: why |
    | replacement_gone | a version that waited to replace another one is gone | `version`: that stays |
    | unreadable | a version of the topology cannot be read in the store | `part`: which, `error` |
    | text | a daemon of an earlier release said so | `error`: its sentence |
    """

    kind: Kind
    #: When Nimbus got it, in seconds since 1970; 0.0 before that.
    time: Seconds = 0.0
    topology: str = ""
    worker: str = ""
    pid: int | None = None
    cause: Cause | None = None
    #: not_started and waits: "bundle", "code", "environment" or "" (the process itself); unreadable: "replacement" or
    #: "replaced"; file_lost: "code", "wheels" or "requirements".
    part: str = ""
    error: str = ""
    #: How many deaths, or failed preparations, this is in a row.
    attempt: int = 0
    #: In how many seconds they happened.
    within_secs: Seconds = 0.0
    #: Seconds from the event until the worker is started again: 0.0: at once, None: never. Not a moment, since the clocks of
    #: two hosts may differ.
    retry_in_secs: Seconds | None = None
    #: Whether the worker has been up since.
    over: bool = False
    host: str = ""
    workers: tuple[str, ...] = ()
    file: str = ""
    version: str = ""
    successor: str = ""


def subject(event: Event) -> Event:
    """Return what events that repeat each other have in common: the event without its moment, process and attempt."""
    cause = None if event.cause is None else replace(event.cause, output=())
    # Of a text of several lines the rest is output.
    return replace(
        event, time=0.0, pid=None, cause=cause, error=event.error.partition("\n")[0], attempt=0, within_secs=0.0,
        retry_in_secs=None, over=False,
    )  # fmt: skip


build_type_info(Event)
