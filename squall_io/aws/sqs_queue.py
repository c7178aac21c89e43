"""A queue of SQS: its name, its address, and what its messages may be.

Must not know: tuples, clients of tasks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

from squall_io.aws.calls import AwsRefused, AwsService, endpoint_problem
from topology_api.wording import typed

#: The most entries of a call.
MOST_ENTRIES: Final = 10
#: The most bytes of a message, unless the queue says otherwise, and of all messages of a call.
MOST_BYTES: Final = 262_144
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,75}(\.fifo)?|[A-Za-z0-9_-]{76,80}")
_MISSING: Final = ("NonExistentQueue", "QueueDoesNotExist")


def queue_problem(queue: object) -> str | None:
    """Return why an argument names no queue; None if it does."""
    if isinstance(queue, str) and (
        _NAME.fullmatch(queue) or (_is_url(queue) and _NAME.fullmatch(name_of(queue)))
    ):
        return None
    form = 'give the name of a queue, "orders", or its URL, "https://.../123456789012/orders"'
    if any(part in str(queue) for part in "@?#"):  # what is around it may be a secret
        return f"queue has a user, a query or a fragment: {form}"
    return f"queue is {typed(queue)}: {form}"


def _is_url(queue: str) -> bool:
    return endpoint_problem(queue) is None and not any(part in queue for part in "?#")


def name_of(queue: str) -> str:
    """Return the name of a queue that is named by its name or its URL."""
    return queue.rpartition("/")[2]


def is_fifo(queue: str) -> bool:
    """Whether a queue keeps the order of its groups: its name says so."""
    return queue.endswith(".fifo")


def url_of(service: AwsService, queue: str) -> str:
    """Return the URL of a queue. Raises AwsRefused if there is none, and AwsAway."""
    if _is_url(queue):
        return queue
    try:
        url: str = service.call("get_queue_url", QueueName=queue)["QueueUrl"]
    except AwsRefused as error:
        raise explained(error, queue, service) from None
    return url


def explained(error: AwsRefused, queue: str, service: AwsService) -> AwsRefused:
    """Return an error with what helps, if it is about a queue that is not there."""
    if not any(part in error.code for part in _MISSING):
        return error
    return AwsRefused(
        f"there is no queue {name_of(queue)!r} at {service.where}: create it, or correct queue= and region=",
        error.code,
    )


def parts_of(entries: Sequence[Any]) -> Iterator[Sequence[Any]]:
    """Yield entries in the portions that a call takes."""
    for at in range(0, len(entries), MOST_ENTRIES):
        yield entries[at : at + MOST_ENTRIES]
