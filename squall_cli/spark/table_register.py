"""`squall table PATH --register NAME`: gives a table a name in a Hive metastore or another catalog of Spark.

Must not know: how a table is registered, how the rest of a table is shown.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from squall_io.spark.session.request import SessionRequest
from topology_api.errors import SquallError

if TYPE_CHECKING:
    from squall.stores.files import Files
    from squall_cli.spark.started_spark import StartedSpark
    from squall_io.spark.reading.catalog import Registered

#: Hadoop's settings that say where the metastore is, as Spark takes them.
_URIS: Final = "spark.hadoop.hive.metastore.uris"
_DATABASE: Final = "spark.hadoop.javax.jdo.option.ConnectionURL"


@dataclass(frozen=True)
class Done:
    """A registered table, and the folder of the metastore if Spark has made one of its own."""

    table: Registered
    own: str | None


def settings(master: str | None, conf: Mapping[str, str]) -> Mapping[str, str]:
    """Return Spark's settings with a Hive metastore, unless they name another catalog; a Connect server has its own."""
    from squall_io.spark.reading.catalog import METASTORE

    return conf if SessionRequest.of(master, conf).is_connect else {**dict([METASTORE]), **conf}


def run(started: StartedSpark, files: Files, name: str, conf: Mapping[str, str]) -> Done:
    """Register the table."""
    from squall_io.spark.reading.catalog import external, register
    from squall_io.spark.results.job_errors import spark_errors_as

    def failed(reason: str, error: Exception) -> SquallError:
        return SquallError(f"{files.root} could not be registered as {name}: {reason}")

    wanted = external(files, name)  # before Spark is started
    session = started.watched()
    with spark_errors_as(failed):
        return Done(register(session, wanted), _own_metastore(session, conf))


def lines(done: Done) -> Iterator[str]:
    """Yield sentences that say under which name the table can be read."""
    table = done.table
    what = "registered" if table.made else "brought up to date"
    more = f", with the new columns {', '.join(table.columns)}" if table.columns else ""
    yield f"{what}: {table.name} shows the files in {table.location}{more}"
    if done.own:
        yield f"The metastore is Spark's own, in {done.own}; name another one: --conf {_URIS}=thrift://HOST:9083"


def in_json(done: Done) -> dict[str, Any]:
    """Return the same as JSON values."""
    return {**vars(done.table), "columns": list(done.table.columns)}


def _own_metastore(session: Any, conf: Mapping[str, str]) -> str | None:
    """Return the folder of the metastore that Spark makes in the working directory if nothing says where one is."""
    java = getattr(session, "_jsc", None)
    if (
        java is None
        or {_URIS, _DATABASE} & conf.keys()
        or java.hadoopConfiguration().get("hive.metastore.uris")
    ):
        return None
    here = Path.cwd() / "metastore_db"
    return str(here) if here.is_dir() else None
