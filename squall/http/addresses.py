"""The address of a server, parsed from a URL that was typed or came from another server.

Must not know: connections, requests.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

from topology_api.errors import SquallError


@dataclass(frozen=True)
class Address:
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
            _ = (parts.hostname or "").encode("idna")  # as it is looked up: UnicodeError is a ValueError
            if not text.isprintable() or " " in text:
                raise ValueError("it holds a blank or a control character")
        except ValueError as error:
            raise SquallError(f"{url!r:.200} is not a URL: {error}") from None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise SquallError(
                f"{url!r} is not the URL of a Nimbus: it looks like http://127.0.0.1:6627 or https://host:6627"
            )
        if parts.username or parts.password or parts.query or parts.fragment or parts.path:
            # Not shown: it may hold a password.
            raise SquallError(
                f"the URL of {parts.hostname} holds more than scheme, host and port:"
                " write it as in https://host:6627"
            )
        default = 443 if parts.scheme == "https" else 80
        return cls(text, parts.scheme, parts.hostname, port or default)
