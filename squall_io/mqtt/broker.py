"""Where a broker of MQTT is and how it is reached: the arguments that the spout and the sink share.

Must not know: clients, topics.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from squall_io.kit.secrets import secret_problem, url_problem, user_of
from topology_api.wording import listed, typed

#: The port of each scheme.
PORTS: Final = {"mqtt": 1883, "mqtts": 8883}
#: The versions of the protocol.
VERSIONS: Final = ("5", "3.1.1")
#: What `tls` may name, each by a path on the hosts of workers.
TLS: Final = ("ca", "certificate", "key")
#: The most seconds of the protocol's field for the keepalive.
_MOST_KEEPALIVE: Final = 65_535
_WANTED: Final = 'give "mqtt://HOST:PORT", or "mqtts://HOST:PORT" for TLS'


class Broker(msgspec.Struct, frozen=True):
    """A broker. url: without a password. password: where it is named; None: none. tls: paths of files, by `TLS`.
    keepalive: seconds."""

    url: str
    password: str | None
    tls: Mapping[str, str]
    keepalive: int
    version: str

    @property
    def host(self) -> str:
        """The host's name or address."""
        return urlsplit(self.url).hostname or ""

    @property
    def port(self) -> int:
        """The port; where the URL names none, that of its scheme."""
        parts = urlsplit(self.url)
        return parts.port or PORTS[parts.scheme]

    @property
    def user(self) -> str | None:
        """The user; None: none."""
        return user_of(self.url)

    @property
    def is_encrypted(self) -> bool:
        """Whether connections use TLS."""
        return urlsplit(self.url).scheme == "mqtts"

    def __str__(self) -> str:
        return f"MQTT at {self.host}:{self.port}"


def broker_problems(url: Any, password: Any, tls: Any, keepalive: Any, version: Any) -> Iterator[str]:
    """Yield what is wrong with the arguments of a `Broker`. No text shows a password."""
    if (problem := url_problem("url", url, "password")) is not None:
        yield problem
    else:
        yield from _url_problems(url, password)
    if password is not None and (problem := secret_problem("password", password)) is not None:
        yield problem
    if type(keepalive) is not int or not 1 <= keepalive <= _MOST_KEEPALIVE:
        yield f"keepalive is {typed(keepalive)}: give seconds, 1 to {_MOST_KEEPALIVE}"
    if version not in VERSIONS:
        yield f"version is {typed(version)}: give one of {listed(VERSIONS)}"
    if tls is not None:
        yield from _tls_problems(url, tls)


def _url_problems(url: str, password: object) -> Iterator[str]:
    parts = urlsplit(url)
    try:
        port = parts.port
    except ValueError:
        yield f"url is {url!r}, whose port is no number from 1 to 65535: {_WANTED}"
        return
    if parts.scheme not in PORTS or not parts.hostname or port == 0:
        yield f"url is {url!r}: {_WANTED}"
    elif parts.path.strip("/") or parts.query or parts.fragment:
        yield f"url is {url!r}, with more than a host and a port: {_WANTED}"
    elif password is not None and parts.username is None:
        yield f'password is given, and url has no user: give "{parts.scheme}://USER@{parts.hostname}"'


def _tls_problems(url: object, tls: object) -> Iterator[str]:
    if not isinstance(tls, Mapping) or not all(
        isinstance(each, str) for pair in tls.items() for each in pair
    ):
        yield f'tls is {typed(tls)}: give a dict of paths, {{"ca": "/etc/ssl/broker.pem"}}'
        return
    if unknown := sorted(set(tls) - set(TLS)):
        yield f"tls has {listed(unknown)}: it takes {listed(TLS)}"
    if relative := [name for name, path in tls.items() if not os.path.isabs(path)]:
        yield f"tls has no whole path for {listed(relative)}: give absolute paths, which exist on the hosts of workers"
    if "key" in tls and "certificate" not in tls:
        yield "tls has a key without a certificate: name the file of both, or of the certificate with its key"
    if isinstance(url, str) and url.startswith("mqtt:"):
        yield 'tls is given, and url is without TLS: begin it with "mqtts://"'
