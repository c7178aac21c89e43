"""PostgresChanges: the inserts, updates and deletes of a PostgreSQL database as a stream, in the order of its commits.

    builder.set_spout("changes", PostgresChanges("postgresql://app@db/shop", slot="squall_shop", publication="squall_shop",
                                                 tables=["public.orders"], create=True, password="env:SHOP_PASSWORD"))

psycopg is imported where it is used. Must not know: the protocol, statements.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qs, urlsplit

from squall_io.kit.replays import replay_problems
from squall_io.kit.secrets import resolve, secret_problem, url_problem
from squall_io.postgres.slot import SlotSettings
from squall_io.postgres.task import ChangesTask
from topology_api import Fields, InvalidConfig, Replay, RewindableSpout
from topology_api.wording import typed

if TYPE_CHECKING:
    from topology_api import Context, Failure

_SLOT: Final = re.compile(r"[a-z0-9_]{1,63}")
_SCHEMES: Final = ("postgresql", "postgres")
#: What libpq calls secrets in the part of a URL after "?".
_IN_QUERIES: Final = ("password", "sslpassword")


class PostgresChanges(RewindableSpout):
    """The changes of rows that a publication of PostgreSQL has, one tuple each, by logical replication.

    Transactions come whole, in the order of their commits. The fields of a tuple: `table`, "public.orders"; `op`, "insert",
    "update", "delete" or "truncate"; `row`, a dict from column to value, None for deletes and truncates; `old`, the key of the
    row before the change if the server sends it (deletes, and updates of the key), with REPLICA IDENTITY FULL all of the row,
    otherwise None; `lsn`, an int that names the transaction and grows; `at`, the time of the commit. A large value that an
    update did not change is not in `row`, unless the table has REPLICA IDENTITY FULL.

    With `topology.state.path` each change is emitted once in what is committed, and in any other topology at least once. The
    slot's place in the server's log follows the commits that are kept, or what is acked. It has one task.

    url: the database, as for libpq, "postgresql://app@db:5432/shop?sslmode=verify-full".
    slot: the replication slot. Each topology needs one of its own.
    publication: the publication, which says of which tables and operations there are changes.
    create: True makes the slot if it is missing, and before it the publication. A slot that was just made has changes from then
        on only; the log of the worker says so. Without `topology.state.path` this is also what happens if the slot is dropped.
    tables: with create, the tables of the publication, with their schemas; None: all tables, for which the user must be a
        superuser.
    password: the name of the password: `env:NAME`, an environment variable of the workers, or `file:PATH`, a file on their
        hosts; it is looked up where the task starts. A URL with a password is refused, also one with an option such as
        sslpassword: topologies lie in ZooKeeper.
    replay: how a tuple that fails is emitted again, as `Spout.replay`: a Replay, or None.
    """

    threaded = True  # it waits for the server
    outputs = Fields("table", "op", "row", "old", "lsn", "at")
    _task: ChangesTask | None = None

    def __init__(
        self,
        url: str,
        *,
        slot: str,
        publication: str,
        create: bool = False,
        tables: Sequence[str] | None = None,
        password: str | None = None,
        replay: Replay | None = RewindableSpout.replay,
    ) -> None:
        names = (tables,) if isinstance(tables, str) else tuple(tables or ())
        problems = [*_url_problems(url, password), *_slot_problems(slot, publication, create)]
        if tables is not None and (not names or not all(isinstance(each, str) and each for each in names)):
            problems.append(
                f"tables is {typed(tables)}: give names of tables, or leave it out for all tables of the database"
            )
        if names and create is False:
            problems.append("tables is given without create=True: a publication that exists has its tables")
        problems += replay_problems(replay)
        if problems:
            raise InvalidConfig(problems, type(self).__name__)
        self.url = url
        self.slot = slot
        self.publication = publication
        self.create = create
        self.tables = names
        self.password = password
        self.replay = replay

    def open(self, context: Context) -> None:
        """Look at the slot, if the server can be reached now. Raises SquallError if it can never be read."""
        if context.parallelism != 1:
            raise InvalidConfig(
                [f"it has {context.parallelism} tasks, and a slot is read by one: set its parallelism to 1"],
                type(self).__name__,
            )
        password = None if self.password is None else resolve("password", self.password)
        settings = SlotSettings(self.slot, self.publication, self.tables, self.create)
        self._task = ChangesTask(self.url, password, settings, context)
        self._task.open()

    def next_tuple(self) -> float | None:
        """Emit the next changes."""
        return self._opened.next(self.emit)

    def position(self) -> list[int]:
        """Return the place in the server's log, and how many changes of the transaction there have been emitted."""
        return self._opened.position()

    def rewind(self, position: Sequence[int] | None) -> None:
        """Continue after these changes. Raises LostChanges if the slot does not have them any more."""
        self._opened.rewind(position)

    def ack(self, message_id: Any) -> None:
        """Let the slot move on."""
        self._opened.settle(message_id)

    def fail(self, message_id: Any, failure: Failure) -> None:
        """Let the slot move on: the change failed for good. One that was cut off is sent again."""
        if failure.reason != "stopped":
            self._opened.settle(message_id)

    def close(self) -> None:
        """End the connection."""
        if self._task is not None:
            self._task.close()

    @property
    def _opened(self) -> ChangesTask:
        assert self._task is not None
        return self._task


def _url_problems(url: object, password: object) -> Iterator[str]:
    if (problem := url_problem("url", url, "password")) is not None:
        yield problem
    elif isinstance(url, str):
        parts = urlsplit(url)
        if parts.scheme not in _SCHEMES:
            yield f"url has the scheme {parts.scheme!r}: give an address for libpq, like postgresql://app@db/shop"
        if any(name.lower() in _IN_QUERIES for name in parse_qs(parts.query, keep_blank_values=True)):
            yield "url has a password behind its `?`: leave it out, and name it with password=env:NAME"
    if password is not None and (problem := secret_problem("password", password)) is not None:
        yield problem


def _slot_problems(slot: object, publication: object, create: object) -> Iterator[str]:
    if not isinstance(slot, str) or not _SLOT.fullmatch(slot):
        yield f"slot is {typed(slot)}: give a name of small letters, digits and _, at most 63"
    if not isinstance(publication, str) or not 0 < len(publication.encode()) < 64 or "\0" in publication:
        yield f"publication is {typed(publication)}: give the name of a publication"
    if not isinstance(create, bool):
        yield f"create is {typed(create)}: give True or False"
