"""Connectors under test: how each is made, what its place shows, and connectors in memory, right ones and wrong ones.

The suite itself is public (`local_cluster.testing`, `check_...`); the tests are in `tests/local_cluster/test_contracts.py` and
`tests/squall_io/test_contracts_of_connectors.py`. A connector of Squall is added there, on its real server.
"""

from __future__ import annotations

import contextlib
import threading
from collections import defaultdict
from typing import Any

from topology_api import Context, Fields, RewindableSpout, RowsRefused, StagedSink, TokenSink

#: What connectors in memory have, by the name of a place: of all objects, as if they were processes with one system outside.
STAGED: defaultdict[str, dict[str, list[Any]]] = defaultdict(dict)
SHOWN: defaultdict[str, dict[str, list[Any]]] = defaultdict(dict)
ROWS: defaultdict[str, list[Any]] = defaultdict(list)
TOKENS: defaultdict[str, dict[str, int]] = defaultdict(dict)
LOCK = threading.Lock()


class Numbers(RewindableSpout):
    """Emits numbers."""

    outputs = Fields("number")

    def __init__(self, count: int) -> None:
        self.count = count

    def open(self, context: Context) -> None:
        self.step, self.at = context.parallelism, context.index

    def position(self) -> Any:
        return {"at": self.at}

    def rewind(self, position: Any) -> None:
        if position is not None:
            self.at = position["at"]

    def next_tuple(self) -> float | None:
        if self.at >= self.count:
            self.finish()
            return None
        self.emit((self.at,), message_id=self.at)
        self.at += self.step
        return None


class PositionOffByOne(Numbers):
    def position(self) -> Any:
        return {"at": max(0, self.at - self.step)}


class PositionAhead(Numbers):
    """Its position is that of what it has read, not of what it has emitted."""

    def open(self, context: Context) -> None:
        super().open(context)
        self.read: list[int] = []

    def next_tuple(self) -> float | None:
        if not self.read:
            self.read = list(range(self.at, min(self.at + 3 * self.step, self.count), self.step))
            self.at += len(self.read) * self.step
        if not self.read:
            self.finish()
            return None
        number = self.read.pop(0)
        self.emit((number,), message_id=number)
        return None


class PositionThatChanges(Numbers):
    """Returns the dict that it goes on to change."""

    def open(self, context: Context) -> None:
        super().open(context)
        self.place = {"at": self.at}

    def position(self) -> Any:
        self.place["at"] = self.at
        return self.place


class RewindsNowhere(Numbers):
    def rewind(self, position: Any) -> None:
        """Forget what it was told."""


class PositionOfAClass(Numbers):
    def position(self) -> Any:
        return {"at": complex(self.at)}


class EmitsInRewind(Numbers):
    def rewind(self, position: Any) -> None:
        super().rewind(position)
        self.next_tuple()


class EmitsInAck(Numbers):
    def ack(self, message_id: object) -> None:
        self.emit((message_id,))


class EmitsInAckMany(Numbers):
    def ack_many(self, message_ids: list[Any]) -> None:
        self.emit((message_ids[0],))


class StagedInMemory(StagedSink):
    """Shows rows from a name that only its epoch has."""

    counter = 0

    def __init__(self, place: str) -> None:
        self.place = place

    def prepare(self, context: Context) -> None:
        self.owner = f"{context.component}-{context.index}"
        self.staged, self.shown = STAGED[self.place], SHOWN[self.place]

    def row(self, tup: Any) -> Any:
        return tuple(tup.values)

    def named(self, epoch: int | None) -> str:
        with LOCK:
            StagedInMemory.counter += 1
            return f"{self.owner}/{self.lineage}/{epoch}/{StagedInMemory.counter}"

    def stage(self, epoch: int | None, rows: list[Any]) -> Any:
        name = self.named(epoch)
        self.staged[name] = list(rows)
        return {"name": name}

    def commit(self, epoch: int | None, handle: Any) -> None:
        rows = self.staged.get(handle["name"])
        if rows is not None:
            self.shown[handle["name"]] = rows
            self.staged.pop(handle["name"], None)
            self.sweep(epoch)

    def sweep(self, epoch: int | None) -> None:
        for name in list(self.staged):
            owner, lineage, number, _ = name.split("/")
            if (owner, lineage) == (self.owner, self.lineage) and epoch is not None and int(number) <= epoch:
                self.staged.pop(name, None)

    def abort(self, epoch: int | None, handle: Any) -> None:
        self.staged.pop(handle["name"], None)


