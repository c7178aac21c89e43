"""SqlLookup: a bolt that adds to each tuple the columns of the row that has its key.

    builder.set_bolt("named", SqlLookup("postgresql+psycopg://app@db/shop", "customers", {"id": "customer"}, ["name", "city"],
                                        fields=["order", "customer", "price"]), 2).fields_grouping("orders", "customer")

SQLAlchemy is imported where it is used. Must not know: statements.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from squall_io.kit.waiting import Waiting
from squall_io.sql.address import address_problems, parsed, with_password
from squall_io.sql.cache import AgedCache
from squall_io.sql.calls import CallingThread
from topology_api import BatchBolt, FailTuple, Fields, InvalidConfig
from topology_api.wording import listed, shown, typed

if TYPE_CHECKING:
    from squall_io.sql.finding import Found, Key, RowFinder
    from topology_api import Context, Tuple

#: What happens to a tuple without a row.
MISSING: Final = ("none", "drop", "fail")
#: The most seconds that a batch is waited for.
BATCH_SECONDS: Final = 0.05
#: Seconds without an answer after which that is logged.
SILENCE: Final = 10.0


class WorkerEnds(Exception):
    """The worker has ended while the database was asked: the call has no effect any more."""


class SqlLookup(BatchBolt):
    """Adds to each tuple the columns of the row that has its key. Keys of a batch are looked up by one statement.

    A tuple is emitted with `fields` of the input and then the columns, anchored, in the order of the input. If several rows
    have its key, it is emitted once for each. While the database is away the bolt waits, and `squall status` says so.

    url: the database, as for SQLAlchemy's `create_engine`.
    table: the table, with its schema if needed, or a query without parameters:
        "SELECT o.id, c.name FROM o JOIN c ON ...".
    key: the field of each key column, or the names of columns that are named like their fields.
    columns: the field that gets each column, or the names of columns whose fields are named like them.
    fields: the fields of the input that are emitted, before the columns.
    missing: what happens to a tuple without a row: "none" emits it with None in each column, "drop" emits nothing, and "fail"
        fails it. A key with None in it has no row.
    cache: how many keys are kept, those without rows too; 0: none.
    ttl: for how many seconds a kept key is used; None: until there is no room for it.
    password: the name of the password: `env:NAME`, an environment variable of the workers, or `file:PATH`, a file on their
        hosts; it is looked up where the task starts. A URL with a password is refused, also one with an option such as
        sslpassword: topologies lie in ZooKeeper.
    """

    threaded = True  # drivers block
    auto_ack = True
    batch_size = 1000
    batch_interval = BATCH_SECONDS
    _finder: RowFinder | None = None

    def __init__(
        self,
        url: str,
        table: str,
        key: str | Mapping[str, str] | Sequence[str],
        columns: str | Mapping[str, str] | Sequence[str],
        *,
        fields: str | Sequence[str],
        missing: str = "none",
        cache: int = 10_000,
        ttl: float | None = 60.0,
        password: str | None = None,
    ) -> None:
        address = parsed(url, type(self).__name__)
        keys, found = names_of(key), names_of(columns)
        passed = (fields,) if isinstance(fields, str) else tuple(fields)
        problems = [
            *address_problems(address, password),
            *_problems(table, keys, found, passed),
            *_cache_problems(missing, cache, ttl),
        ]
        if problems:
            raise InvalidConfig(problems, type(self).__name__)
        self.url = url
        self.table = table
        self.key = keys
        self.columns = found
        self.fields = passed
        self.missing = missing
        self.cache = cache
        self.ttl = ttl
        self.password = password
        self.outputs = Fields(*passed, *found.values())

    def input_problems(self, inputs: Mapping[tuple[str, str], Fields]) -> Iterator[str]:
        """Yield what the streams that the bolt reads lack."""
        for (component, stream), fields in inputs.items():
            if lacks := [
                name for name in dict.fromkeys((*self.key.values(), *self.fields)) if name not in fields
            ]:
                yield f"stream {stream!r} of {component!r} has no fields {listed(lacks)}, which SqlLookup needs"

    def prepare(self, context: Context) -> None:
        """Look at the table, if the database can be reached now. Raises SquallError for a table that is missing or other."""
        from squall_io.sql.finding import RowFinder
        from squall_io.sql.reaching import is_away, is_wrong_login, wrong_login

        url = with_password(parsed(self.url, type(self).__name__), self.password)
        self._finder = finder = RowFinder(url, self.table, tuple(self.key), tuple(self.columns))
        self._context = context
        self._cache: AgedCache[Any] = AgedCache(self.cache, self.ttl)
        self._waiting = Waiting(finder.shown, context.log, context.progress, context.now)
        self._calls = CallingThread(f"{context.component}-sql")
        self._asked = context.counter("keys looked up")
        self._cached = context.counter("keys found in the cache")
        context.gauge("keys cached", lambda: len(self._cache))
        try:
            self._calls.make(
                finder.check, lambda: context.progress(f"waiting for an answer of {finder.shown}")
            )
        except Exception as error:
            if is_wrong_login(error):
                raise wrong_login(finder.shown, error) from None
            if not is_away(error):
                raise
            context.log.warning("cannot reach the database yet: %s", error.__cause__ or error)

    def execute_batch(self, tups: Sequence[Tuple]) -> None:
        """Look up what the cache does not have, and emit the tuples in their order."""
        keys = [self._key_of(tup) for tup in tups]
        try:
            answers = self._answers({key for key in keys if isinstance(key, tuple) and None not in key})
        except WorkerEnds:
            return
        for tup, key in zip(tups, keys):
            answer = key if isinstance(key, str) else answers.get(key, [])
            if isinstance(answer, str):
                self.fail(tup, FailTuple(answer))
            else:
                self._emit(tup, key, answer)

    def cleanup(self) -> None:
        """Close the connections."""
        if self._finder is not None:
            self._finder.close()
            self._calls.end()
            self._finder = None

    def _key_of(self, tup: Tuple) -> Key | str:
        """Return the key of a tuple, or why it has none."""
        key = tuple(tup[field] for field in self.key.values())
        try:
            hash(key)
        except TypeError:
            bad = next(name for name in self.key.values() if type(tup[name]).__hash__ is None)
            return f"field {bad!r} is {typed(tup[bad])}, which cannot be a key"
        return key

    def _emit(self, tup: Tuple, key: Any, rows: Found) -> None:
        values = tuple(tup[name] for name in self.fields)
        if not rows:
            if self.missing == "fail":
                self.fail(tup, FailTuple(f"{self.table!r} has no row with the key {shown(key)}"))
                return
            rows = [(None,) * len(self.columns)] if self.missing == "none" else []
        for row in rows:
            self.emit((*values, *row), anchors=tup)

    def _answers(self, keys: set[Key]) -> dict[Key, Any]:
        """Return the rows of each key, or why it cannot be looked up."""
        cache, now = self._cache, self._context.now()
        known = {key: answer for key in keys if (answer := cache.get(key, now)) is not None}
        self._cached.add(len(known))
        if left := [key for key in keys if key not in known]:
            self._asked.add(len(left))
            for key, answer in self._asked_for(left).items():
                known[key] = answer
                if not isinstance(answer, str):
                    cache.put(key, answer, now)
        return known

    def _asked_for(self, keys: list[Key]) -> dict[Key, Any]:
        """Ask the database, and wait while it is away. A key that no column takes is found by halves."""
        from squall_io.sql.database import reason
        from squall_io.sql.finding import is_of_key
        from squall_io.sql.reaching import is_away, is_wrong_login, wrong_login

        finder, context, waiting = self._finder, self._context, self._waiting
        assert finder is not None
        while True:
            try:
                self._asked_at = context.now()
                found = self._calls.make(lambda: finder.find(keys), self._no_answer)
            except Exception as error:
                if is_of_key(error):
                    if len(keys) == 1:
                        return {
                            keys[
                                0
                            ]: f"{self.table!r} cannot be asked for the key {shown(keys[0])}: {reason(error)}"
                        }
                    half = len(keys) // 2
                    return self._asked_for(keys[:half]) | self._asked_for(keys[half:])
                if is_wrong_login(error):
                    raise wrong_login(finder.shown, error) from None
                if not is_away(error):
                    raise
                self._calls.make(partial(time.sleep, waiting.failed(reason(error))), self._no_answer)
            else:
                waiting.succeeded()
                return found

    def _no_answer(self) -> None:
        """Say that the database does not answer, while a call waits for it."""
        context, waiting = self._context, self._waiting
        if context.stopped:
            raise WorkerEnds
        if waiting.reason:
            waiting.shown()
        elif context.now() - self._asked_at >= SILENCE:
            waiting.failed(f"no answer for {SILENCE:.0f} s")
        else:
            context.progress(f"waiting for an answer of {waiting.what}")


def names_of(names: str | Mapping[str, str] | Sequence[str]) -> dict[str, str]:
    """Return the field of each column: names of columns are those of fields, too."""
    if isinstance(names, Mapping):
        return dict(names)
    return {name: name for name in ((names,) if isinstance(names, str) else names)}


def _problems(
    table: object, key: Mapping[str, str], columns: Mapping[str, str], fields: tuple[str, ...]
) -> Iterator[str]:
    if not isinstance(table, str) or not table.strip():
        yield f"table is {typed(table)}: give the name of a table, or a query"
    if not key:
        yield "key is empty: give the columns of the key, each with its field"
    if not columns:
        yield "columns is empty: give the columns to add"
    names = (*fields, *columns.values())
    if twice := sorted({name for name in names if names.count(name) > 1}):
        yield f"{listed(twice)} would be emitted twice: give columns as a dict from columns to other fields"


def _cache_problems(missing: object, cache: object, ttl: object) -> Iterator[str]:
    if missing not in MISSING:
        yield f"missing is {typed(missing)}: give {', '.join(map(repr, MISSING))}"
    if type(cache) is not int or cache < 0:
        yield f"cache is {typed(cache)}: give the number of keys to keep, 0 for none"
    if ttl is not None and (type(ttl) not in (int, float) or not ttl > 0):  # type: ignore[operator]
        yield f"ttl is {typed(ttl)}: give the seconds for which a key is kept, or None"
