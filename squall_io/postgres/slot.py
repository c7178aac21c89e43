"""The replication slot and the publication of a stream: whether they can be used, what to do if not, and how they are made.

Must not know: messages, tuples.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from squall_io.postgres.connection import ServerAway, ServerRefuses
from squall_io.postgres.transactions import LostChanges, lsn_of, lsn_text
from topology_api import SquallError

if TYPE_CHECKING:
    from squall_io.postgres.connection import ReplicationConnection


class UnusableSlot(SquallError):
    """The server's setup does not allow to read changes. The text says what to change."""


class SlotSettings(msgspec.Struct, frozen=True):
    """What a spout reads. tables: for a publication that is made; none: all tables."""

    slot: str
    publication: str
    tables: tuple[str, ...]
    create: bool


def ensured(link: ReplicationConnection, settings: SlotSettings, log: logging.Logger) -> int:
    """Look at the slot and the publication, and make what is missing if that is asked for.

    Returns the place in the log before which the slot has nothing any more. Raises UnusableSlot; ServerAway for a slot that is
    in use, since its user may go.
    """
    level = link.rows("SHOW wal_level")[0][0]
    if level != "logical":
        raise UnusableSlot(
            f"{link.shown} has wal_level = {level}, which keeps no changes of rows: run ALTER SYSTEM SET wal_level = logical,"
            " and restart the server"
        )
    found = _found(link, settings)
    # A publication does not count for changes from before it was made: it comes before the slot.
    _ensure_publication(link, settings, found is not None)
    if found is None:
        _make_slot(link, settings)
        text = "replication slot %r of %s was made: the stream has changes from now on, none from before"
        log.warning(text, settings.slot, link.shown)
        found = _found(link, settings)
    if found is None:
        raise ServerAway(f"replication slot {settings.slot!r} was dropped after it was made")
    name, (process, wal, confirmed) = f"replication slot {settings.slot!r} of {link.shown}", found
    if process is not None:
        raise ServerAway(f"{name} is in use by the server's process {process}: one spout reads a slot")
    if wal == "lost" or confirmed is None:
        raise UnusableSlot(
            f"{name} has lost its changes: the server kept no more of its log (max_slot_wal_keep_size). What the topology has"
            f" not read is gone: drop the slot (SELECT pg_drop_replication_slot({link.literal(settings.slot)})), copy the rows"
            " of the tables again, and begin with a new slot and without the old state"
        )
    return lsn_of(confirmed)


def _found(link: ReplicationConnection, settings: SlotSettings) -> tuple[str | None, ...] | None:
    """Return the server's process that reads the slot, the state of its log, and where it begins; None if there is no slot."""
    columns = "plugin, slot_type, database, current_database(), active_pid, wal_status, confirmed_flush_lsn"
    rows = link.rows(
        f"SELECT {columns} FROM pg_replication_slots WHERE slot_name = {link.literal(settings.slot)}"
    )
    if not rows:
        return None
    plugin, kind, database, own = rows[0][:4]
    name = f"replication slot {settings.slot!r} of {link.shown}"
    if kind != "logical" or plugin != "pgoutput":
        raise UnusableSlot(f"{name} is {kind} with the plugin {plugin}: give another slot, one of pgoutput")
    if database != own:
        raise UnusableSlot(f"{name} is of the database {database}, and url names {own}: give another slot")
    return rows[0][4:]


def log_end(link: ReplicationConnection) -> int:
    """Return where the server's log ends."""
    return lsn_of(str(link.rows("IDENTIFY_SYSTEM")[0][2]))


