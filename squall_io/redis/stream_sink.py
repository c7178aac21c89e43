"""RedisStreamSink: a bolt that appends an entry to a stream of Redis for each tuple.

    builder.set_bolt("write", RedisStreamSink("orders", url="redis://redis1:6379/0", maxlen=100_000)).shuffle_grouping("orders")

Must not know: connections, transactions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from squall_io.kit.codecs import Encode, MessageCodec
from squall_io.redis.committing import (
    RedisCommitting,
    field_problems,
    fields_problem,
    names_in,
    server_problems,
)
from squall_io.redis.values import (
    as_text,
    encoder_of,
    encoding_problem,
    fields_in,
    key_maker,
    key_problem,
    parts_of,
    taken,
)
from topology_api import FailTuple, InvalidConfig
from topology_api.wording import typed

if TYPE_CHECKING:
    from squall_io.redis.transactions import Row
    from topology_api import Context, Tuple


class RedisStreamSink(RedisCommitting):
    """Appends an entry to a stream for each tuple. Needs the extra `redis`. A stream that does not exist is created.

    In a topology with `topology.state.path` each entry is there once, in any other at least once.

    stream: the key of the stream, which may have fields in braces: "orders:{country}". A brace of the key itself is written
        twice.
    url: the server: "redis://redis1:6379/0"; "rediss://" for TLS; "unix:///run/redis.sock"; or the Sentinels that know it:
        "redis+sentinel://s1:26379,s2:26379/MASTER/0". It may name a user.
    fields: the fields of a tuple that are written; None: all. None in a field leaves it out.
    field: the one field of an entry in which all is written, encoded: the value of `fields` if that is one name, else an
        object. None: an entry has the fields of the tuple, as text; lists and dicts are JSON.
    encode: with `field`, how the value becomes bytes: "json", "text", "str", "bytes", a function, or a codec.
    maxlen: the number of entries that Redis keeps of each stream, about: it trims older ones, read or not. None: all.
    password: the name of the password: `env:NAME`, an environment variable of the workers, or `file:PATH`, a file on their
        hosts.
    tokens: what the keys begin with that say what was written. Do not delete or change these keys.
    """

    _made: Callable[[Tuple], Row]

    def __init__(
        self,
        stream: str,
        *,
        url: str,
        fields: str | Sequence[str] | None = None,
        field: str | None = None,
        encode: str | Encode | MessageCodec = "json",
        maxlen: int | None = None,
        password: str | None = None,
        tokens: str = "squall-tokens",
    ) -> None:
        problems = [
            problem
            for problem in (
                key_problem("stream", stream),
                fields_problem(fields),
                *field_problems(field=field),
                encoding_problem("encode", encode),
                *server_problems(url, password, tokens),
            )
            if problem is not None
        ]
        if maxlen is not None and (type(maxlen) is not int or maxlen < 1):
            problems.append(f"maxlen is {typed(maxlen)}: give a number of entries, at least 1, or None")
        if problems:
            raise InvalidConfig(problems, type(self).__name__)
        self.stream = stream
        self.url = url
        #: One name is not the same as a list of one: with `field`, it is the value itself.
        self.fields = fields if isinstance(fields, str) else names_in(fields)
        self.field = field
        self.encode = encode
        self.maxlen = maxlen
        self.password = password
        self.tokens = tokens

    def used(self) -> list[str]:
        """Return the fields of a tuple that the sink needs."""
        return list(
            dict.fromkeys([*fields_in(parts_of(self.stream, alone=False)), *(names_in(self.fields) or ())])
        )

    def prepare(self, context: Context) -> None:
        """Take what is needed to write. Redis is asked at the first write."""
        super().prepare(context)
        key = key_maker(parts_of(self.stream, alone=False))
        pairs = (
            _pairs(self.fields)
            if self.field is None
            else _one(self.field, self.fields, self.encode, self.stream)
        )
        trim: tuple[str | int, ...] = () if self.maxlen is None else ("MAXLEN", "~", self.maxlen)
        self._made = lambda tup: (("XADD", key(tup), *trim, "*", *pairs(tup)),)

    def row(self, tup: Tuple) -> Any:
        """Return the command of a tuple. Raises FailTuple for a value that cannot be written."""
        return self._made(tup)


def _pairs(fields: str | tuple[str, ...] | None) -> Callable[[Tuple], list[bytes]]:
    """Return what makes the names and values of an entry."""
    names = names_in(fields)

    def pairs(tup: Tuple) -> list[bytes]:
        made: list[bytes] = []
        for name in tup.fields if names is None else names:
            if (value := taken(tup, name)) is not None:
                made += (name.encode(), as_text(value))
        if not made:
            raise FailTuple("all fields of the entry are None: an entry has at least one")
        return made

    return pairs


def _one(
    field: str, fields: str | tuple[str, ...] | None, encode: str | Encode | MessageCodec, stream: str
) -> Callable[[Tuple], list[bytes]]:
    """Return what makes the one field of an entry."""
    name, write = field.encode(), encoder_of(encode, stream)
    if isinstance(fields, str):
        alone = fields
        return lambda tup: [name, write(taken(tup, alone))]
    return lambda tup: [name, write({each: taken(tup, each) for each in fields or tup.fields})]
