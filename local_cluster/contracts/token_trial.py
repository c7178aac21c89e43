"""One try of a promise of a TokenSink.

Must not know: which promises there are, which system is written to.
"""

from __future__ import annotations

import pickle
import uuid
from typing import Any

from local_cluster.contracts.promises import Broken
from local_cluster.contracts.sinks import Numbered, SinkPlace, SinkTrial
from topology_api import TokenSink
from topology_api.packing import dumps_by_value
from topology_api.wording import shown, typed


class TokenPlace(SinkPlace[TokenSink]):
    """Where the rows become visible. `refused`: tuples whose rows are refused for good; None: no row is."""

    refused: Numbered | None = None


class TokenTrial(SinkTrial[TokenSink]):
    """One try of one promise."""

    place: TokenPlace

    def __init__(self, place: TokenPlace) -> None:
        super().__init__(place)
        #: The ids of rows that are refused, and the rows, so that no two have the same id.
        self.refusals: dict[int, Any] = {}
        #: As long as one of a component with a long id may be.
        self.token = f"contract/{'c' * 140}/0/{uuid.uuid4().hex[:16]}"

    def shipped_rows(self, rows: list[Any]) -> list[Any]:
        """Return rows as they are in a commit."""
        back: list[Any] = pickle.loads(dumps_by_value(rows, 5))
        return back

    def refused_row(self, sink: TokenSink) -> Any:
        """Return the row of a new tuple that is refused for good."""
        assert self.place.refused is not None
        [tup] = self.place.refused.next(1)
        row = self.calls.make(f"row({shown(tup.values)})", lambda: sink.row(tup))
        self.calls.made.pop()
        self.refusals[id(row)] = row
        return row

    def is_refused(self, row: Any) -> bool:
        """Return whether a row is one that is refused for good."""
        return id(row) in self.refusals

    def number(self, sink: TokenSink, token: str | None = None) -> int:
        found = self.calls.make("read_token", lambda: sink.read_token(token or self.token))
        if type(found) is not int:
            raise Broken(f"read_token returned {typed(found)}: return an int, 0 if no number was set")
        return found

    def write(
        self, sink: TokenSink, epoch: int | None, rows: list[Any], expected: int, token: str | None = None
    ) -> bool:
        """Write; the rows count as visible if they were written."""
        name = None if epoch is None else token or self.token
        kept = self.shipped_rows(rows)
        text = f"write({epoch}, {len(rows)} rows, expected={expected})"
        done = self.calls.make(text, lambda: sink.write(epoch, kept, expected, name))
        if type(done) is not bool:
            raise Broken(f"{text} returned {typed(done)}: return whether the rows were written")
        if done:
            self.now_visible(rows)
        return done

    def must_write(
        self, sink: TokenSink, epoch: int | None, rows: list[Any], expected: int, token: str | None = None
    ) -> None:
        """Write what has to be written."""
        if not self.write(sink, epoch, rows, expected, token):
            raise Broken(f"write({epoch}, expected={expected}) returned False, and the number was {expected}")
        self.check(f"after write({epoch})")
        if epoch is not None and (number := self.number(sink, token)) != epoch:
            raise Broken(f"after write({epoch}) read_token returned {number}")

    def must_refuse(self, sink: TokenSink, epoch: int, expected: int, number: int) -> None:
        """Write what must not be written, since the token has another number."""
        if self.write(sink, epoch, self.rows(sink), expected):
            raise Broken(f"write({epoch}, expected={expected}) returned True, and the number was {number}")
        self.check(f"after write({epoch}, expected={expected}) was refused")
        if (found := self.number(sink)) != number:
            raise Broken(f"after a refused write read_token returned {found} instead of {number}")
