"""What a command that uses Spark has started: a session, and the file systems of its tables, each when first needed.

Also what commands that publish results share: their options, and the outcome of a run in one shape.
Must not know: what a command computes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from squall_cli.options.spark_options import over_connect
from squall_cli.spark.spark_progress import SparkProgress
from squall_cli.terminal.interrupts import all_as_ctrl_c
from squall_io.spark.reading.moments import Span
from topology_api.errors import SquallError

if TYPE_CHECKING:
    from squall_io.spark.results.publishing import OutputTable
    from squall_io.spark.results.versions import Published
    from squall_io.spark.stores import OpenStore
    from squall_io.spark.stores.hadoop import Jvm


#: Error of an interrupted command that publishes results: whether its last step was done is unknown.
INTERRUPTED: Final = (
    "interrupted. Unless the result was just being published, the table is unchanged; run the same command again to do what"
    " is missing"
)


@dataclass(frozen=True, kw_only=True)
class ResultOptions:
    """Options of a command that publishes versions."""

    span: Span
    file_format: str | None
    partition_by: tuple[str, ...] | None
    keep: int
    again: bool
    master: str | None
    conf: Mapping[str, str]

    @contextmanager
    def started(self) -> Iterator[StartedSpark]:
        """Spark for the command; an interruption is an error that says what has become of the result."""
        try:
            with StartedSpark(self.master, self.conf) as spark:
                yield spark
        except KeyboardInterrupt:
            raise SquallError(INTERRUPTED) from None

    def open_output(self, files: OpenStore) -> OutputTable:
        """Open the table of a result."""
        from squall_io.spark.results.publishing import open_output

        return open_output(files, self.file_format, self.partition_by, self.keep)


def version_in_json(published: Published) -> dict[str, Any]:
    """Return a run's version as JSON values."""
    version = published.version
    return {
        "published": published.ours,
        "version": version.number,
        "files": len(version.files),
        "bytes": version.size,
        "schema": version.schema,
    }


class StartedSpark:
    """A command's session and file systems, with its progress; all of it ends with the command's `with`."""

    def __init__(self, master: str | None, conf: Mapping[str, str]) -> None:
        self._master = master
        self._conf = conf
        self.stack = ExitStack()
        self.progress = SparkProgress()
        self._session: Any = None
        self._jvm: Jvm | None = None

    def __enter__(self) -> StartedSpark:
        self.stack.enter_context(all_as_ctrl_c())
        self.progress.__enter__()
        return self

    def __exit__(self, *raised: Any) -> None:
        with self.stack:  # what it polls ends after it
            self.progress.__exit__(*raised)

    def watched(self, text: str = "") -> Any:
        """Return the session, whose progress is shown from now on, below what is being done."""
        session = self.session()
        if text:
            self.progress.announce(text)
        self.progress.follow(session)
        return session

    def session(self) -> Any:
        """Return the session; raises what its start raises."""
        from squall_io.spark.session.sessions import shared_session

        if self._session is None:
            self.progress.announce("starting Spark")
            self._session = self.stack.enter_context(shared_session(self._master, self._conf)).session
        return self._session

    def store(self, path: str) -> OpenStore:
        """Open the file system at a path, through one small JVM for all of them, so that whether there is anything to do is
        known before Spark is started. A Spark Connect server reaches it through its session.
        """
        from squall_io.spark.stores import WEBHDFS, open_files
        from squall_io.spark.stores.hadoop import Jvm
        from squall_io.spark.stores.paths import LOCAL, scheme_of

        connect = over_connect(self._master, self._conf)
        if not connect and scheme_of(path) != LOCAL and WEBHDFS not in self._conf and self._jvm is None:
            self._jvm = Jvm.own(self._conf)
            self.stack.callback(self._jvm.close)
        session = self.session() if connect else None
        return self.stack.enter_context(open_files(path, session=session, jvm=self._jvm, conf=self._conf))
