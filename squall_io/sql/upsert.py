"""The statement that writes a row: an insert, or an insert that updates the row with the same key if there is one.

Each row is a statement of its own, sent with the others of its batch: so of two rows with one key the later counts, and no
statement meets a row twice, which PostgreSQL refuses. Must not know: connections, tuples.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Inspector, Table, insert
from sqlalchemy.dialects import mysql, postgresql, sqlite
from sqlalchemy.engine import Dialect
from sqlalchemy.sql.dml import Insert


def statement(dialect: Dialect, table: Table, columns: tuple[str, ...], key: tuple[str, ...]) -> Insert:
    """Return the statement. key: a row whose values of these columns are there is updated; empty: rows are inserted."""
    if not key:
        return insert(table)
    # A driver that sends several rows as one statement would have PostgreSQL refuse two rows with one key.
    several = dialect.use_insertmanyvalues_wo_returning
    found = _upsert(dialect.name, table, columns, key)
    return found.execution_options(insertmanyvalues_page_size=1) if several else found


def _upsert(dialect: str, table: Table, columns: tuple[str, ...], key: tuple[str, ...]) -> Insert:
    rest = [name for name in columns if name not in key]
    if dialect in ("mysql", "mariadb"):
        row = mysql.insert(table)
        # Without other columns the row stays as it is: a statement needs one, and IGNORE would hide errors.
        return row.on_duplicate_key_update({name: row.inserted[name] for name in rest or key[:1]})
    make: Any = postgresql.insert if dialect == "postgresql" else sqlite.insert
    row = make(table)
    if not rest:
        return row.on_conflict_do_nothing(index_elements=list(key))  # type: ignore[no-any-return]
    return row.on_conflict_do_update(  # type: ignore[no-any-return]
        index_elements=list(key), set_={name: row.excluded[name] for name in rest}
    )


def unique_on(inspector: Inspector, table: str, schema: str | None, key: tuple[str, ...]) -> bool:
    """Return whether these columns are the primary key of a table, or have a unique index on all rows."""
    if set(inspector.get_pk_constraint(table, schema)["constrained_columns"]) == set(key):
        return True
    if any(set(each["column_names"]) == set(key) for each in inspector.get_unique_constraints(table, schema)):
        return True
    return any(
        each["unique"] and set(each["column_names"]) == set(key) and not _is_partial(each)
        for each in inspector.get_indexes(table, schema)
    )


def _is_partial(index: Any) -> bool:
    return any(name.endswith("_where") for name in index.get("dialect_options", {}))
