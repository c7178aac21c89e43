"""Events of a topology or of one of its workers: one typed record for all kinds of events.

Supervisors and Nimbus make events, Nimbus stores the latest of each topology, the HTTP API and the command line
show them. Code decides by the fields of an event; only `squall.reports.event_text` makes sentences for people.
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
    "died", "not_started", "waits", "host_lost", "file_lost", "rolled_back", "handed_over", "replacement_gone", "unreadable",
    "text",
]  # fmt: skip


class Cause(Struct, frozen=True, omit_defaults=True):
    """The reason why a worker process ended.

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
    #: Whether the process dumped core.
    core: bool = False
    #: Whether the kernel's OOM killer sent the signal; None: unknown.
    oom: bool | None = None
    #: The last lines of the process's output, where they may explain its end.
    output: tuple[str, ...] = ()


class Event(Struct, frozen=True, omit_defaults=True):
    """One thing that happened.

    | kind | meaning | fields besides `topology`, `worker` and `pid` |
    |---|---|---|
    | died | a worker process ended | `cause`, `attempt`, `within_secs`, `retry_in_secs`, `over` |
    | not_started | a worker could not be started | `part`, `error`, `attempt`, `within_secs`, `retry_in_secs`, `over` |
    | waits | a worker waits for something that its host prepares | `part` |
    | host_lost | a host was given up | `host`; `workers` (that ran there); `within_secs` (how long it was silent) |
    | file_lost | no Nimbus has a file of the topology any more | `part` (the kind of file); `file` (its SHA-256) |
    | rolled_back | the previous version has the name again | `version` (that failed); `successor`; `error` (why); `count` |
    | handed_over | its pending tuples were handed to `successor`, or are kept: `error` | `version`; `component`; `count` |
    | replacement_gone | a version that waited to replace another version is gone | `version` (that stays) |
    | unreadable | a version of the topology cannot be read in the store | `part` (which version); `error` |
    | text | a sentence from a daemon of an earlier release | `error` (the sentence) |
    """

    kind: Kind
    #: The time at which Nimbus got the event, in seconds since 1970; 0.0 until Nimbus gets it.
    time: Seconds = 0.0
    topology: str = ""
    worker: str = ""
    pid: int | None = None
    cause: Cause | None = None
    #: not_started and waits: "bundle", "code", "environment" or "" (the process itself); unreadable: "replacement" or
    #: "replaced"; file_lost: "code", "wheels" or "requirements".
    part: str = ""
    error: str = ""
    #: The number of deaths or failed preparations in a row, including this one.
    attempt: int = 0
    #: The seconds within which these deaths or failures happened.
    within_secs: Seconds = 0.0
    #: Seconds from the event until the worker is started again (0.0: at once; None: never). This is a duration and not a time
    #: of day, since the clocks of two hosts may differ.
    retry_in_secs: Seconds | None = None
    #: Whether the worker has been up since the event.
    over: bool = False
    host: str = ""
    workers: tuple[str, ...] = ()
    file: str = ""
    version: str = ""
    successor: str = ""
    component: str = ""
    #: rolled_back: how many tuples were pending that Squall has kept; handed_over: how many of these.
    count: Annotated[int, Meta(ge=0)] = 0


def subject(event: Event) -> Event:
    """Return a key that is the same for events that repeat each other: the event without its time, process and attempt."""
    cause = None if event.cause is None else replace(event.cause, output=())
    # Only the first line of `error` is compared: further lines are output.
    return replace(
        event, time=0.0, pid=None, cause=cause, error=event.error.partition("\n")[0], attempt=0, within_secs=0.0,
        retry_in_secs=None, over=False,
    )  # fmt: skip


build_type_info(Event)