def shown_rows(place: str) -> list[Any]:
    return [row for rows in list(SHOWN[place].values()) for row in rows]


class CommitNotIdempotent(StagedInMemory):
    def commit(self, epoch: int | None, handle: Any) -> None:
        self.shown[self.named(epoch)] = self.staged.get(handle["name"], [])


class CommitOnlyOnce(StagedInMemory):
    def commit(self, epoch: int | None, handle: Any) -> None:
        self.shown[handle["name"]] = self.staged.pop(handle["name"])


class CommitInTwoSteps(StagedInMemory):
    """Forgets what was staged before it is visible."""

    def commit(self, epoch: int | None, handle: Any) -> None:
        rows = self.staged.pop(handle["name"], None)
        name = handle["name"]
        if rows is not None:
            self.shown[name] = rows
            self.sweep(epoch)


class VisibleAtStage(StagedInMemory):
    def stage(self, epoch: int | None, rows: list[Any]) -> Any:
        handle = super().stage(epoch, rows)
        super().commit(None, handle)
        return handle


class AbortOfCommitted(StagedInMemory):
    """Removes what an epoch has shown, whichever attempt has shown it."""

    def abort(self, epoch: int | None, handle: Any) -> None:
        super().abort(epoch, handle)
        start = handle["name"].rpartition("/")[0]
        for name in [name for name in self.shown if name.startswith(f"{start}/")]:
            del self.shown[name]


class AbortOnlyOnce(StagedInMemory):
    def abort(self, epoch: int | None, handle: Any) -> None:
        del self.staged[handle["name"]]


class KeepsRowsInObject(StagedInMemory):
    """Has nothing to commit in another process."""

    def prepare(self, context: Context) -> None:
        super().prepare(context)
        self.staged = {}


class OneNameForAnEpoch(StagedInMemory):
    """An attempt overwrites another one."""

    def named(self, epoch: int | None) -> str:
        return f"{self.owner}/{self.lineage}/{epoch}/-"


class NoLineageInNames(StagedInMemory):
    def named(self, epoch: int | None) -> str:
        return f"{self.owner}//{epoch}/-"


class SweepsWhatIsAhead(StagedInMemory):
    def sweep(self, epoch: int | None) -> None:
        for name in [name for name in self.staged if name.startswith(f"{self.owner}/{self.lineage}/")]:
            self.staged.pop(name, None)


class SweepsOtherTasks(StagedInMemory):
    def sweep(self, epoch: int | None) -> None:
        for name in list(self.staged):
            _, lineage, number, _ = name.split("/")
            if lineage == self.lineage and epoch is not None and int(number) <= epoch:
                self.staged.pop(name, None)


class SweepsNothing(StagedInMemory):
    def sweep(self, epoch: int | None) -> None: ...


class OneBufferForAll(StagedInMemory):
    """A row that is made meanwhile takes the place of one that is being staged."""

    def row(self, tup: Any) -> Any:
        self.buffer = super().row(tup)
        return self.buffer

    def stage(self, epoch: int | None, rows: list[Any]) -> Any:
        name, kept = self.named(epoch), []
        for row in rows:
            self.buffer = row
            self.named(epoch)
            kept.append(self.buffer)
        self.staged[name] = kept
        return {"name": name}


class HandleOfAClass(StagedInMemory):
    def stage(self, epoch: int | None, rows: list[Any]) -> Any:
        return {"name": super().stage(epoch, rows)["name"], "more": object()}


class FlushesInPieces(StagedInMemory):
    """Shows row after row."""

    def commit(self, epoch: int | None, handle: Any) -> None:
        name = handle["name"]
        self.shown.setdefault(name, [])
        for row in self.staged.get(name, []):
            self.shown[name].append(row)
        self.staged.pop(name, None)
        self.sweep(epoch)


