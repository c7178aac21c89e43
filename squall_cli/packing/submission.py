"""Sends a topology to Nimbus: first the files that Nimbus lacks, and then the submission with an idempotency key.

Files are named by their SHA-256, so files that Nimbus already has are not sent. Each run of the command generates one key. If
an answer is lost, the submission is sent again with the same key, and Nimbus repeats its first answer.
Must not know: how the files were found, how progress is shown.
"""

from __future__ import annotations

import time
from base64 import b64encode
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec
from msgspec import structs, to_builtins

from squall.api.answers import SubmittedAnswer
from squall.api.cluster_answers import ConfigurationAnswer
from squall.api.requests import SubmitRequest
from squall.http.client import Refused, Unreachable, at
from squall.packages.versions import minor, misfits, own_versions
from squall_cli.cluster.nimbus_client import NimbusClient
from squall_cli.cluster.waiting import NO_LEADER
from squall_cli.packing.packing import Packed
from squall_cli.terminal.formats import in_bytes, to_type
from topology_api.errors import SquallError
from topology_api.topology import Topology

#: Seconds during which a file or a submission that gets no answer is sent again. A standby takes over well within this time.
PATIENCE: Final = 30.0
PAUSE: Final = 1.0
#: The error kind in Nimbus's answer when a request took too long; the request may or may not have been carried out.
BUSY: Final = "Busy"
#: The error kind if the store did not answer Nimbus. The outcome is unknown in this case too. Usually Nimbus's connection to
#: the store broke and is restored at once; if it is not restored, a retry soon gets the answer that the cluster is unavailable.
STORE_AWAY: Final = "StoreUnavailable"
STORE_PATIENCE: Final = 2.0
#: How many times the files and the submission are sent at most. If another Nimbus takes over, the new leader may lack files
#: that were sent before.
ATTEMPTS: Final = 3
#: Seconds to wait for Nimbus's answer to a request with a file or a submission: Nimbus checks the whole archive before it
#: answers.
ANSWER_SECS: Final = 60.0

Say = Callable[[str], object]


class NotSubmitted(SquallError):
    """The cluster refused a topology, or may or may not have accepted it."""


class OutgoingSubmission(msgspec.Struct, frozen=True):
    """The name of a topology, the body of the request to Nimbus (a `SubmitRequest`), and the files that are sent before the
    request."""

    name: str
    body: dict[str, Any]
    files: tuple[Packed, ...] = ()
    #: Where the request is sent.
    place: tuple[str, ...] = ("topologies",)


def request_body(topology: Topology, files: Sequence[Packed] = (), **fields: Any) -> dict[str, Any]:
    """Return the body of the request to Nimbus, a `SubmitRequest`. `fields`: the fields of the request that follow from neither
    topology nor files."""
    versions = own_versions()
    fields |= versions | {"python": minor(versions["python"])}
    request = SubmitRequest(
        description=topology.describe(),
        pickles={name: b64encode(data).decode("ascii") for name, data in topology.pickles.items()},
        files={file.purpose: file.sha256 for file in files},
        **fields,
    )
    body: dict[str, Any] = to_builtins(request)
    for name in ("options", "reset_options", "state"):  # a Nimbus of an earlier release does not know them
        if not body[name]:
            del body[name]
    return body


class Accepted(SubmittedAnswer, frozen=True):
    """Nimbus's answer. `uploaded`: how many bytes of files were sent."""

    uploaded: int = 0


def check_versions(client: NimbusClient, name: str) -> None:
    """Before anything large is sent, raise NotSubmitted if this package cannot run with the versions on the cluster."""
    others = [(f"Nimbus on {each.host}", each.versions) for each in client.cluster().nimbuses]
    others += [(f"supervisor {each.id} on {each.host}", each.versions) for each in client.supervisors()]
    problems = misfits(own_versions(), others)
    if problems:
        raise NotSubmitted(f"topology {name!r} cannot run on this cluster: {'; '.join(problems)}")


def check(client: NimbusClient, submission: OutgoingSubmission) -> Accepted:
    """Let Nimbus check the submission, and check the files that Nimbus lacks as Nimbus would. Return the answer that `submit`
    would get, without an id; `uploaded`: the bytes of these files. Raises as `submit`, or `FileTooLarge`."""
    from nimbus.files.stored_files import check_content

    answer = client.post_json(
        SubmittedAnswer, "checks", body=submission.body, repeatable=True, timeout=ANSWER_SECS
    )[0]
    missing = [file for file in submission.files if not client.exists(at("files", file.sha256))]
    conf = client.read(ConfigurationAnswer, "configuration").conf
    limits = [int(conf[f"nimbus.package.{each}.bytes"]) for each in ("limit", "unpacked.limit")]
    for file in missing:
        check_content(file.purpose, file.path, *limits)
    return Accepted(**structs.asdict(answer), uploaded=sum(file.size for file in missing))