def must_have(settings: SlotSettings, shown: str, begin: int, end: int, lsn: int) -> None:
    """Raise LostChanges if a slot that begins at `begin`, in a log that ends at `end`, has lost changes from `lsn` on."""
    if lsn > end:
        raise LostChanges(
            f"the log of {shown} ends at {lsn_text(end)}, and the topology continues at {lsn_text(lsn)}: it is another server,"
            " an earlier copy of it, or one that has lost its last changes. Copy the rows of the tables again, and begin with a"
            " new slot and without the old state"
        )
    if begin > lsn:
        raise LostChanges(
            f"replication slot {settings.slot!r} of {shown} begins at {lsn_text(begin)}, and the topology continues at"
            f" {lsn_text(lsn)}: the changes between are gone, because the slot was made again, or was advanced for a later"
            " commit. Copy the rows of the tables again, and begin without the old state"
        )


def start(link: ReplicationConnection, settings: SlotSettings, lsn: int) -> None:
    """Begin to replicate at a place in the log. Raises UnusableSlot, and ServerAway if the slot is in use."""
    publication = settings.publication.replace('"', '""').replace("'", "''")
    options = f"proto_version '1', publication_names '\"{publication}\"'"
    try:
        link.replicate(
            f"START_REPLICATION SLOT {link.name(settings.slot)} LOGICAL {lsn_text(lsn)} ({options})"
        )
    except ServerRefuses as error:
        if error.state == "55006":  # in use
            raise ServerAway(str(error)) from None
        raise UnusableSlot(f"{link.shown} does not replicate slot {settings.slot!r}: {error}") from None


def explained(error: ServerRefuses, settings: SlotSettings) -> ServerRefuses:
    """Return an error of the stream with what to do."""
    if error.state != "42704":  # no such object
        return error
    return ServerRefuses(f"{error}; {_unpublished(settings)}", error.state)


def _unpublished(settings: SlotSettings) -> str:
    return (
        f"slot {settings.slot!r} has changes from when there was no such publication, which cannot be read, also if it is made"
        " now: drop the slot, copy the rows of the tables again, and begin with a new slot and without the old state"
    )


def _ensure_publication(link: ReplicationConnection, settings: SlotSettings, has_slot: bool) -> None:
    literal, name = link.literal(settings.publication), link.name(settings.publication)
    if link.rows(f"SELECT 1 FROM pg_publication WHERE pubname = {literal}"):
        return
    if has_slot:
        raise UnusableSlot(
            f"{link.shown} has no publication {settings.publication!r}: {_unpublished(settings)}"
        )
    tables = (
        "FOR ALL TABLES"
        if not settings.tables
        else "FOR TABLE " + ", ".join(".".join(map(link.name, each.split("."))) for each in settings.tables)
    )
    statement = f"CREATE PUBLICATION {name} {tables}"
    if not settings.create:
        raise UnusableSlot(
            f"{link.shown} has no publication {settings.publication!r}: run {statement}, and then make the slot; or give"
            " create=True"
        )
    try:
        link.rows(statement)
    except ServerRefuses as error:
        if error.state == "42710":  # another process has made it
            return
        raise UnusableSlot(
            f"{link.shown} refuses {statement}: {error}; give the names of `tables` that exist and belong to this user, or have"
            " an administrator make the publication"
        ) from None


def _make_slot(link: ReplicationConnection, settings: SlotSettings) -> None:
    slot = link.literal(settings.slot)
    statement = f"SELECT pg_create_logical_replication_slot({slot}, 'pgoutput')"
    if not settings.create:
        raise UnusableSlot(
            f"{link.shown} has no replication slot {settings.slot!r}: run {statement}, or give create=True"
        )
    try:
        link.rows(statement)
    except ServerRefuses as error:
        if error.state == "42710":
            return
        more = "; raise max_replication_slots, or drop a slot" if error.state == "53400" else ""
        raise UnusableSlot(f"{link.shown} refuses {statement}: {error}{more}") from None


def bytes_behind(link: ReplicationConnection, slot: str) -> int:
    """Return how much of the log the server keeps for the slot."""
    rows: Sequence[tuple[str | None, ...]] = link.rows(
        "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn) FROM pg_replication_slots"
        f" WHERE slot_name = {link.literal(slot)}"
    )
    return int(rows[0][0] or 0) if rows else 0
