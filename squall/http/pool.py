"""Addresses of servers, connections to them, and the reasons why a connection failed. An address is parsed from a URL that a
user typed or another server sent. Idle connections are kept and reused. Several threads may use one pool.

A failure is described in a few words, with advice if a setting is wrong or missing. `ssl` is loaded only for HTTPS, so that
commands without HTTPS start faster.

Must not know: which server is used, the meaning of requests and answers.
"""

from __future__ import annotations

import http.client
import select
import threading
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import msgspec

from topology_api.errors import SquallError

if TYPE_CHECKING:
    import ssl


class Address(msgspec.Struct, frozen=True):
    """The parts of a URL that a connection needs."""

    url: str
    scheme: str
    host: str
    port: int

    @classmethod
    def of(cls, url: str) -> Address:
        """Parse a URL; raise SquallError if it is invalid."""
        text = url.rstrip("/")
        try:
            parts = urlsplit(text)
            port = parts.port
            _ = (parts.hostname or "").encode("idna")  # what DNS looks up; UnicodeError is a ValueError
            if not text.isprintable() or " " in text:
                raise ValueError("it holds a blank or a control character")
        except ValueError as error:
            raise SquallError(f"{url!r:.200} is not a URL: {error}") from None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise SquallError(
                f"{url!r} is not the URL of a Nimbus, which looks like http://127.0.0.1:6627 or https://host:6627"
            )
        if parts.username or parts.password or parts.query or parts.fragment or parts.path:
            # The URL is not shown: it may hold a password.
            raise SquallError(
                f"the URL of {parts.hostname} holds more than scheme, host and port: write it as in https://host:6627"
            )
        return cls(text, parts.scheme, parts.hostname, port or (443 if parts.scheme == "https" else 80))


_IDLE_CONNECTIONS: Final = 4
#: The option for the authority's certificate, by its name in the site's file.
CA_OPTION: Final = "squall.tls.ca"
#: X509_V_ERR_*: no trusted authority signed the certificate; the other codes are faults of the certificate.
_UNKNOWN_AUTHORITY: Final = (2, 18, 19, 20, 21)


class ConnectionPool:
    """Makes connections, and keeps idle ones. ca: a file with the CA certificates that a server's certificate is checked
    against (None: the system's). timeout: seconds to connect."""

    def __init__(self, ca: str | None, timeout: float) -> None:
        self.ca = ca
        self.timeout = timeout
        self._lock = threading.Lock()
        self._idle: dict[Address, list[http.client.HTTPConnection]] = {}
        self._context: ssl.SSLContext | None = None

    def new(self, address: Address) -> http.client.HTTPConnection:
        """Return a connection that is not connected yet."""
        if address.scheme == "http":
            return http.client.HTTPConnection(address.host, address.port, timeout=self.timeout)
        if self._context is None:
            from squall.security.tls import client_context

            self._context = client_context(self.ca)
        return http.client.HTTPSConnection(
            address.host, address.port, timeout=self.timeout, context=self._context
        )

    def idle(self, address: Address) -> http.client.HTTPConnection | None:
        """Remove and return a kept connection that the server has not closed since; None if there is none."""
        while True:
            with self._lock:
                kept = self._idle.get(address)
                connection = kept.pop() if kept else None
            if connection is None:
                return None
            if connection.sock is not None and not _is_readable(connection):
                return connection
            connection.close()

    def give_back(
        self, address: Address, connection: http.client.HTTPConnection, response: http.client.HTTPResponse
    ) -> None:
        """Keep a connection for the next request if its answer was read to the end and there is room; otherwise close it."""
        if response.isclosed() and not response.will_close:
            with self._lock:
                if len(kept := self._idle.setdefault(address, [])) < _IDLE_CONNECTIONS:
                    kept.append(connection)
                    return
        connection.close()

    def close(self) -> None:
        """Close the connections that are idle."""
        with self._lock:
            idle, self._idle = self._idle, {}
        for connections in idle.values():
            for connection in connections:
                connection.close()


def set_timeout(connection: http.client.HTTPConnection, seconds: float) -> None:
    """Set the timeout of a connection. The timeout stays if the server closes the connection and the connection is opened
    again."""
    connection.timeout = seconds
    if connection.sock is not None:
        connection.sock.settimeout(seconds)


def _is_readable(connection: http.client.HTTPConnection) -> bool:
    """Return whether an idle connection can be read from, which means that the other side has closed it."""
    try:
        poll = select.poll()  # not select(): it accepts no descriptor above 1023
        poll.register(connection.sock, select.POLLIN)
        return bool(poll.poll(0))
    except (OSError, ValueError):
        return True


def reason(error: Exception, ca: str | None, in_the_clear: bool = False) -> str:
    """Return why a connection failed. `ca`: the file with the trusted certificates. `in_the_clear`: whether this was the first
    request to the server, over http:."""
    if isinstance(error, http.client.IncompleteRead):
        return "the connection ended within the answer"
    if isinstance(error, (http.client.RemoteDisconnected, ConnectionResetError)):
        closed = "it closed the connection without an answer"
        return f"{closed} (if it serves HTTPS, its URL begins with https:)" if in_the_clear else closed
    if isinstance(error, http.client.BadStatusLine):
        return f"it does not speak HTTP but says {str(error)!r:.80}"
    if getattr(error, "reason", None) == "WRONG_VERSION_NUMBER":
        return "it does not speak TLS (does its URL begin with http: ?)"
    if hasattr(error, "verify_code"):
        return _distrust(error.verify_code, getattr(error, "verify_message", ""), ca)
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower() if error.strerror[:1].isupper() else error.strerror
    return str(error) or type(error).__name__


def _distrust(code: int, text: str, ca: str | None) -> str:
    """Return why a certificate was not accepted."""
    if code not in _UNKNOWN_AUTHORITY:
        return f"its certificate is not valid: {text.rstrip('.')}"
    signed = "no authority that this system trusts" if ca is None else f"none of the authorities in {ca}"
    return f"its certificate is signed by {signed} ({text}); {CA_OPTION} names the file with the right one"


def is_of_tls(error: Exception) -> bool:
    """Return whether a server answered, but the two sides did not agree on TLS."""
    return hasattr(error, "library") and hasattr(error, "reason")
