"""Writes to Redis: the commands of rows, with or without a token, are one transaction.

A token's key is watched (WATCH) from the look at its number on: if it changes until EXEC, nothing is done. Rights, memory and
the state of the server are checked by Redis when the commands are queued: if one is refused there, nothing is done. Only a key
that holds another type is found in EXEC, which carries out all other commands. So the types of keys are looked at before. A
client that gives a key another type between this look and EXEC makes the row's command fail, which is the same as if the row
had been written just before: the client would have replaced it.
Must not know: tuples, topologies.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from squall_io.kit.waiting import Waiting
from squall_io.redis.connection import Command, RedisAway, RedisConnection, RedisRefused
from topology_api import RowsRefused, SquallError

T = TypeVar("T")
#: The commands of a row.
Row = tuple[Command, ...]

#: The longest sleep while Redis is away: then the sink looks whether it is stopped.
STEP: Final = 0.5
#: What a server takes as one value if it does not say otherwise (`proto-max-bulk-len`).
MOST_BYTES: Final = 512 * 1024 * 1024
#: No row with values smaller than this is looked at: the server takes at least 1 MB.
_SMALL: Final = 1024 * 1024
#: What a key must hold for a command; other commands take any key.
_KINDS: Final = {"HSET": b"hash", "HDEL": b"hash", "XADD": b"stream"}


class TokenWentBack(SquallError):
    """The number of a token is lower than it was: Redis has lost writes that it had confirmed."""


class RedisTransactions:
    """Writes by one connection.

    tokens: what the keys of tokens begin with. stopped: whether a call that waits has to end.
    """

    def __init__(
        self, connection: RedisConnection, tokens: str, waiting: Waiting, stopped: Callable[[], bool]
    ) -> None:
        self._connection = connection
        self._tokens = tokens
        self._waiting, self._stopped = waiting, stopped
        #: The highest number of each token that was read or written.
        self._highest: dict[str, int] = {}
        self._most: int | None = None

    def number(self, token: str) -> int:
        """Return the number of a token; 0 if there is none. Raises TokenWentBack."""
        return self._until_answered(
            lambda: self._checked(token, self._connection.ask("GET", self._key(token)))
        )

    def write(self, rows: Sequence[Row]) -> None:
        """Write rows in one transaction. Raises RowsRefused, with nothing written."""
        self._until_answered(lambda: self._write(rows, None, 0, 0))

    def write_once(self, rows: Sequence[Row], token: str, expected: int, epoch: int) -> bool:
        """Write rows and set the token, if its number is `expected`; return whether it was. Raises RowsRefused and
        TokenWentBack, with nothing written.

        An answer that is lost is no answer: then the number of the token is looked at again, and is another one if the rows
        were written.
        """
        return self._until_answered(lambda: self._write(rows, token, expected, epoch))

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _until_answered(self, call: Callable[[], T]) -> T:
        """Make a call until Redis answers it. Raises RedisAway if the task is stopped meanwhile."""
        while True:
            try:
                answer = call()
            except RedisAway as error:
                end = time.monotonic() + self._waiting.failed(str(error))
                while (left := end - time.monotonic()) > 0 and not self._stopped():
                    time.sleep(min(left, STEP))
                if self._stopped():
                    raise
            else:
                self._waiting.succeeded()
                return answer

    def _write(self, rows: Sequence[Row], token: str | None, expected: int, epoch: int) -> bool:
        commands = [command for row in rows for command in row]
        kinds = {
            command[1]: kind for command in commands if (kind := _KINDS.get(str(command[0]))) is not None
        }
        self._refuse_large(rows)
        while True:
            if kinds or token is not None:
                number, held = self._looked_at(token, list(kinds))
                if token is not None and self._checked(token, number) != expected:
                    self._connection.ask("UNWATCH")
                    return False
                self._refuse_types(rows, kinds, held)
            setting: list[Command] = [] if token is None else [("SET", self._key(token), epoch)]
            if self._done([*commands, *setting]):
                if token is not None:
                    self._highest[token] = epoch
                return True

    def _looked_at(self, token: str | None, keys: list[Any]) -> tuple[Any, dict[Any, bytes]]:
        """Watch the token; return its number, and what each key holds."""
        asked: list[Command] = []
        if token is not None:
            asked += [("WATCH", self._key(token)), ("GET", self._key(token))]
        answers = self._connection.call(*asked, *(("TYPE", key) for key in keys))
        for each in answers:
            if self._connection.is_fault(each):
                raise self._connection.fault_in(each)
        return (answers[1] if asked else None), dict(zip(keys, answers[len(asked) :]))

    def _done(self, commands: list[Command]) -> bool:
        """Carry out a transaction; return whether it was: not if the token has changed."""
        if not commands:
            return True
        *queued, answer = self._connection.call(("MULTI",), *commands, ("EXEC",))
        for each in (*queued, answer):
            if self._connection.is_fault(each):  # EXEC has done nothing
                raise self._connection.fault_in(each)
        if answer is None:
            return False
        for each in answer:
            if self._connection.is_fault(each) and "WRONGTYPE" not in str(each):
                raise RedisRefused(  # such as a stream whose last id is the greatest one
                    f"{self._connection.where} has refused a command within a transaction, whose others it has carried out:"
                    f" {each}"
                )
        return True

    def _key(self, token: str) -> str:
        return f"{self._tokens}:{token}"

    def _checked(self, token: str, answer: bytes | None) -> int:
        """Return the number of a token. Raises TokenWentBack if it was higher before."""
        text, key = b"0" if answer is None else answer, self._key(token)
        if not text.isdigit():
            raise RedisRefused(
                f"key {key!r} at {self._connection.where} holds {text[:50]!r}: it is the sink's, and a number"
            )
        number, before = int(text), self._highest.get(token, 0)
        if number < before:
            raise TokenWentBack(
                f"key {key!r} at {self._connection.where} is {number} and was {before}: Redis has lost what it had confirmed,"
                f" with the rows of epochs {number + 1} to {before}. Nothing more is written. Restore Redis' data, or accept"
                f" that these rows are missing: SET {key} {before}"
            )
        self._highest[token] = number
        return number

    # What is refused for good.

    def _refuse_types(self, rows: Sequence[Row], kinds: dict[Any, bytes], held: dict[Any, bytes]) -> None:
        wrong = {key for key, kind in held.items() if kind not in (b"none", kinds[key])}
        if not wrong:
            return
        self._connection.ask("UNWATCH")
        raise RowsRefused({
            at: f"key {_readable(command[1])} at {self._connection.where} holds a {held[command[1]].decode()}, no"
            f" {kinds[command[1]].decode()}"
            for at, row in enumerate(rows)
            for command in row
            if command[1] in wrong
        })  # fmt: skip

    def _refuse_large(self, rows: Sequence[Row]) -> None:
        """Raise RowsRefused for rows with a value that the server does not take: it would close the connection."""
        large = {at: size for at, row in enumerate(rows) if (size := _largest(row)) > _SMALL}
        if not large:
            return
        if self._most is None:
            answer = self._connection.call(("CONFIG", "GET", "proto-max-bulk-len"))[0]
            known = {} if self._connection.is_fault(answer) else answer
            self._most = int(known.get(b"proto-max-bulk-len", MOST_BYTES))
        most = self._most
        where = self._connection.where
        if refused := {
            at: f"a value has {size} bytes, and {where} takes {most} (`proto-max-bulk-len`)"
            for at, size in large.items()
            if size > most
        }:
            raise RowsRefused(refused)


def _readable(key: Any) -> str:
    return key.decode(errors="backslashreplace") if isinstance(key, bytes) else str(key)


def _largest(row: Row) -> int:
    """Return the bytes of the largest key or value of a row."""
    return max((len(part) for command in row for part in command if isinstance(part, bytes)), default=0)
