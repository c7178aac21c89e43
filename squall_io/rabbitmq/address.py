"""What addresses and names of RabbitMQ look like: a URL with a virtual host, and short texts.

Must not know: clients, connections.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from squall_io.kit.server_address import ServerAddress, UrlForm, server_problems
from topology_api.wording import typed

FORM: Final = UrlForm({"amqp": 5672, "amqps": 5671}, "amqps", has_path=True)
#: The virtual host of a URL without one.
DEFAULT_VHOST: Final = "/"
#: The most bytes of what the protocol calls a short string: a name, a routing key, the id of a message.
MOST_SHORT: Final = 255


def shown_server(server: ServerAddress) -> str:
    """Return how a server is named, for people."""
    return f"RabbitMQ at {server.host}:{server.port_of(FORM)}"


def vhost_of(url: str) -> str:
    """Return the virtual host that a URL names."""
    return unquote(urlsplit(url).path[1:]) or DEFAULT_VHOST


def address_problems(url: Any, password: Any, tls: Any) -> Iterator[str]:
    """Yield what is wrong with the arguments of a server. No text shows a password."""
    problems = list(server_problems(FORM, url, password, tls))
    if not problems and "/" in urlsplit(url).path[1:]:
        problems.append(
            f'url is {url!r}, with more than a virtual host behind the port: give "amqp://HOST:PORT/VHOST", and write %2F'
            " for a / in its name"
        )
    yield from problems


def short_problem(what: str, text: object, empty: bool = False) -> str | None:
    """Return why the protocol cannot send a text as a name or routing key; None if it can. empty: whether it may be empty."""
    if isinstance(text, str) and (text or empty) and len(text.encode(errors="replace")) <= MOST_SHORT:
        return None
    return f"{what} is {typed(text)}: give text of at most {MOST_SHORT} bytes{'' if empty else ', which is not empty'}"
