"""Which operators' token a command sends to which Nimbus. A token belongs to the URLs that it was made for:

    the user's own file for a URL (tokens/<host>_<port>)    that URL, and all of nimbus.url of a site's file that has it
    squall.token.file of a site's file                      nimbus.url of the same file; without it, asked URLs on this host
    SQUALL_TOKEN_FILE                                       the URLs that the command asks

So no token of one cluster reaches another one: not because a command line or a variable names a different URL than the site's
file, and not because a server redirects there. Where the network could read the token, it is sent only with --insecure.
Must not know: HTTP, the commands.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import msgspec

from squall.security.private_files import BadPrivateFile
from squall.security.tokens import OPTION, VARIABLE, is_this_host, kept_token, read_token, user_place
from squall_cli.options.site import Layers
from topology_api.errors import SquallError

URL: Final = "nimbus.url"
_PORTS: Final = {"http": 80, "https": 443}


class NotItsToken(SquallError):
    """There is a token, but it is not sent to this URL. Nothing was sent."""


class Credentials(msgspec.Struct, frozen=True):
    """The tokens of one command.

    urls: the URLs that the command asks. of_site: the URLs in `nimbus.url` of the site's file. insecure: send the token over
    http:// to other hosts too.
    """

    urls: Sequence[str]
    layers: Layers
    of_site: Sequence[str]
    environ: Mapping[str, str]
    insecure: bool = False

    def token_for(self, url: str) -> str | None:
        """Return the token for the Nimbus at `url`; None if there is none.

        Raises `NotItsToken` if the command asks this URL, but the only token belongs to another one, or would be sent
        unencrypted; `BadPrivateFile` if a file with a token is missing or cannot be used.
        """
        token = self._token(url)
        if token is not None and not self.insecure and goes_open(url):
            raise NotItsToken(
                f"the operators' token is not sent to {url}, because everyone on the way could read it: write"
                " https://, or add --insecure if you trust this network"
            )
        return token

    def _token(self, url: str) -> str | None:
        asked = _is_among(url, self.urls)
        by, named = VARIABLE, self.environ.get(VARIABLE) or self.layers.environment.get(OPTION)
        if named and asked:
            return _read(str(named), by)
        named = self.layers.site.get(OPTION)
        if named and self._is_of_site(url):
            return _read(str(named), OPTION)
        token = self._kept(url)
        if token is None and named and asked:
            raise NotItsToken(self._foreign(url, str(named)))
        return token

    def _is_of_site(self, url: str) -> bool:
        """Return whether the token of the site's file belongs to a URL."""
        if self.of_site:
            return _is_among(url, self.of_site)
        return _is_among(url, self.urls) and is_this_host(urlsplit(url).hostname or "")

    def _kept(self, url: str) -> str | None:
        """Return the token in the user's own file for a URL, or for another Nimbus that the site's file names beside it."""
        same_cluster = self.of_site if _is_among(url, self.of_site) else ()
        found = (kept_token(each, self.environ) for each in (url, *same_cluster))
        return next((token for token in found if token is not None), None)

    def _foreign(self, url: str, named: str) -> str:
        place = user_place(url, self.environ)
        of, file = ", ".join(self.of_site) or "a Nimbus on this host", self.layers.site_file
        known = "" if place is None else f", or copy the token of that Nimbus to {place}"
        return (
            f"the token in {named} is not sent to {url}: {file} names it ({OPTION}) as the token of {of}. If {url} belongs"
            f" to the same cluster, add it to {URL} in {file}. Otherwise name its token by {VARIABLE}{known}"
        )


def goes_open(url: str) -> bool:
    """Return whether others could read what is sent to this URL."""
    parts = urlsplit(url)
    return parts.scheme != "https" and not is_this_host(parts.hostname or "")


def _read(named: str, by: str) -> str:
    if (token := read_token(Path(named))) is None:
        raise BadPrivateFile(
            f"{by} names {named}, and there is no such file: copy the operators' token there from a host that runs Nimbus"
        )
    return token


def _is_among(url: str, urls: Sequence[str]) -> bool:
    return _origin(url) in map(_origin, urls)


def _origin(url: str) -> tuple[str, str, int | None] | str:
    """Return what makes two URLs equal: scheme, host and port. For an invalid URL, return its text."""
    try:
        parts = urlsplit(url)
        return parts.scheme, parts.hostname or "", parts.port or _PORTS.get(parts.scheme)
    except ValueError:
        return url
