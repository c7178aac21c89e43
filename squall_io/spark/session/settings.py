"""Settings of a running Spark session, changed for a while.

Must not know: what the settings are for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def changed_settings(session: SparkSession, wanted: Mapping[str, str]) -> Iterator[None]:
    """Set these settings of a session while the `with` block runs."""
    before = {name: session.conf.get(name, None) for name in wanted}
    for name, value in wanted.items():
        session.conf.set(name, value)
    # Not restored when the caller was interrupted: the thread's connection to Java still waits for its last answer.
    try:
        yield
    except Exception:
        with suppress(Exception):  # the driver itself may have died
            _restore(session, before)
        raise
    _restore(session, before)


def _restore(session: SparkSession, before: Mapping[str, str | None]) -> None:
    for name, value in before.items():
        if value is None:
            session.conf.unset(name)
        else:
            session.conf.set(name, value)
