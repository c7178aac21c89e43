"""What errors of RabbitMQ mean: whether waiting helps, and otherwise what a user has to change.

Must not know: connections, clients.
"""

from __future__ import annotations

import re
import ssl
from typing import Final

from squall_io.kit.queue_client import QueueAway
from topology_api import SquallError

#: Codes of the protocol.
LOGIN, MISSING, LOCKED, PRECONDITION, NOT_ALLOWED = 403, 404, 405, 406, 530
#: Codes after which another attempt may succeed: the server stops, has no room, or has failed.
_AWAY: Final = (0, 200, 320, 501, 504, 505, 506, 541)
#: How the library shows what the server said while a connection was made.
_SAID: Final = re.compile(r"ConnectionClosedByBroker: \((\d+)\) (['\"])(.*)\2")
_TOO_LARGE: Final = re.compile(r"larger than (?:configured )?max(?:imum)? (?:message )?size (\d+)")
#: The word in capitals before a text of the server.
_WORD: Final = re.compile(r"[A-Z_]+ - ")


class RabbitAway(QueueAway):
    """The server does not answer, or the connection is lost. Another attempt may succeed."""


class RabbitRefused(SquallError):
    """The server refuses what a connector asks for, and will until something is changed."""


def explained(where: str, code: int, text: str) -> SquallError:
    """Return what it means that the server has closed a channel or a connection. where: the server, for people."""
    said = " ".join(_WORD.sub("", text).split())
    if code in _AWAY or (code == MISSING and "down or inaccessible" in said):
        return RabbitAway(said or "the connection is lost")
    if code == MISSING:
        if said.startswith("no "):
            return RabbitRefused(f"{where} has {said}: declare it, or correct the name")
        return RabbitRefused(f"{where}: {said}")
    if "exclusive" in said:
        return RabbitRefused(f"{where} refuses it: {said}; another client has it for itself")
    if code == LOGIN and "login" in said.lower():
        return RabbitRefused(f"{where} refuses the login: check the user in url, and password")
    if code == LOGIN:
        return RabbitRefused(f"{where} refuses it: {said}; give the user the rights")
    if code == NOT_ALLOWED:
        return RabbitRefused(
            f"{where} refuses it: {said}; check the virtual host in url, and the user's rights"
        )
    if code == PRECONDITION and "acknowledgement" in said and "timed out" in said:
        return RabbitRefused(
            f"{where} has closed the channel: a message was in flight for longer than the server's `consumer_timeout` allows;"
            " raise it, or lower topology.message.timeout.secs and max_in_flight"
        )
    return RabbitRefused(f"{where} refuses it: {said} ({code})")


def largest_of(code: int, text: str) -> int | None:
    """Return the size of the largest message that the server takes, if it has closed a channel for a larger one."""
    found = _TOO_LARGE.search(text) if code == PRECONDITION else None
    return None if found is None else int(found[1])


def of_connecting(where: str, error: BaseException) -> SquallError:
    """Return what it means that a connection was not made."""
    cause = innermost(error)
    if (found := _SAID.search(str(cause))) is not None:
        return explained(where, int(found[1]), found[3])
    text = " ".join(str(cause).split()) or type(cause).__name__
    if isinstance(cause, ssl.SSLError):
        return RabbitRefused(f"{where} and this host agree on no TLS: {text}; check url and tls")
    name = type(cause).__name__
    if name == "IncompatibleProtocolError":
        return RabbitAway("it ends the connection at once; it may still be starting, or want amqps")
    if name in ("ProbableAuthenticationError", "ProbableAccessDeniedError"):
        return RabbitAway("the connection was lost during the login")
    if name == "AMQPConnectorStackTimeout":
        return RabbitAway("no answer")
    return RabbitAway(text)


def innermost(error: BaseException) -> BaseException:
    """Return the error in which a chain of the library's wrappers ends."""
    seen = error
    while True:
        inner = getattr(seen, "exceptions", None)
        inner = inner[-1] if inner else getattr(seen, "exception", None)
        if inner is None and len(seen.args) == 1 and isinstance(seen.args[0], BaseException):
            inner = seen.args[0]
        if not isinstance(inner, BaseException):
            return seen
        seen = inner