def submit(client: NimbusClient, submission: OutgoingSubmission, say: Say, now: Say) -> Accepted:
    """Send the files that Nimbus lacks, and the submission. Raises `Refused`, `Unreachable` or `NotSubmitted` if this fails.

    `say` shows a line that stays, `now` the current step."""
    uploaded = 0
    for attempt in range(1, ATTEMPTS + 1):
        uploaded += upload(client, submission.files, say, now)
        now(f"submitting {submission.name}")
        try:
            answer = post(client, submission, say)
            return Accepted(**structs.asdict(answer), uploaded=uploaded)
        except Refused as error:
            # "FileMissing": a new leader does not have the files, so they are sent once more.
            if error.kind != "FileMissing" or attempt == ATTEMPTS:
                raise
    raise AssertionError("the last attempt returns or raises")


def upload(client: NimbusClient, files: tuple[Packed, ...], say: Say, now: Say) -> int:
    """Send the files that Nimbus lacks; return the number of bytes sent. Sending a file twice is harmless, since the file's
    name is its digest."""
    sent = 0
    began = time.monotonic()
    for file in files:
        while True:
            try:
                if not has(client, file):
                    client.put_file(at("files", file.sha256), file.path, progress_of(file, now), ANSWER_SECS)
                    sent += file.size
                break
            except (Unreachable, Refused) as error:
                if not passes(error) or time.monotonic() - began > PATIENCE:
                    raise
                say(f"sending {file.purpose} again: {error}")
            time.sleep(PAUSE)
    return sent


def has(client: NimbusClient, file: Packed) -> bool:
    """Whether Nimbus has a file. A refusal of this question has no body, so it does not say whether it will pass: the answer to
    the file itself says it."""
    try:
        return client.exists(at("files", file.sha256))
    except Refused as error:
        if error.status != 503:
            raise
        return False


def passes(error: Unreachable | Refused) -> bool:
    """Whether the error is typical of a change of leader, so that another attempt may succeed."""
    return isinstance(error, Unreachable) or error.kind in (BUSY, NO_LEADER)


def progress_of(file: Packed, now: Say) -> Callable[[int], None]:
    """Return a callback that shows how much of a file was sent, for files that are sent in several pieces."""
    size = file.size

    def progress(done: int) -> None:
        if done < size:
            now(f"uploading {file.purpose}: {done * 100 // size}% of {in_bytes(size)}")

    return progress


def post(client: NimbusClient, submission: OutgoingSubmission, say: Say) -> SubmittedAnswer:
    """Return Nimbus's answer to the submission. Raises NotSubmitted if the submission may have arrived, but no answer did."""
    began = time.monotonic()
    unsure: Unreachable | Refused | None = None
    while True:
        try:
            return client.post_json(
                SubmittedAnswer, *submission.place, body=submission.body, repeatable=True, timeout=ANSWER_SECS
            )[0]
        except KeyboardInterrupt:
            raise not_known(submission, "the command was interrupted before Nimbus answered") from None
        except (Unreachable, Refused) as error:
            if error.kind in (BUSY, STORE_AWAY) if isinstance(error, Refused) else error.sent:
                unsure = error
            if unsure is None and not passes(error):
                raise
            if isinstance(error, Refused) and error.status != 503:
                raise
            away = isinstance(error, Refused) and error.kind == STORE_AWAY
            if time.monotonic() - began > (STORE_PATIENCE if away else PATIENCE):
                if unsure is None:
                    raise
                raise not_known(submission, str(unsure)) from error
            say(f"submitting again: {error}")
        try:
            time.sleep(PAUSE)
        except KeyboardInterrupt:
            if unsure is None:
                raise
            raise not_known(submission, str(unsure)) from None


def not_known(submission: OutgoingSubmission, why: str) -> NotSubmitted:
    """Return the error for a submission whose outcome is unknown."""
    name = submission.name
    return NotSubmitted(
        f"it is not known whether topology {name!r} was submitted: {why};"
        f" once a Nimbus answers again, run {to_type('status', name)} to find out"
    )
