"""Secrets that stand in headers: looked up, and refused where no header can have them.

Must not know: which headers there are, clients, servers.
"""

from __future__ import annotations

import re
from typing import Final

from squall_io.kit.secrets import NoSecret, resolve

#: Printable ASCII that begins and ends with no space.
_SECRET: Final = re.compile(r"[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?")


def header_secret(name: str, reference: str) -> str:
    """Return the secret that a reference names. Raises NoSecret, also for a secret that no header can have; no text shows it.

    name: the argument's name, for the error. An empty secret would be no protection.
    """
    secret = resolve(name, reference)
    if not secret:
        raise NoSecret(f"{name} is {reference}, which is empty: give it the secret")
    if not _SECRET.fullmatch(secret):
        raise NoSecret(
            f"{name} is {reference}, which no header can have: remove spaces and line ends around the secret, and"
            " characters that are not printable ASCII"
        )
    return secret
