"""RedisSink: a bolt that writes a key with a value, or with a hash, for each tuple.

    builder.set_bolt("write", RedisSink("count:{word}", url="redis://redis1:6379/0", value="count")).shuffle_grouping("count")

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
    TEXT,
    encoder_of,
    encoding_problem,
    fields_in,
    key_maker,
    key_problem,
    parts_of,
    taken,
)
from topology_api import InvalidConfig
from topology_api.wording import typed

if TYPE_CHECKING:
    from squall_io.redis.transactions import Row
    from topology_api import Context, Tuple

#: The longest life of a key, in seconds: longer ones overflow in Redis.
_MOST_SECONDS = 10**12


class RedisSink(RedisCommitting):
    """Writes a key for each tuple: with one value (SET), or with fields of a hash (HSET). Needs the extra `redis`.

    In a topology with `topology.state.path` each tuple is written once, in any other at least once. A later tuple with the same
    key replaces the value, or the fields of the hash that it has.

    key: the field that is the key, or a text with fields in braces: "count:{word}". A brace of the key itself is written twice.
    url: the server: "redis://redis1:6379/0"; "rediss://" for TLS; "unix:///run/redis.sock"; or the Sentinels that know it:
        "redis+sentinel://s1:26379,s2:26379/MASTER/0". It may name a user.
    value: the field that is the value; None in it deletes the key. Give either `value` or `fields`.
    fields: the fields that are written to a hash, under their names; None in a field removes it from the hash.
    ttl: the seconds after which Redis deletes the key, from its last write on; None: never.
    encode: how a value becomes bytes: "text" (text and bytes as they are, numbers as text, all else as JSON), "json", "str",
        "bytes", a function, or a codec.
    password: the name of the password: `env:NAME`, an environment variable of the workers, or `file:PATH`, a file on their
        hosts.
    tokens: what the keys begin with that say what was written. Do not delete or change these keys.
    """

    _made: Callable[[Tuple], Row]

    def __init__(
        self,
        key: str,
        *,
        url: str,
        value: str | None = None,
        fields: Sequence[str] | None = None,
        ttl: float | None = None,
        encode: str | Encode | MessageCodec = TEXT,
        password: str | None = None,
        tokens: str = "squall-tokens",
    ) -> None:
        problems = [
            problem
            for problem in (
                key_problem("key", key),
                *field_problems(value=value),
                fields_problem(fields),
                encoding_problem("encode", encode),
                *server_problems(url, password, tokens),
            )
            if problem is not None
        ]
        if (value is None) == (fields is None):
            problems.append(
                "give either value, the field that is written as it is, or fields, those of a hash"
            )
        if ttl is not None and (type(ttl) not in (int, float) or not 0.001 <= ttl <= _MOST_SECONDS):
            problems.append(f"ttl is {typed(ttl)}: give seconds, at least 0.001, or None")
        if problems:
            raise InvalidConfig(problems, type(self).__name__)
        self.key = key
        self.url = url
        self.value = value
        self.fields = names_in(fields)
        self.ttl = ttl
        self.encode = encode
        self.password = password
        self.tokens = tokens

    def used(self) -> list[str]:
        """Return the fields of a tuple that the sink needs."""
        written = [self.value] if self.value is not None else list(self.fields or ())
        return list(dict.fromkeys([*fields_in(parts_of(self.key, alone=True)), *written]))

    def prepare(self, context: Context) -> None:
        """Take what is needed to write. Redis is asked at the first write."""
        super().prepare(context)
        key = key_maker(parts_of(self.key, alone=True))
        encode = encoder_of(self.encode, self.key)
        millis = None if self.ttl is None else max(1, round(self.ttl * 1000))
        if self.value is not None:
            self._made = _value_row(key, self.value, encode, millis)
        else:
            self._made = _hash_row(key, self.fields or (), encode, millis)

    def row(self, tup: Tuple) -> Any:
        """Return the commands of a tuple. Raises FailTuple for a value that cannot be written."""
        return self._made(tup)


def _value_row(
    key: Callable[[Tuple], bytes], field: str, encode: Encode, millis: int | None
) -> Callable[[Tuple], Row]:
    lives: tuple[str | int, ...] = () if millis is None else ("PX", millis)

    def row(tup: Tuple) -> Row:
        name, value = key(tup), taken(tup, field)
        if value is None:
            return (("DEL", name),)
        return (("SET", name, encode(value), *lives),)

    return row


def _hash_row(
    key: Callable[[Tuple], bytes], fields: Sequence[str], encode: Encode, millis: int | None
) -> Callable[[Tuple], Row]:
    names = {field: field.encode() for field in fields}

    def row(tup: Tuple) -> Row:
        name = key(tup)
        there: list[bytes] = []
        removed: list[bytes] = []
        for field, written in names.items():
            value = taken(tup, field)
            if value is None:
                removed.append(written)
            else:
                there += (written, encode(value))
        commands: list[tuple[str | bytes | int, ...]] = []
        if there:
            commands.append(("HSET", name, *there))
        if removed:
            commands.append(("HDEL", name, *removed))
        if millis is not None:
            commands.append(("PEXPIRE", name, millis))
        return tuple(commands)

    return row
