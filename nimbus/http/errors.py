"""What an error is over HTTP: its status, its kind, and the JSON that says so. One table, the first row that fits counts.

Must not know: who raises what, requests.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from nimbus.clearing import BadTopology
from nimbus.control import NotLeading
from nimbus.draining import NoSuchSupervisor
from nimbus.files import BadFile, FileMissing, FileTooLarge
from nimbus.lifecycle import IllegalTransition
from nimbus.submission import BadRequest, TooLarge, VersionMismatch
from nimbus.views import NoSuchPart
from squall.archives import BadArchive
from squall.cluster.records import BadRecord
from squall.cluster.store import Deposed, StoreError, TooBig, Unavailable
from squall.http_client import Refused, Unreachable
from squall.rounds import NotInTime, Stopped
from topology_api.errors import InvalidConfig, InvalidTopology, NameTaken, NoSuchTopology, SquallError

#: Seconds after which it is worth asking again, for what passes by itself.
RETRY_AFTER: Final = 1


class Unauthorized(SquallError):
    """No credentials, false ones, or such that do not allow this."""


class NoTokenYet(SquallError):
    """This Nimbus does not know the operators' token yet."""


class NoLeader(SquallError):
    """Nobody leads at the moment, so nothing can be changed."""


class NoSuchPage(SquallError):
    """A path that leads nowhere."""


class WrongMethod(SquallError):
    """A path that is there, with a method that is not."""


class NoSpace(SquallError):
    """The disk of this Nimbus is full, or refuses."""


@dataclass(frozen=True)
class Row:
    status: int
    kind: str
    errors: tuple[type[BaseException], ...]


TABLE: Final = (
    Row(400, "BadRequest", (BadRequest, BadFile)),
    Row(401, "Unauthorized", (Unauthorized,)),
    Row(404, "NoSuchTopology", (NoSuchTopology,)),
    Row(404, "NotFound", (NoSuchPart, NoSuchPage, NoSuchSupervisor)),
    Row(405, "WrongMethod", (WrongMethod,)),
    Row(409, "NameTaken", (NameTaken,)),
    Row(409, "IllegalTransition", (IllegalTransition,)),
    Row(409, "BadTopology", (BadTopology,)),
    Row(413, "TooLarge", (TooLarge, FileTooLarge, TooBig)),
    Row(422, "InvalidTopology", (InvalidTopology,)),
    Row(422, "InvalidConfig", (InvalidConfig,)),
    Row(422, "VersionMismatch", (VersionMismatch,)),
    Row(422, "BadArchive", (BadArchive,)),
    Row(422, "FileMissing", (FileMissing,)),
    Row(503, "NoLeader", (NotLeading, NoLeader, NoTokenYet, Deposed)),
    Row(503, "StoreUnavailable", (Unavailable,)),
    Row(503, "Busy", (NotInTime, StoreError)),
    Row(503, "Stopping", (Stopped,)),
    Row(503, "SupervisorUnreachable", (Unreachable,)),
    Row(503, "NoSpace", (NoSpace,)),
    Row(500, "BadRecord", (BadRecord,)),
    Row(500, "Failed", (SquallError,)),
)

#: What is said, with the reason, while the store is away.
UNAVAILABLE: Final = (
    "the cluster is unavailable at the moment: its store does not answer. What runs goes on; ask again when it is"
    " back"
)

#: What each status means, for the documents.
MEANINGS: Final = {
    400: "the request cannot be read",
    401: "no credentials, or false ones",
    404: "there is no such topology, component, worker, supervisor or file",
    405: "the path does not take this method",
    409: "the name is taken, or the topology is in a state that does not allow this",
    413: "the request, or something in it, is over its limit",
    422: "what was sent is understood and not sound: all problems are listed",
    500: "an error in Nimbus; its log says more",
    503: "nobody leads at the moment, or the store or a supervisor is out of reach: ask again",
}


def answer_of(error: BaseException) -> tuple[int, dict[str, Any]]:
    """The status and the JSON of an error. Of one that is no SquallError nothing is told: it is for the log."""
    if isinstance(error, Refused):  # what a supervisor, or another Nimbus, has said
        return error.status, _body(error.kind or "Refused", str(error), error.problems)
    for row in TABLE:
        if isinstance(error, row.errors):
            problems = tuple(str(problem) for problem in getattr(error, "problems", ()))
            text = f"{UNAVAILABLE} ({error})" if isinstance(error, Unavailable) else str(error)
            return row.status, _body(row.kind, text, problems)
    return 500, _body("Failed", "an error in Nimbus itself: its log has the traceback")


def _body(kind: str, message: str, problems: tuple[str, ...] = ()) -> dict[str, Any]:
    return {"error": {"kind": kind, "message": message, "problems": list(problems)}}
