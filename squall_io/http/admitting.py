"""Which requests a webhook's server takes: decided by their heads, before a body is read.

Must not know: servers, files. The clock is an argument.
"""

from __future__ import annotations

import hmac
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

#: Seconds after which a sender should try again when the log is full or its file system is away.
TRY_AGAIN: Final = 5
#: Headers that are not stored, since they may have secrets.
SECRET_HEADERS: Final = frozenset(("authorization", "proxy-authorization", "cookie"))


class RequestRefusal(NamedTuple):
    """The answer to a request that is not taken. after: the seconds of its header Retry-After."""

    status: int
    why: str
    after: int | None = None
    header: tuple[str, str] | None = None


class RateLimit:
    """At most a number of requests a second, and as many at once after a second of silence. rate: None: no limit."""

    def __init__(self, rate: float | None, now: Callable[[], float]) -> None:
        self._rate, self._now = rate, now
        self._most = max(1.0, rate or 0.0)
        self._left = self._most
        self._at = now()

    def wait(self) -> int | None:
        """Count a request; return None if it may pass, else the whole seconds until one may."""
        if self._rate is None:
            return None
        now = self._now()
        self._left = min(self._most, self._left + max(0.0, now - self._at) * self._rate)
        self._at = now
        if self._left >= 1:
            self._left -= 1
            return None
        return max(1, math.ceil((1 - self._left) / self._rate))


class Admittance:
    """The rules of one server.

    path: the only path that takes requests; None: any but that of the health check. token: what a request must show, in the
    header `token_header`; "authorization": as `Bearer TOKEN`. max_body: bytes. full: returns why no request is taken now, ""
    if they are.
    """

    def __init__(
        self,
        path: str | None,
        token: str | None,
        token_header: str,
        max_body: int,
        rate: RateLimit,
        full: Callable[[], str],
    ) -> None:
        self._path, self._token_header = path, token_header.lower()
        self._bearer = self._token_header == "authorization"
        self._token = None if token is None else token.encode()
        self._max_body, self._rate, self._full = max_body, rate, full

    def refusal(self, method: str, path: str, headers: Mapping[str, str]) -> RequestRefusal | None:
        """Return why a request is refused, by its head. A refused one does not count for the rate, unless that is why."""
        if self._path is not None and path != self._path:
            return RequestRefusal(404, "there is nothing at this path")
        if method != "POST":
            return RequestRefusal(405, "send a POST", header=("allow", "POST"))
        if self._token is not None and not self._shows_token(headers):
            how = "authorization: Bearer TOKEN" if self._bearer else f"{self._token_header}: TOKEN"
            return RequestRefusal(401, f"show the token: {how}", header=("www-authenticate", "Bearer"))
        if headers.get("content-encoding", "identity").lower() != "identity":
            return RequestRefusal(415, "send the body without a content-encoding")
        length = _length(headers)
        if length is not None and (refusal := self.too_large(length)) is not None:
            return refusal
        if why := self._full():
            return RequestRefusal(503, why, TRY_AGAIN)
        if (after := self._rate.wait()) is not None:
            return RequestRefusal(429, "too many requests", after)
        return None

    def most_of(self, headers: Mapping[str, str]) -> int:
        """Return the most bytes that the body of a request that is taken can have."""
        length = _length(headers)
        return self._max_body if length is None else length

    def too_large(self, size: int) -> RequestRefusal | None:
        """Return a refusal if a body of this size is too large."""
        if size <= self._max_body:
            return None
        return RequestRefusal(413, f"the body has more than {self._max_body} bytes")

    def kept(self, headers: Mapping[str, str]) -> dict[str, str]:
        """Return the headers that are stored."""
        return {
            name: value
            for name, value in headers.items()
            if name not in SECRET_HEADERS and name != self._token_header
        }

    def _shows_token(self, headers: Mapping[str, str]) -> bool:
        assert self._token is not None
        shown = headers.get(self._token_header, "")
        if self._bearer:
            scheme, _, shown = shown.partition(" ")
            if scheme.lower() != "bearer":
                shown = ""
        return hmac.compare_digest(shown.strip().encode(), self._token)


def _length(headers: Mapping[str, str]) -> int | None:
    """Return the bytes of a body, if the head has them."""
    length = headers.get("content-length", "")
    return int(length) if length.isascii() and length.isdigit() else None


def joined(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """Return headers by name; those that come several times are one, as HTTP allows."""
    found: dict[str, str] = {}
    for raw, value in headers:
        name, text = raw.decode("latin-1").lower(), value.decode("latin-1")
        found[name] = f"{found[name]}, {text}" if name in found else text
    return found
