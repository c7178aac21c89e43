"""Where a server is and how it is reached: a URL with a user, the name of a password, and files for TLS. What the connectors of
message brokers share.

Must not know: protocols, clients.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from squall_io.kit.secrets import secret_problem, url_problem, user_of
from topology_api import SquallError
from topology_api.wording import listed, typed

#: What `tls` may name, each by a path on the hosts of workers.
TLS: Final = ("ca", "certificate", "key")


class UrlForm(msgspec.Struct, frozen=True):
    """What URLs of a system look like. ports: the port of each scheme. encrypted: the scheme with TLS. has_path: whether a path
    follows the port."""

    ports: Mapping[str, int]
    encrypted: str
    has_path: bool = False

    @property
    def wanted(self) -> str:
        """What to give, for errors."""
        plain = next(name for name in self.ports if name != self.encrypted)
        path = "/PATH" if self.has_path else ""
        return f'give "{plain}://HOST:PORT{path}", or "{self.encrypted}://HOST:PORT{path}" for TLS'


class ServerAddress(msgspec.Struct, frozen=True):
    """A server. url: without a password. password: where it is named; None: none. tls: paths of files, by `TLS`."""

    url: str
    password: str | None
    tls: Mapping[str, str]

    @property
    def host(self) -> str:
        """The host's name or address."""
        return urlsplit(self.url).hostname or ""

    @property
    def user(self) -> str | None:
        """The user; None: none."""
        return user_of(self.url)

    def port_of(self, form: UrlForm) -> int:
        """Return the port; where the URL names none, that of its scheme."""
        parts = urlsplit(self.url)
        return parts.port or form.ports[parts.scheme]

    def is_encrypted_by(self, form: UrlForm) -> bool:
        """Return whether connections use TLS."""
        return urlsplit(self.url).scheme == form.encrypted


def server_problems(form: UrlForm, url: Any, password: Any, tls: Any) -> Iterator[str]:
    """Yield what is wrong with the arguments of a `ServerAddress`. No text shows a password."""
    if (problem := url_problem("url", url, "password")) is not None:
        yield problem
    else:
        yield from _url_problems(form, url, password)
    if password is not None and (problem := secret_problem("password", password)) is not None:
        yield problem
    if tls is not None:
        yield from _tls_problems(form, url, tls)


def _url_problems(form: UrlForm, url: str, password: object) -> Iterator[str]:
    parts = urlsplit(url)
    try:
        port = parts.port
    except ValueError:
        yield f"url is {url!r}, whose port is no number from 1 to 65535: {form.wanted}"
        return
    if parts.scheme not in form.ports or not parts.hostname or port == 0:
        yield f"url is {url!r}: {form.wanted}"
    elif (parts.path.strip("/") and not form.has_path) or parts.query or parts.fragment:
        yield f"url is {url!r}, with more than it can have: {form.wanted}"
    elif password is not None and parts.username is None:
        yield f'password is given, and url has no user: give "{parts.scheme}://USER@{parts.hostname}"'


def _tls_problems(form: UrlForm, url: object, tls: object) -> Iterator[str]:
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
    if isinstance(url, str) and not url.startswith(f"{form.encrypted}:"):
        yield f'tls is given, and url is without TLS: begin it with "{form.encrypted}://"'


def tls_context(files: Mapping[str, str]) -> ssl.SSLContext:
    """Return what a client needs for TLS. Raises SquallError for files that cannot be used. files: paths, by `TLS`."""
    try:
        made = ssl.create_default_context(cafile=files.get("ca"))
        if "certificate" in files:
            made.load_cert_chain(files["certificate"], files.get("key"))
    except OSError as error:  # ssl.SSLError is one
        raise SquallError(f"the files of tls={dict(files)} cannot be used on this host: {error}") from None
    return made
