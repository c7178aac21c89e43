"""Where a row is sent and with what: URLs with fields, headers with secrets, and the key by which a receiver knows a row.

Must not know: clients, what answers mean.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote, urlsplit

import msgspec

from squall_io.http.header_secrets import header_secret
from squall_io.kit.secrets import FORMS, is_reference, url_problem
from topology_api import FailTuple
from topology_api.wording import shown, typed

_FIELD: Final = re.compile(r"\{([^{}]*)\}")
_HEADER: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_TEXT: Final = re.compile(r"[\x20-\x7e\t]*")
#: A key that may be a header as it is.
_PLAIN_KEY: Final = re.compile(r"[\x21-\x7e]{1,200}")
#: Parts of the names of headers that hold secrets.
_SECRET: Final = ("authorization", "token", "secret", "password", "cookie", "api-key", "apikey", "signature")
#: Headers that the sink sets itself.
_DECIDED: Final = frozenset(("content-length", "transfer-encoding", "host", "connection", "idempotency-key"))
#: Values of fields that may stand in a URL.
_IN_URL: Final = (str, int, float)


def fields_in(url: str) -> list[str]:
    """Return the fields that a URL names, each as {field}."""
    return list(dict.fromkeys(_FIELD.findall(url)))


def target_problem(url: object) -> str | None:
    """Return why an argument is no URL to send to; None if it is one."""
    if (problem := url_problem("url", url, "headers")) is not None:
        if isinstance(url, str) and "password" in problem:
            return 'url has a password, and a topology holds no secrets: give headers={"Authorization": "Basic env:NAME"}'
        return problem
    assert isinstance(url, str)
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return f"url is {shown(url)}: give http://HOST/PATH or https://HOST/PATH"
    if "{" in parts.netloc or "}" in parts.netloc:
        return f"url is {shown(url)}: fields may stand in its path and its query, not in its host"
    if parts.fragment:
        return f"url is {shown(url)}: leave out what follows `#`, which is not sent"
    if any(not name.strip() for name in _FIELD.findall(url)) or re.search("[{}]", _FIELD.sub("", url)):
        return f"url is {shown(url)}: a brace belongs to a field, as in /orders/{{id}}"
    return None


def header_problems(headers: object) -> Iterator[str]:
    """Yield what is wrong with the argument. No text shows a value."""
    if headers is None:
        return
    if not isinstance(headers, Mapping):
        yield f'headers is {typed(headers)}: give a dict, {{"X-Source": "shop"}}'
        return
    for name, value in headers.items():
        if not isinstance(name, str) or not _HEADER.fullmatch(name):
            yield f"headers has {typed(name)}, which is no name of a header"
        elif name.lower() in _DECIDED:
            yield f"headers has {name!r}, which the sink sets itself: leave it out"
        elif not isinstance(value, str) or not _TEXT.fullmatch(value) or value != value.strip():
            yield f"headers[{name!r}] is no printable ASCII text without spaces around it"
        elif any(part in name.lower() for part in _SECRET) and not is_reference(value.rpartition(" ")[2]):
            yield f"headers[{name!r}] may be a secret, and a topology holds none: give {FORMS}, as in 'Bearer env:NAME'"


def resolved_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Return headers with the secrets that they name. Raises NoSecret."""
    found = {}
    for name, value in headers.items():
        before, space, last = value.rpartition(" ")
        secret = is_reference(last)
        found[name] = f"{before}{space}{header_secret(f'headers[{name!r}]', last)}" if secret else value
    return found


def filled(url: str) -> Callable[[Mapping[str, Any]], str]:
    """Return what makes the URL of a row. It raises FailTuple for a value that cannot stand in one."""

    def value_of(row: Mapping[str, Any], name: str) -> str:
        value = row[name]
        if not isinstance(value, _IN_URL) or isinstance(value, bool) or value == "":
            raise FailTuple(f"field {name!r} is {typed(value)}, which cannot stand in a URL")
        try:
            text = quote(str(value), safe="")
        except UnicodeEncodeError:
            raise FailTuple(f"field {name!r} is {typed(value)}, which is no valid Unicode text") from None
        return text if text.strip(".") else text.replace(".", "%2E")  # "." and ".." would be other paths

    return lambda row: _FIELD.sub(lambda match: value_of(row, match[1]), url)


def key_of(names: Sequence[str], row: Mapping[str, Any]) -> str:
    """Return the idempotency key of a row: the same for the same values of these fields, in any process.

    One field of text or whole numbers is the key as it is, if a header can have it; all else is hashed.
    """
    values = [row[name] for name in names]
    if len(values) == 1 and type(values[0]) in (str, int) and _PLAIN_KEY.fullmatch(text := str(values[0])):
        return text
    try:
        data = msgspec.json.encode(values, order="deterministic")
    except (msgspec.MsgspecError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise FailTuple(f"the key {shown(values)} cannot be written as JSON: {error}") from None
    return hashlib.sha256(data).hexdigest()