class TokenInMemory(TokenSink):
    """Writes rows and token under one lock."""

    def __init__(self, place: str) -> None:
        self.place = place

    def row(self, tup: Any) -> Any:
        return tuple(tup.values)

    def read_token(self, token: str) -> int:
        return TOKENS[self.place].get(token, 0)

    def write(self, epoch: int | None, rows: list[Any], expected: int, token: str | None) -> bool:
        with self.transaction():
            if token is not None and self.read_token(token) != expected:
                return False
            self.refuse(rows)
            if token is not None and epoch is not None:
                TOKENS[self.place][token] = epoch
            ROWS[self.place].extend(rows)
        return True

    def refuse(self, rows: list[Any]) -> None:
        if bad := {at: f"{row[0]} is below 0" for at, row in enumerate(rows) if row[0] < 0}:
            raise RowsRefused(bad)

    @contextlib.contextmanager
    def transaction(self) -> Any:
        with LOCK:
            before = list(ROWS[self.place]), dict(TOKENS[self.place])
            try:
                yield
            except BaseException:
                ROWS[self.place], TOKENS[self.place] = before
                raise


class RefusesByAnyError(TokenInMemory):
    """Does not say which rows it never takes."""

    def refuse(self, rows: list[Any]) -> None:
        if any(row[0] < 0 for row in rows):
            raise ValueError("rows below 0")


class WritesWhatIsNotRefused(TokenInMemory):
    """Writes the others at once, before they are named in a commit."""

    def write(self, epoch: int | None, rows: list[Any], expected: int, token: str | None) -> bool:
        done = super().write(epoch, [row for row in rows if row[0] >= 0], expected, token)
        if done and (bad := {at: "below 0" for at, row in enumerate(rows) if row[0] < 0}):
            raise RowsRefused(bad)
        return done


class NamesRowsByValue(TokenInMemory):
    """Names rows by what they hold."""

    def refuse(self, rows: list[Any]) -> None:
        if bad := {row[0]: "below 0" for row in rows if row[0] < 0}:
            raise RowsRefused(bad)


class TriesRowsInEarnest(TokenInMemory):
    """Finds refused rows by writing the others, which it removes again."""

    def write(self, epoch: int | None, rows: list[Any], expected: int, token: str | None) -> bool:
        if any(row[0] < 0 for row in rows):
            for row in rows:
                if row[0] >= 0:
                    ROWS[self.place].append(row)
            for row in rows:
                if row[0] >= 0:
                    ROWS[self.place].remove(row)
        return super().write(epoch, rows, expected, token)


class RefusesInEpochsOnly(TokenInMemory):
    """Drops refused rows of a batch that belongs to no epoch."""

    def write(self, epoch: int | None, rows: list[Any], expected: int, token: str | None) -> bool:
        kept = [row for row in rows if row[0] >= 0] if epoch is None else rows
        return super().write(epoch, kept, expected, token)


class OneBufferToWrite(TokenInMemory):
    """A row that is made meanwhile takes the place of one that is being written."""

    def row(self, tup: Any) -> Any:
        self.buffer = super().row(tup)
        return self.buffer

    def write(self, epoch: int | None, rows: list[Any], expected: int, token: str | None) -> bool:
        kept = []
        for row in rows:
            self.buffer = row
            self.read_token("")
            kept.append(self.buffer)
        return super().write(epoch, kept, expected, token)


class TokenNotCompared(TokenInMemory):
    def write(self, epoch: int | None, rows: list[Any], expected: int, token: str | None) -> bool:
        return super().write(epoch, rows, self.read_token(token) if token else 0, token)


class TokenComparedAsAtMost(TokenInMemory):
    """Takes any token that is older."""

    def write(self, epoch: int | None, rows: list[Any], expected: int, token: str | None) -> bool:
        there = self.read_token(token) if token else 0
        return there <= expected and super().write(epoch, rows, there, token)


class TokenComparedBefore(TokenInMemory):
    """Compares the token before the transaction, not in it."""

    def write(self, epoch: int | None, rows: list[Any], expected: int, token: str | None) -> bool:
        if token is not None and self.read_token(token) != expected:
            return False
        threading.Event().wait(0)
        return super().write(epoch, rows, self.read_token(token) if token else 0, token)


class TokenAfterRows(TokenInMemory):
    """Two transactions."""

    def write(self, epoch: int | None, rows: list[Any], expected: int, token: str | None) -> bool:
        if token is not None and self.read_token(token) != expected:
            return False
        super().write(None, rows, 0, None)
        if token is not None and epoch is not None:
            TOKENS[self.place].update({token: epoch})
        return True


