"""SqlTable: the rows of a table as a stream, in the order of a column that grows.

    builder.set_spout("orders", SqlTable("postgresql+psycopg://app@db/shop", "orders", ["id", "price"], order_by="id"))

SQLAlchemy is imported where it is used. Must not know: statements.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from squall_io.kit.waiting import Waiting
from squall_io.lines.polling import AT_ONCE, poll_problems
from squall_io.sql.address import address_problems, parsed, with_password
from squall_io.sql.calls import Call, CallingThread
from squall_io.sql.lookup import SILENCE, names_of
from squall_io.sql.places import SeenValues, packed, unpacked
from topology_api import Fields, InvalidConfig, RewindableSpout, SquallError
from topology_api.wording import typed

if TYPE_CHECKING:
    from squall_io.sql.polling import PlacedRow, RowReader
    from topology_api import Context

#: Seconds between two looks for new rows.
POLL_SECONDS: Final = 1.0
#: Seconds for which a new value waits for transactions that commit late.
LAG_SECONDS: Final = 5.0
#: Seconds until the next look after an error that waiting does not help.
RETRY_SECONDS: Final = 10.0


class SqlTable(RewindableSpout):
    """The rows of a table, one tuple each, in the order of a column whose values grow: a number, or the time of a change.

    A row that is updated comes again if the update gives it a greater value. Deleted rows are not seen, nor are rows whose
    value is NULL. A row that a transaction commits more than `lag` seconds after a greater value was there is missed:
    `PostgresChanges` misses none. With `topology.state.path` each row counts once; in any other topology a restarted task
    begins again. It has one task.

    url: the database, as for SQLAlchemy's `create_engine`.
    table: the table, with its schema if needed, or a query: "SELECT ..." without parameters.
    columns: the field of each column, or the names of columns that are named like their fields.
    order_by: the column whose values grow: a number, or the time of the last change. Give it an index.
    key: the columns that tell rows with the same value apart; None: the primary key. A query needs it.
    start: the first value to read; None: all.
    follow: True waits for new rows; False reads those that are there, and ends.
    poll_interval: with follow, the seconds between two looks for new rows, at least 0.2; None: 1.
    lag: with follow, for how many seconds a value must have been there before it is read, so that transactions that are
        under way can commit smaller values.
    password: the name of the password: `env:NAME`, an environment variable of the workers, or `file:PATH`, a file on their
        hosts; it is looked up where the task starts. A URL with a password is refused, also one with an option such as
        sslpassword: topologies lie in ZooKeeper.
    """

    threaded = True  # drivers block
    _reader: RowReader | None = None
    #: The last row that was emitted, and those that were read and come next.
    _place: tuple[Any, ...] | None
    _rows: deque[PlacedRow]
    #: The question that the database is asked now; since when, and when the next one is due.
    _call: Call[tuple[Any, list[PlacedRow]]] | None
    _asked_at: float
    _next_at: float

    def __init__(
        self,
        url: str,
        table: str,
        columns: str | Mapping[str, str] | Sequence[str],
        *,
        order_by: str,
        key: str | Sequence[str] | None = None,
        start: Any = None,
        follow: bool = True,
        poll_interval: float | None = None,
        lag: float = LAG_SECONDS,
        password: str | None = None,
    ) -> None:
        address = parsed(url, type(self).__name__)
        names = names_of(columns)
        problems = [
            *address_problems(address, password),
            *_table_problems(table, names, order_by, key),
            *poll_problems(poll_interval),
            *_reading_problems(start, follow, lag),
        ]
        if problems:
            raise InvalidConfig(problems, type(self).__name__)
        self.url = url
        self.table = table
        self.columns = names
        self.order_by = order_by
        self.key = (key,) if isinstance(key, str) else None if key is None else tuple(key)
        self.start = start
        self.follow = follow
        self.poll_interval = POLL_SECONDS if poll_interval is None else float(poll_interval)
        self.lag = float(lag) if follow else 0.0
        self.password = password
        self.outputs = Fields(*names.values())

    def open(self, context: Context) -> None:
        """Look at the table, if the database can be reached now. Raises SquallError for one that is missing or other."""
        from squall_io.sql.polling import RowReader

        if context.parallelism != 1:
            raise InvalidConfig(
                [f"it has {context.parallelism} tasks, and a table is read by one: set its parallelism to 1"],
                type(self).__name__,
            )
        url = with_password(parsed(self.url, type(self).__name__), self.password)
        self._reader = reader = RowReader(url, self.table, tuple(self.columns), self.order_by, self.key)
        self._context = context
        self._waiting = Waiting(reader.shown, context.log, context.progress, context.now)
        self._calls = CallingThread(f"{context.component}-sql")
        self._begin_at(None)
        call = self._calls.begin(reader.check)
        if not call.is_over(SILENCE):
            self._waiting.failed(f"no answer for {SILENCE:.0f} s")
            return
        try:
            call.result()
        except Exception as error:
            self._wait_for(error)

    def next_tuple(self) -> float | None:
        """Emit the next rows."""
        rows = self._rows
        for _ in range(min(AT_ONCE, len(rows))):
            values, place = rows[0]
            message_id = tuple(packed(place))
            rows.popleft()
            self._place = place
            self.emit(values, message_id=message_id)
        if rows:
            return None
        now = self._context.now()
        if self._ended:
            self.finish()
            return None
        if self._call is None:
            if now < self._next_at:
                return self._next_at - now
            look = partial(self._look, self._place, self._seen.readable(now))
            self._call, self._asked_at = self._calls.begin(look, self._context.wake), now
        if not self._call.is_over():
            if now - self._asked_at >= SILENCE and not self._waiting.reason:
                self._waiting.failed(f"no answer for {SILENCE:.0f} s")
            self._waiting.shown()
            return POLL_SECONDS
        return self._answered(now)

    def position(self) -> list[Any] | None:
        """Return the order and the key of the last row that was emitted; None: none was."""
        return None if self._place is None else packed(self._place)

    def rewind(self, position: Sequence[Any] | None) -> None:
        """Continue after this row; None: at `start`."""
        self._begin_at(None if position is None else unpacked(position))

    def close(self) -> None:
        """Close the connections."""
        if self._reader is not None:
            self._calls.begin(self._reader.close)  # after the call that may be under way
            self._calls.end()
            self._reader = None

    def _begin_at(self, place: tuple[Any, ...] | None) -> None:
        self._place = place
        self._rows = deque()
        self._seen = SeenValues(self.lag)
        self._call = None
        self._next_at = self._asked_at = 0.0
        self._ended = False

    def _look(self, after: tuple[Any, ...] | None, until: Any) -> tuple[Any, list[PlacedRow]]:
        """In the calling thread: return the greatest value that is there, and the next rows that may be read."""
        reader = self._reader
        if reader is None:  # closed meanwhile
            return None, []
        if not self.lag:
            return None, reader.rows(after, self.start, None)
        rows = [] if until is None else reader.rows(after, self.start, until)
        return reader.greatest(), rows

    def _answered(self, now: float) -> float | None:
        """Take what the database said; return when to go on."""
        from squall_io.sql.polling import MOST_ROWS

        assert self._call is not None
        call, self._call = self._call, None
        try:
            greatest, rows = call.result()
        except Exception as error:
            self._next_at = now + RETRY_SECONDS
            wait = self._wait_for(error)
            self._next_at = now + wait
            return wait
        self._waiting.succeeded()
        self._seen.see(greatest, now)
        self._rows.extend(rows)
        is_all = len(rows) < MOST_ROWS
        self._ended = is_all and not self.follow
        self._next_at = now + (self.poll_interval if is_all else 0.0)
        return None

    def _wait_for(self, error: Exception) -> float:
        """Return for how long to wait for a database that is away. Raises any other error with what to do."""
        from squall_io.sql.database import reason
        from squall_io.sql.reaching import is_away, is_wrong_login, wrong_login

        assert self._reader is not None
        if is_wrong_login(error):
            raise wrong_login(self._reader.shown, error) from None
        if is_away(error):
            return self._waiting.failed(reason(error))
        if isinstance(error, SquallError):
            raise error
        raise SquallError(
            f"{self.table!r} in {self._reader.shown} cannot be read: {reason(error)}"
        ) from error


def _table_problems(
    table: object, columns: Mapping[str, str], order_by: object, key: object
) -> Iterator[str]:
    if not isinstance(table, str) or not table.strip():
        yield f"table is {typed(table)}: give the name of a table, or a query"
    if not columns:
        yield "columns is empty: give the columns to emit"
    if not isinstance(order_by, str) or not order_by:
        yield f"order_by is {typed(order_by)}: give the column whose values grow"
    if key is not None and not key:
        yield "key is empty: give the columns that tell rows apart, or leave it out for the primary key"


def _reading_problems(start: object, follow: object, lag: object) -> Iterator[str]:
    if start is not None:
        try:
            packed([start])
        except TypeError:
            yield f"start is {typed(start)}: give a number, a text, a date or a time"
    if not isinstance(follow, bool):
        yield f"follow is {typed(follow)}: give True or False"
    if type(lag) not in (int, float) or not 0 <= lag <= 86_400:  # type: ignore[operator]
        yield f"lag is {typed(lag)}: give the seconds for which a value waits, 0 to 86400"
