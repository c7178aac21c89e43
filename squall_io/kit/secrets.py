"""Secrets of connectors: passwords and keys are named where the topology is built, and looked up where it runs.

A topology is pickled, lies in ZooKeeper and is copied from host to host, so no secret may be in it. A connector takes
`env:NAME`, an environment variable of the worker, or `file:PATH`, a file on the worker's host, and resolves it in `open` or
`prepare`. An address with a password in it is refused when the topology is built.
Must not know: connectors.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from topology_api import SquallError
from topology_api.wording import class_name

#: What each form of a reference begins with.
ENV: Final = "env:"
FILE: Final = "file:"
#: What to give instead of a secret.
FORMS: Final = "env:NAME (an environment variable of the workers) or file:PATH (a file on their hosts)"

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
#: The most bytes of a file that holds a secret: larger ones are something else.
_MOST_BYTES: Final = 65_536


class NoSecret(SquallError):
    """A secret that a connector names is not there, or cannot be read."""


def secret_problem(name: str, value: object) -> str | None:
    """Return why an argument does not name a secret; None if it does. The text never shows the value: it may be the secret.

    name: the argument's name. value: `env:NAME`, or `file:PATH` with an absolute path.
    """
    if not isinstance(value, str):
        return f"{name} is a {class_name(value)}: give {FORMS}"
    if value.startswith(ENV) and _NAME.fullmatch(value, len(ENV)):
        return None
    if value.startswith(FILE) and os.path.isabs(value[len(FILE) :]):
        return None
    if value.startswith(FILE):
        return f"{name} names a file without its whole path: give {FORMS}, with an absolute path"
    return f"{name} has the secret itself, or no valid name of one: a topology holds no secrets; give {FORMS}"


def is_reference(value: object) -> bool:
    """Return whether a value names a secret."""
    return secret_problem("", value) is None


def resolve(name: str, reference: str) -> str:
    """Return the secret that a reference names. Raises NoSecret.

    name: the argument's name, for the error. A file's last newline is not part of the secret.
    """
    if reference.startswith(ENV):
        variable = reference[len(ENV) :]
        if (value := os.environ.get(variable)) is None:
            raise NoSecret(
                f"{name} is {reference}, and the environment of the worker has no {variable}: set it where the worker"
                " is started"
            )
        return value
    path = Path(reference[len(FILE) :])
    try:
        with path.open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
        if len(data) > _MOST_BYTES:
            raise NoSecret(
                f"{name} is {reference}, which has more than {_MOST_BYTES} bytes: it holds no secret"
            )
        return data.decode().removesuffix("\n").removesuffix("\r")
    except OSError as error:
        raise NoSecret(
            f"{name} is {reference}, which cannot be read on this host: {error.strerror}; put it on each host of a worker"
        ) from None
    except UnicodeDecodeError:
        raise NoSecret(f"{name} is {reference}, which is no text in UTF-8") from None


def resolved(settings: Mapping[str, object]) -> dict[str, object]:
    """Return settings with what their references name; all other values stay as they are. Raises NoSecret."""
    return {
        name: resolve(name, value) if isinstance(value, str) and is_reference(value) else value
        for name, value in settings.items()
    }


def url_problem(name: str, url: object, instead: str) -> str | None:
    """Return why a URL cannot be an argument: it is no text, or has a password. The text shows neither.

    instead: the argument that names the password: "password".
    """
    if not isinstance(url, str):
        return f"{name} is a {class_name(url)}: give text"
    try:
        parts = urlsplit(url)
        password = parts.password
    except ValueError:
        return f"{name} is no URL"
    if password is None and ":" in parts.netloc and "@" in parts.path + parts.query + parts.fragment:
        # A password with a / in it ends the host too early: what follows would be shown, or kept.
        return (
            f"{name} has an @ behind its port: if a password is before it, leave it out and name it with {instead}={ENV}NAME;"
            " else write %40 for the @"
        )
    if password is None:
        return None
    return f"{name} has a password, and a topology holds no secrets: leave it out, and name it with {instead}={ENV}NAME"


def user_of(url: str) -> str | None:
    """Return the user that a URL names; None: it names none."""
    user = urlsplit(url).username
    return None if user is None else unquote(user)
