"""The address of a Redis server: what it may have, how it is shown, and what a client of redis-py needs of it.

Must not know: clients, tuples.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit, urlunsplit

from squall_io.kit.secrets import secret_problem, url_problem
from topology_api.wording import listed, shown

#: What an address begins with: plain, with TLS, and a socket of this host.
SCHEMES: Final = ("redis", "rediss", "unix")
#: The options of an address. The paths are those of the workers' hosts.
OPTIONS: Final = (
    "client_name", "db", "ssl_ca_certs", "ssl_ca_path", "ssl_cert_reqs", "ssl_certfile", "ssl_check_hostname", "ssl_keyfile",
)  # fmt: skip
_FORM: Final = "give redis://HOST:PORT/DATABASE, rediss:// for TLS, or unix:///PATH"


def url_problems(url: object, password: object) -> Iterator[str]:
    """Yield what is wrong with the address of a server and the name of its password. No text shows a secret."""
    if password is not None and (problem := secret_problem("password", password)) is not None:
        yield problem
    if (problem := url_problem("url", url, "password")) is not None:
        yield problem
        return
    text = str(url)
    parts = urlsplit(text)
    if parts.scheme not in SCHEMES:
        yield f"url is {shown(text)}: {_FORM}"
        return
    try:
        known = parts.port
    except ValueError:
        yield f"url is {shown(text)}, whose port is no number: {_FORM}"
        return
    if known is None and parts.scheme != "unix" and not parts.hostname:
        yield f"url is {shown(text)}, without a host: {_FORM}"
    if parts.scheme == "unix" and not parts.path.startswith("/"):
        yield f"url is {shown(text)}, without a path: {_FORM}"
    database = parts.path.strip("/")
    if parts.scheme != "unix" and database and not database.isdecimal():
        yield f"url is {shown(text)}: its database {shown(database)} is no number; {_FORM}"
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name not in OPTIONS:
            yield f"url has the option {shown(name)}: it takes {listed(OPTIONS)}; name a password with password=env:NAME"
        elif name == "db" and not value.isdecimal():
            yield f"url has db={value}: give the number of a database"


def shown_address(url: str) -> str:
    """Return the address for texts: without user and options."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def client_settings(password: str | None, seconds: float) -> dict[str, Any]:
    """Return the settings of a client beside its address. seconds: for how long an answer is awaited."""
    settings: dict[str, Any] = {
        "protocol": 3,
        "socket_timeout": seconds,
        "socket_connect_timeout": seconds,
        "socket_keepalive": True,
        "decode_responses": False,
    }
    return settings if password is None else {**settings, "password": password}
