"""What a Nimbus answers, when it is one: anything may listen where a command was told to ask, and answer in JSON.

What is missing from an answer is said in a sentence, with the version that is expected, as soon as somebody looks for it.
Must not know: what is asked.
"""

from __future__ import annotations

from typing import Any

from squall import __version__
from squall.http_client import Client
from topology_api.errors import SquallError


class NoNimbus(SquallError):
    """An answer that no Nimbus of this version gives."""


class Answer(dict[str, Any]):
    """A JSON object whose missing parts say so."""

    path = ""

    @classmethod
    def of(cls, value: object, path: str) -> Answer:
        """The value as an answer to what was asked at a path; NoNimbus when it is no object."""
        if not isinstance(value, dict):
            raise NoNimbus(_told(path, f"is {type(value).__name__}, not an object"))
        answer = cls(value)
        answer.path = path
        return answer

    def __missing__(self, key: str) -> Any:
        raise NoNimbus(_told(self.path, f"has no {key!r}"))


def _told(path: str, problem: str) -> str:
    return f"the answer to {path!r} {problem}: is it a Nimbus of Squall {__version__} that listens there?"


class NimbusClient(Client):
    """A client whose answers are those of a Nimbus."""

    def get(self, path: str, **query: object) -> Answer:
        return Answer.of(super().get(path, **query), path)

    def post(
        self, path: str, body: object = None, repeatable: bool = False, timeout: float | None = None
    ) -> Answer:
        return Answer.of(super().post(path, body, repeatable, timeout), path)

    def delete(self, path: str, **query: object) -> Answer:
        return Answer.of(super().delete(path, **query), path)
