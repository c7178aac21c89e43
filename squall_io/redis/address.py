"""The address of a Redis server: what it may have, how it is shown, and what a client of redis-py needs of it.

Must not know: clients, tuples.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl, urlsplit, urlunsplit

from squall_io.kit.secrets import secret_problem, url_problem
from topology_api.wording import listed, shown

#: What an address begins with: plain, with TLS, and a socket of this host.
SCHEMES: Final = ("redis", "rediss", "unix")
#: What follows the scheme in an address that names Sentinels, which know the master.
SENTINEL: Final = "+sentinel"
#: The options of an address. The paths are those of the workers' hosts.
OPTIONS: Final = (
    "client_name", "db", "ssl_ca_certs", "ssl_ca_path", "ssl_cert_reqs", "ssl_certfile", "ssl_check_hostname", "ssl_keyfile",
)  # fmt: skip
_FORM: Final = "give redis://HOST:PORT/DATABASE, rediss:// for TLS, unix:///PATH, or redis+sentinel://HOST:PORT,HOST:PORT/MASTER/DATABASE"
_HOST: Final = re.compile(r"([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::([0-9]{1,5}))?")
_SENTINEL_PORT: Final = 26379
_HIGHEST_PORT: Final = 65_535
#: What options of TLS may be.
_CHOICES: Final = {
    "ssl_check_hostname": ("true", "false"),
    "ssl_cert_reqs": ("required", "optional", "none"),
}


class Sentinels(NamedTuple):
    """Who is asked for the address of a master, and its name."""

    hosts: tuple[tuple[str, int], ...]
    master: str


def url_problems(url: object, password: object) -> Iterator[str]:
    """Yield what is wrong with the address of a server and the name of its password. No text shows a secret."""
    if password is not None and (problem := secret_problem("password", password)) is not None:
        yield problem
    if (problem := url_problem("url", url, "password")) is not None:
        yield problem
        return
    text = _harmless(str(url))
    parts = urlsplit(str(url))
    scheme, plus, kind = parts.scheme.partition("+")
    if scheme not in SCHEMES or (plus and (plus + kind != SENTINEL or scheme == "unix")):
        yield f"url is {text}: {_FORM}"
        return
    hosts = parts.netloc.rpartition("@")[2].split(",")
    if scheme == "unix":
        if not parts.path.startswith("/"):
            yield f"url is {text}, without a path: {_FORM}"
    elif not all(map(_is_host, hosts)) or (len(hosts) > 1 and not plus):
        yield f"url is {text}, whose host or port is none: {_FORM}"
    database = parts.path.strip("/")
    if plus:
        master, _, database = database.partition("/")
        if not master:
            yield f"url is {text}, without the name of a master: {_FORM}"
    if scheme != "unix" and database and not database.isdecimal():
        yield f"url is {text}, whose database is no number: {_FORM}"
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if (problem := _option_problem(name, value, scheme == "rediss")) is not None:
            yield problem


def _option_problem(name: str, value: str, has_tls: bool) -> str | None:
    if name not in OPTIONS:
        return f"url has the option {shown(name)}: it takes {listed(OPTIONS)}; name a password with password=env:NAME"
    if name == "db" and not value.isdecimal():
        return f"url has db={value}: give the number of a database"
    if not name.startswith("ssl_"):
        return None
    if not has_tls:
        return f"url has the option {name!r}, which is for TLS: begin it with rediss"
    if (given := _CHOICES.get(name)) is not None and value not in given:
        return f"url has {name}={value}: give {' or '.join(given)}"
    return None


def _is_host(text: str) -> bool:
    found = _HOST.fullmatch(text)
    return found is not None and (found[2] is None or 0 < int(found[2]) <= _HIGHEST_PORT)


def _harmless(url: str) -> str:
    """Return an address as a problem shows it: what may be a password is left out."""
    address = shown_address(url)
    return "not shown, since it has an @ where no user ends" if "@" in address else shown(address)


def sentinels_of(url: str) -> Sentinels | None:
    """Return the Sentinels that an address names; None: it names the server itself."""
    parts = urlsplit(url)
    if not parts.scheme.endswith(SENTINEL):
        return None
    found = [_HOST.fullmatch(each) for each in parts.netloc.rpartition("@")[2].split(",")]
    hosts = tuple((each[1].strip("[]"), int(each[2] or _SENTINEL_PORT)) for each in found if each is not None)
    return Sentinels(hosts, parts.path.strip("/").partition("/")[0])


def url_of_master(url: str, host: str, port: int) -> str:
    """Return the address of the master that Sentinels know, with the user, database and options of theirs."""
    parts = urlsplit(url)
    user, at, _ = parts.netloc.rpartition("@")
    place = f"[{host}]" if ":" in host else host
    database = parts.path.strip("/").partition("/")[2]
    scheme = parts.scheme.removesuffix(SENTINEL)
    return urlunsplit((scheme, f"{user}{at}{place}:{port}", f"/{database}", parts.query, ""))


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
