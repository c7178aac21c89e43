"""What a stream of messages says: changes of rows in the order of their commits, each with its position.

A position is a number of the write-ahead log and a count: the transaction whose commit is there is the next one, and as many of
its changes have been read. Must not know: connections, tuples.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

import msgspec

from squall_io.postgres.pgoutput import (
    UNCHANGED,
    Begin,
    Commit,
    Message,
    Relation,
    Row,
    RowChange,
    Truncate,
    UnknownMessage,
)
from squall_io.postgres.values import value_of
from topology_api import SquallError

Columns = dict[str, Any]


class LostChanges(SquallError):
    """The server does not have the changes any more at which a spout is to continue."""


class Change(msgspec.Struct, frozen=True):
    """One change. lsn: the position of its commit; at: the time of its commit."""

    table: str
    op: str
    row: Columns | None
    old: Columns | None
    lsn: int
    at: datetime


class ChangeReader:
    """Reads messages from a position on.

    changed: called with a sentence when a table has other columns than before.
    """

    def __init__(self, lsn: int, read: int, changed: Callable[[str], object]) -> None:
        #: Where the next transaction is looked for, or the commit of the one that is being read.
        self.lsn = lsn
        #: How many changes of it have been read.
        self.read = read
        self._changed = changed
        self._relations: dict[int, Relation] = {}
        self._begin: Begin | None = None
        self._skip = 0

    def restart(self) -> None:
        """Begin again at the position: the messages that follow are those of a new connection."""
        self._begin = None

    def next(self, message: Message) -> list[Change]:
        """Return the changes of the next message: of most none or one. Raises LostChanges."""
        if isinstance(message, RowChange):
            return self._counted([self._change(message)])
        if isinstance(message, Truncate):
            return self._counted([self._truncated(each) for each in message.relations])
        if isinstance(message, Begin):
            self._enter(message)
        elif isinstance(message, Commit):
            self._begin, self.lsn, self.read = None, message.after, 0
        elif isinstance(message, Relation):
            self._learn(message)
        return []

    def idle(self, lsn: int) -> None:
        """Note that the server has sent everything before a place in its log."""
        if self._begin is None and self.read == 0:
            self.lsn = max(self.lsn, lsn)

    def _enter(self, begin: Begin) -> None:
        if self.read and begin.lsn != self.lsn:
            raise LostChanges(
                f"the transaction with the commit {lsn_text(self.lsn)}, of which {self.read} changes were read, does not"
                f" come again: the next one has the commit {lsn_text(begin.lsn)}; was the publication changed?"
            )
        self._begin, self._skip, self.lsn = begin, self.read, begin.lsn

    def _counted(self, changes: list[Change]) -> list[Change]:
        """Leave out what was read before, and count the rest."""
        skipped = min(self._skip, len(changes))
        self._skip -= skipped
        self.read += len(changes) - skipped
        return changes[skipped:]

    def _learn(self, relation: Relation) -> None:
        before = self._relations.get(relation.id)
        self._relations[relation.id] = relation
        if before is not None and before != relation:
            self._changed(f"{relation.name}: {_difference(before, relation)}")

    def _known(self, number: int) -> Relation:
        if (relation := self._relations.get(number)) is None:
            raise UnknownMessage(f"a change of table {number}, which no message has described")
        return relation

    def _change(self, message: RowChange) -> Change:
        relation = self._known(message.relation)
        old = None
        if message.old is not None:
            old = self._columns(relation, message.old, message.only_key, None)
        row = None if message.row is None else self._columns(relation, message.row, False, message.old)
        return self._made(relation, message.op, row, old)

    def _truncated(self, number: int) -> Change:
        return self._made(self._known(number), "truncate", None, None)

    def _made(self, relation: Relation, op: str, row: Columns | None, old: Columns | None) -> Change:
        if self._begin is None:
            raise UnknownMessage("a change outside a transaction")
        return Change(relation.name, op, row, old, self._begin.lsn, self._begin.at)

    def _columns(self, relation: Relation, values: Row, only_key: bool, old: Row | None) -> Columns:
        """Return the values by column. What an update did not change and the server does not send is in the old row, or left
        out."""
        if len(values) != len(relation.columns):
            raise UnknownMessage(
                f"a row of {relation.name} with {len(values)} values for {len(relation.columns)} columns"
            )
        found: Columns = {}
        for at, (column, value) in enumerate(zip(relation.columns, values)):
            if only_key and not column.in_key:
                continue
            if value is UNCHANGED and old is not None:
                value = old[at]
                if value is None:  # the old row has the key alone
                    continue
            if isinstance(value, str):
                found[column.name] = value_of(value, column.type)
            elif value is None:
                found[column.name] = None
        return found


def _difference(before: Relation, after: Relation) -> str:
    if before.name != after.name:
        return f"its name was {before.name}"
    old, new = ({each.name: each for each in relation.columns} for relation in (before, after))
    parts = []
    if added := [name for name in new if name not in old]:
        parts.append(f"new columns {', '.join(added)}")
    if gone := [name for name in old if name not in new]:
        parts.append(f"no columns {', '.join(gone)} any more")
    if other := [name for name in new if name in old and new[name].type != old[name].type]:
        parts.append(f"other types of {', '.join(other)}")
    return "; ".join(parts) or "another key or order of its columns"


def lsn_text(lsn: int) -> str:
    """Return a place in the log as PostgreSQL writes it: "16/B374D848"."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def lsn_of(text: str) -> int:
    """Return a place in the log from its text."""
    high, _, low = text.partition("/")
    return (int(high, 16) << 32) + int(low, 16)