class TokenInObject(TokenInMemory):
    """Remembers the token, and looks no more."""

    def prepare(self, context: Context) -> None:
        self.known: dict[str, int] = {}

    def read_token(self, token: str) -> int:
        return self.known.setdefault(token, TOKENS[self.place].get(token, 0))


class OneTokenForAll(TokenInMemory):
    def read_token(self, token: str) -> int:
        return super().read_token("all")

    def write(self, epoch: int | None, rows: list[Any], expected: int, token: str | None) -> bool:
        return super().write(epoch, rows, expected, token and "all")


class ShortTokens(TokenInMemory):
    """Cuts names of tokens, as a column that is too narrow."""

    def read_token(self, token: str) -> int:
        return super().read_token(token[:100])

    def write(self, epoch: int | None, rows: list[Any], expected: int, token: str | None) -> bool:
        return super().write(epoch, rows, expected, token and token[:100])


class NoTokenForNoRows(TokenInMemory):
    def write(self, epoch: int | None, rows: list[Any], expected: int, token: str | None) -> bool:
        return True if not rows else super().write(epoch, rows, expected, token)


class AlwaysTrue(TokenInMemory):
    def write(self, epoch: int | None, rows: list[Any], expected: int, token: str | None) -> bool:
        super().write(epoch, rows, expected, token)
        return True


class NoNumber(TokenInMemory):
    def read_token(self, token: str) -> Any:
        return TOKENS[self.place].get(token)


#: Wrong connectors, and a promise that each breaks.
SPOUT_MUTANTS: dict[type[Numbers], str] = {
    PositionOffByOne: "a rewind repeats what comes after the position",
    PositionAhead: "a rewind repeats what comes after the position",
    PositionThatChanges: "a position does not change later",
    RewindsNowhere: "a rewind repeats what comes after the position",
    PositionOfAClass: "a rewind leads to the position it was given",
    EmitsInRewind: "a rewind repeats what comes after the position",
    EmitsInAck: "acks emit nothing",
    EmitsInAckMany: "acks emit nothing",
}
STAGED_MUTANTS: dict[type[StagedInMemory], str] = {
    CommitNotIdempotent: "a commit that is made again changes nothing",
    CommitOnlyOnce: "a process may be killed in commit",
    CommitInTwoSteps: "commit may raise at any line",
    VisibleAtStage: "rows are hidden until their commit",
    AbortOfCommitted: "an epoch that is staged again is committed once",
    AbortOnlyOnce: "aborted rows never become visible, and abort may be made again",
    KeepsRowsInObject: "a new object in another process commits",
    OneNameForAnEpoch: "an epoch that is staged again is committed once",
    NoLineageInNames: "lineages do not disturb each other",
    SweepsWhatIsAhead: "epochs that are staged ahead stay",
    SweepsOtherTasks: "tasks commit for others when parallelism shrinks",
    SweepsNothing: "what a killed process has left is removed with a later commit",
    HandleOfAClass: "a new object in another process commits",
    OneBufferForAll: "rows may be made while stage or commit runs",
    FlushesInPieces: "a process may be killed in commit",
}
TOKEN_MUTANTS: dict[type[TokenInMemory], str] = {
    TokenNotCompared: "a stale process writes nothing",
    TokenComparedAsAtMost: "nothing is written if the token is another one",
    TokenComparedBefore: "two processes may write at once",
    TokenAfterRows: "a process may be killed in write",
    OneBufferToWrite: "rows may be made while write runs",
    TokenInObject: "rows and token are written together",
    OneTokenForAll: "tokens do not disturb each other",
    ShortTokens: "tokens do not disturb each other",
    NoTokenForNoRows: "an epoch without rows sets the token",
    AlwaysTrue: "a write that is made again is refused",
    NoNumber: "rows and token are written together",
    RefusesByAnyError: "refused rows are named, and nothing is written",
    WritesWhatIsNotRefused: "refused rows are named, and nothing is written",
    NamesRowsByValue: "refused rows are named, and nothing is written",
    TriesRowsInEarnest: "a process may be killed while rows are refused",
    RefusesInEpochsOnly: "refused rows are named without an epoch, too",
}
