"""The address of a database: what is wrong with one, and the same with its password, which only workers know.

Must not know: connections, components.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from squall_io.kit.secrets import resolve, secret_problem, url_problem
from topology_api import InvalidConfig, SquallError

if TYPE_CHECKING:
    from sqlalchemy import URL

#: What is in the names of options after "?" that hold a password, or with odbc_connect anything.
_IN_QUERIES: Final = ("password", "passwd", "passphrase", "pwd", "secret", "token", "odbc_connect")


def parsed(url: object, component: str) -> URL:
    """Return a URL as SQLAlchemy has it. Raises InvalidConfig for other texts, and SquallError if SQLAlchemy is missing.

    component: the name of the class that the URL is for. No error shows the URL: it may hold a password.
    """
    try:
        from sqlalchemy import make_url
        from sqlalchemy.exc import ArgumentError
    except ImportError:
        raise SquallError(f"{component} needs SQLAlchemy: install Squall with its extra `sql`") from None
    try:
        return make_url(url)  # type: ignore[arg-type]
    except (ArgumentError, ValueError):
        raise InvalidConfig(
            ["url is no address of a database: give one like sqlite:///file.db"], component
        ) from None


def address_problems(url: URL, password: object) -> list[str]:
    """Return what is wrong with the arguments `url` and `password` of a component."""
    problems = []
    if (problem := url_problem("url", url.render_as_string(hide_password=False), "password")) is not None:
        problems.append(problem)
    elif any(part in name.lower() for name in url.query for part in _IN_QUERIES):
        problems.append(
            "url has a password behind its `?`, and a topology holds no secrets: leave it out, and name it with"
            " password=env:NAME"
        )
    if password is not None and (problem := secret_problem("password", password)) is not None:
        problems.append(problem)
    return problems


def shown_url(url: URL) -> str:
    """Return a URL for people: without its password and its query, which may hold one."""
    return url.set(query={}).render_as_string(hide_password=True)


def with_password(url: URL, password: str | None) -> URL:
    """Return the URL with the password that a reference names. Raises NoSecret."""
    if password is None:
        return url
    return url.set(password=resolve(f"the password for {shown_url(url)}", password))
