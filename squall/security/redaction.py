"""The parts of a configuration that may be shown: everything except secrets.

A value is hidden, at any depth, if a word of its key suggests a secret (`db.password`, `apiKey`, `aws_secret_access_key`). The
word `key` suggests a secret too, unless the word before it is harmless (`partition_key`). If words are joined without a
separator (`privatekey`), a list says which of them suggest a secret. In other texts, the usual places of credentials are
hidden: the user part of a URL, and `password=...` in a query or a connection string. Squall's own options hold no secrets, only
the paths of files.
Must not know: who asks, where the configuration comes from.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from topology_api.options import OPTIONS

HIDDEN: Final = "(hidden)"

_SECRET_WORDS: Final = frozenset({
    "password", "passwords", "passwd", "passphrase", "passphrases", "pass", "pwd", "pw",
    "secret", "secrets", "token", "tokens", "key", "keys", "credential", "credentials", "cred", "creds",
    "authorization", "auth", "bearer", "cookie", "cookies", "sas",
})  # fmt: skip
#: These words suggest a secret even when joined to other words: `dbpassword`, `MYSECRET`, `accesstoken`.
_SECRET_PARTS: Final = (
    "password", "passwd", "passphrase", "secret", "token", "credential", "accesskey", "accountkey", "apikey", "authkey",
    "encryptionkey", "masterkey", "privatekey", "sharedkey", "signingkey", "sshkey",
)  # fmt: skip
#: After one of these words, `key` means a field of the user's data or a public key. `primary` and `routing` are not in the
#: list, because a service's primary key or routing key is a secret.
_HARMLESS_BEFORE_KEY: Final = frozenset({
    "dedup", "foreign", "grouping", "join", "message", "partition", "public", "range", "record", "row", "shard", "sort",
})  # fmt: skip
_WORDS: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
#: Each of these patterns can match only at the start of a word, so that the time for a text grows linearly with its length.
_PAIR: Final = re.compile(
    r"(?<![\w.-])(?P<key>[\w.-]+)(?P<equals>\s*=\s*)(?P<value>'[^']*'|\"[^\"]*\"|[^\s&;,]+)"
)
_WORD: Final = re.compile(r"\S+")
_AFTER_AUTHORITY: Final = re.compile(r"[/?#]")
_PORT: Final = re.compile(r"\d*$")


def redacted(conf: Mapping[str, object]) -> dict[str, object]:
    """Return a copy of a configuration with `(hidden)` in place of each secret."""
    return {key: _shown(key, value) for key, value in conf.items()}


def is_secret(key: str) -> bool:
    """Return whether the name of a setting suggests that its value is a secret."""
    if key in OPTIONS:
        return False
    words = [word.lower() for word in _WORDS.findall(key)]
    return any(map(_is_secret_word, words, ["", *words]))


def redacted_text(text: str) -> str:
    """Return a text with `(hidden)` in the usual places of credentials."""
    return _PAIR.sub(_pair, _WORD.sub(lambda word: _without_users(word[0]), text))


def _is_secret_word(word: str, before: str) -> bool:
    if word in ("key", "keys") and before in _HARMLESS_BEFORE_KEY:
        return False
    return word in _SECRET_WORDS or any(part in word for part in _SECRET_PARTS)


def _shown(key: str, value: object) -> object:
    if is_secret(key):
        return value if value is None or isinstance(value, bool) else HIDDEN
    return _inside(value)


def _inside(value: object) -> object:
    if isinstance(value, str):
        return redacted_text(value)
    if isinstance(value, Mapping):
        return {key: _shown(str(key), inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_inside(inner) for inner in value]
    return value


def _pair(found: re.Match[str]) -> str:
    return f"{found['key']}{found['equals']}{HIDDEN}" if is_secret(found["key"]) else found[0]


def _without_users(word: str) -> str:
    """Remove the user part from the URLs in a text. The text must not contain blanks."""
    shown: list[str] = []
    done = 0
    while (at := word.find("://", done)) >= 0:
        start = at + 3
        shown.append(word[done:start])
        after = _AFTER_AUTHORITY.search(word, start)
        end = len(word) if after is None else after.start()
        done = word.rfind("@", start, end)
        if done < 0 and not _PORT.match(word, word.find(":", start, end) + 1 or end, end):
            done = word.rfind("@", end)  # a password with an unquoted / in it
        if done < 0:
            done = start
        else:
            shown.append(HIDDEN)
    return "".join((*shown, word[done:]))
