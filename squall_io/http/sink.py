"""HttpSink: each row of a stream as a request to an HTTP server.

    builder.set_bolt("post", HttpSink("https://api.example.org/orders/{id}", key="id")).shuffle_grouping("orders")

At least once. Each request has an `Idempotency-Key`: with a receiver that knows it, a row counts once.
Must not know: the client, what answers mean.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from squall_io.http.posting import METHODS, Poster, PostSettings
from squall_io.http.targets import (
    fields_in,
    filled,
    header_problems,
    key_of,
    resolved_headers,
    target_problem,
)
from squall_io.kit.codecs import Encode, MessageCodec, encoder, format_problem
from topology_api import Bolt, InvalidConfig
from topology_api.wording import listed, typed

if TYPE_CHECKING:
    from topology_api import Context, Fields, Tuple

#: The content type of each format.
_TYPES: Final = {"json": "application/json", "str": "text/plain; charset=utf-8"}


class HttpSink(Bolt):
    """Sends each tuple as a request, up to `max_concurrency` at a time. Needs the extra `http`.

    A tuple is acked when the receiver answers 2xx. An answer that promises nothing (no connection, 408, 425, 429, 5xx) is
    waited out, as `Retry-After` says; any other one fails the tuple with the status and the beginning of the answer.

    url: where to send: `https://api.example.org/orders/{id}`, with fields of the tuple in its path and query, which are
        percent-encoded.
    method: "POST", "PUT" or "PATCH".
    fields: the field that is the body, or a list of fields, which are sent as one object; None: an object of all fields.
    encode: how the body becomes bytes: "json", "str", "bytes", or a function that returns bytes.
    headers: further headers. A secret is named, also behind a word: {"Authorization": "Bearer env:API_TOKEN"}.
    key: the field, or the fields, that make the header `Idempotency-Key`: the same for each try of a row, also after a replay
        or a restart. None: a key of its own for each time that a tuple is executed, so only tries within that are known.
    timeout: the seconds for a connection, and for each wait for a part of an answer.
    patience: the seconds for which a row is tried again before its tuple fails, and is emitted again as `Spout.replay` says.
        The last try may take `timeout` longer.
    max_concurrency: the most requests of a task at a time.
    ca: a file of PEM on the workers' hosts with the authorities that may sign the receiver's certificate; None: the usual ones.
    """

    def __init__(
        self,
        url: str,
        *,
        method: str = "POST",
        fields: str | Sequence[str] | None = None,
        encode: str | Encode = "json",
        headers: Mapping[str, str] | None = None,
        key: str | Sequence[str] | None = None,
        timeout: float = 10.0,
        patience: float = 30.0,
        max_concurrency: int = 32,
        ca: str | None = None,
    ) -> None:
        problems = [
            *filter(None, [target_problem(url), format_problem("encode", encode)]),
            *_names_problems("fields", fields),
            *_names_problems("key", key),
            *header_problems(headers),
            *_limit_problems(timeout, patience, max_concurrency),
        ]
        if isinstance(encode, MessageCodec):
            problems.append(f"encode is {typed(encode)}: give 'json', 'str', 'bytes' or a function")
        if method not in METHODS:
            problems.append(f"method is {typed(method)}: give one of {listed(METHODS)}")
        if ca is not None and (not isinstance(ca, str) or not os.path.isabs(ca)):
            problems.append(f"ca is {typed(ca)}: give the absolute path of a file on the workers' hosts")
        if problems:
            raise InvalidConfig(problems, type(self).__name__)
        self.url, self.method = url, method
        self.fields = fields if fields is None or isinstance(fields, str) else tuple(fields)
        self.encode = encode
        self.headers = dict(headers or {})
        self.key = (key,) if isinstance(key, str) else None if key is None else tuple(key)
        self.timeout, self.patience = float(timeout), float(patience)
        self.max_concurrency = max_concurrency
        self.ca = ca
        self._poster: Poster | None = None

    def used(self) -> list[str]:
        """Return the fields that the sink needs of each tuple."""
        body = [self.fields] if isinstance(self.fields, str) else list(self.fields or ())
        return list(dict.fromkeys([*body, *fields_in(self.url), *(self.key or ())]))

    def guarantee_conditions(self, component: str) -> Iterable[str]:
        """Say on what it depends that a row counts once."""
        if self.key is not None:
            yield f"the receiver of {component!r} counts requests with the same Idempotency-Key once: then a row twice is one"

    def input_problems(self, inputs: Mapping[tuple[str, str], Fields]) -> Iterable[str]:
        """Yield each input that lacks a field."""
        for (component, stream), fields in inputs.items():
            for name in self.used():
                if name not in fields:
                    yield (
                        f"stream {stream!r} of component {component!r} has no field {name!r} to send; it has: {listed(fields)}"
                    )

    def prepare(self, context: Context) -> None:
        """Look up the secrets. The receiver is asked by the first row. Raises SquallError."""
        kind = self.encode if isinstance(self.encode, str) else ""
        headers = {"content-type": _TYPES.get(kind, "application/octet-stream")}
        given = resolved_headers(self.headers)
        headers = {**headers, **{name.lower(): value for name, value in given.items()}}
        settings = PostSettings(
            self.method, headers, self.timeout, self.patience, self.max_concurrency, self.ca
        )
        self._encoded = encoder(self.encode)
        self._target = filled(self.url)
        self._poster = Poster(settings, self.url, context)

    async def execute(self, tup: Tuple) -> None:
        """Send a tuple. Raises FailTuple for one that cannot be sent, or that the receiver refuses."""
        assert self._poster is not None, "prepare was called"
        row = dict(zip(tup.fields, tup.values, strict=True))
        fields = self.fields
        if isinstance(fields, str):
            body = self._encoded(row[fields])
        else:
            body = self._encoded(row if fields is None else {name: row[name] for name in fields})
        key = uuid.uuid4().hex if self.key is None else key_of(self.key, row)
        await self._poster.send(self._target(row), body, key)

    def cleanup(self) -> None:
        """Close the connections."""
        if self._poster is not None:
            self._poster.close()


def _names_problems(argument: str, names: object) -> Iterator[str]:
    if names is None or (isinstance(names, str) and names):
        return
    good = isinstance(names, Sequence) and not isinstance(names, (str, bytes)) and bool(names)
    if not good or not all(isinstance(name, str) for name in names):  # type: ignore[attr-defined]
        yield f"{argument} is {typed(names)}: give a field, a list of fields, or None"


def _limit_problems(timeout: object, patience: object, max_concurrency: object) -> Iterator[str]:
    for name, seconds in (("timeout", timeout), ("patience", patience)):
        if type(seconds) not in (int, float) or not 0 < seconds <= 3600:  # type: ignore[operator]
            yield f"{name} is {typed(seconds)}: give seconds, more than 0 and at most 3600"
    if type(max_concurrency) is not int or not 1 <= max_concurrency <= 10_000:
        yield f"max_concurrency is {typed(max_concurrency)}: give a number of requests, 1 to 10000"
