"""Where a broker of MQTT is and how it is reached: the arguments that the spout and the sink share.

Must not know: clients, topics.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from squall_io.kit.server_address import ServerAddress, UrlForm, server_problems
from topology_api.wording import listed, typed

FORM: Final = UrlForm({"mqtt": 1883, "mqtts": 8883}, "mqtts")
#: The versions of the protocol.
VERSIONS: Final = ("5", "3.1.1")
#: The most seconds of the protocol's field for the keepalive.
_MOST_KEEPALIVE: Final = 65_535


class Broker(ServerAddress, frozen=True):
    """A broker. keepalive: seconds."""

    keepalive: int
    version: str

    @property
    def port(self) -> int:
        """The port."""
        return self.port_of(FORM)

    @property
    def is_encrypted(self) -> bool:
        """Whether connections use TLS."""
        return self.is_encrypted_by(FORM)

    def __str__(self) -> str:
        return f"MQTT at {self.host}:{self.port}"


def broker_problems(url: Any, password: Any, tls: Any, keepalive: Any, version: Any) -> Iterator[str]:
    """Yield what is wrong with the arguments of a `Broker`. No text shows a password."""
    yield from server_problems(FORM, url, password, tls)
    if type(keepalive) is not int or not 1 <= keepalive <= _MOST_KEEPALIVE:
        yield f"keepalive is {typed(keepalive)}: give seconds, 1 to {_MOST_KEEPALIVE}"
    if version not in VERSIONS:
        yield f"version is {typed(version)}: give one of {listed(VERSIONS)}"
