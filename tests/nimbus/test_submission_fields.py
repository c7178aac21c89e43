"""A submission is read exactly, or refused with its problems: nothing is guessed."""

from __future__ import annotations

from base64 import b64encode

import pytest

from nimbus.submission.parse import BadRequest, read_submission
from tests.nimbus.transcripts import a_topology


def body(**changes: object) -> dict[str, object]:
    """A valid submission except for the changes."""
    topology = a_topology("words", 1)
    sound = {
        "submission": "key",
        "description": topology.describe(),
        "pickles": {name: b64encode(data).decode() for name, data in topology.pickles.items()},
        "python": "3.11",
        "cloudpickle": "3.1",
    }
    return {**sound, **changes}


def test_a_valid_submission_is_read_unchanged() -> None:
    read = read_submission(body())
    assert (read.key, read.topology) == ("key", a_topology("words", 1))


@pytest.mark.parametrize("key", ["one\ntwo", "\x1b[31m", "x" * 101])
def test_a_key_that_would_spoil_a_log_is_refused(key: str) -> None:
    with pytest.raises(BadRequest, match="'submission' is a key of at most 100 printable characters"):
        read_submission(body(submission=key))


@pytest.mark.parametrize("text", ["Zm9v!YmFy", "Zm9v YmFy", "Zm9vY", "\u00e9"])
def test_a_pickle_that_is_not_wholly_base64_is_refused(text: str) -> None:
    with pytest.raises(BadRequest, match=r"pickles\['lines'\] is not base64"):
        read_submission(body(pickles={"lines": text}))
