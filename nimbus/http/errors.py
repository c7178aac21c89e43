"""Errors over HTTP: one table with the status, the kind and the JSON of each exception. The first row that fits is used.

Must not know: who raises what, requests.
"""

from __future__ import annotations

from typing import Final

from nimbus.files.stored_files import FileTooLarge, NoSuchFile, UnsoundFile
from nimbus.http.views import NoSuchPart
from nimbus.leader.control import NotLeading
from nimbus.lifecycle.cleanup import BadTopology
from nimbus.lifecycle.states import IllegalTransition
from nimbus.placement.supervisors import NoSuchSupervisor
from nimbus.submission.parse import BadRequest, TooLarge, VersionMismatch
from nimbus.submission.repeated import NoRollback
from squall.api.errors import ErrorAnswer
from squall.cluster.records import BadRecord
from squall.cluster.store import Deposed, StoreError, TooBig, Unavailable
from squall.daemon.command_loop import NotInTime, Stopped
from squall.http.client import Refused, Unreachable
from squall.packages.archives import BadArchive
from topology_api.errors import InvalidConfig, InvalidTopology, NameTaken, NoSuchTopology, SquallError

#: Seconds after which a retry may succeed, for temporary errors.
RETRY_AFTER: Final = 1


class Unauthorized(SquallError):
    """No credentials, wrong credentials, or credentials that do not allow the request."""


class NoTokenYet(SquallError):
    """This Nimbus does not know the operators' token yet."""


class NoLeader(SquallError):
    """No Nimbus leads at the moment, so nothing can be changed."""


class NoSuchPage(SquallError):
    """A path without an endpoint."""


class WrongMethod(SquallError):
    """A path with an endpoint, but not for this method."""


class NoSpace(SquallError):
    """The disk of this Nimbus is full, or has an error."""


#: Rows of a status, a kind, and the exceptions that have them.
TABLE: Final[tuple[tuple[int, str, tuple[type[BaseException], ...]], ...]] = (
    (400, "BadRequest", (BadRequest, UnsoundFile)),
    (401, "Unauthorized", (Unauthorized,)),
    (404, "NoSuchTopology", (NoSuchTopology,)),
    (404, "NotFound", (NoSuchPart, NoSuchPage, NoSuchSupervisor)),
    (405, "WrongMethod", (WrongMethod,)),
    (409, "NameTaken", (NameTaken,)),
    (409, "IllegalTransition", (IllegalTransition,)),
    (409, "BadTopology", (BadTopology,)),
    (409, "NoRollback", (NoRollback,)),
    (413, "TooLarge", (TooLarge, FileTooLarge, TooBig)),
    (422, "InvalidTopology", (InvalidTopology,)),
    (422, "InvalidConfig", (InvalidConfig,)),
    (422, "VersionMismatch", (VersionMismatch,)),
    (422, "BadArchive", (BadArchive,)),
    (422, "FileMissing", (NoSuchFile,)),
    (503, "NoLeader", (NotLeading, NoLeader, NoTokenYet, Deposed)),
    (503, "StoreUnavailable", (Unavailable,)),
    (503, "Busy", (NotInTime, StoreError)),
    (503, "Stopping", (Stopped,)),
    (503, "SupervisorUnreachable", (Unreachable,)),
    (503, "NoSpace", (NoSpace,)),
    (500, "BadRecord", (BadRecord,)),
    (500, "Failed", (SquallError,)),
)

#: The message while the store is away; the reason follows.
UNAVAILABLE: Final = (
    "the cluster is unavailable at the moment: its store does not answer. Running topologies continue; try again when the"
    " store is back"
)

#: What each status means, for the documents.
MEANINGS: Final = {
    400: "the request cannot be read",
    401: "no credentials, or wrong ones",
    404: "there is no such topology, component, worker, supervisor or file",
    405: "the path does not allow this method",
    409: "the name is taken, the topology is in a state that does not allow this, or there is no version to return to",
    413: "the request, or something in it, is over its limit",
    422: "the request is understood, but its content is not valid: all problems are listed",
    500: "an error in Nimbus; its log says more",
    503: "no Nimbus leads at the moment, or the store or a supervisor cannot be reached: try again",
}


def answer_of(error: BaseException) -> tuple[int, ErrorAnswer]:
    """Return the status and the body of an error. The text of an error that is not a SquallError goes only to the log."""
    if isinstance(error, Refused):  # from a supervisor, or another Nimbus
        return error.status, ErrorAnswer.of(error.kind or "Refused", str(error), error.problems)
    for status, kind, errors in TABLE:
        if isinstance(error, errors):
            problems = tuple(str(problem) for problem in getattr(error, "problems", ()))
            text = f"{UNAVAILABLE} ({error})" if isinstance(error, Unavailable) else str(error)
            return status, ErrorAnswer.of(kind, text, problems)
    return 500, ErrorAnswer.of("Failed", "an error in Nimbus itself: its log has the traceback")
