"""What a command that uses Spark has started: a session, and the file systems of its tables, each when first needed.

Also what commands that publish results share: the outcome of a run in one shape. Must not know: what a command does with
them.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final

from squall_cli.options.spark_options import over_connect
from squall_cli.spark.spark_progress import SparkProgress

if TYPE_CHECKING:
    from squall_io.spark.results.versions import Published
    from squall_io.spark.stores import OpenStore
    from squall_io.spark.stores.gateway import Jvm


#: Error of an interrupted command that publishes results: whether its last step was done is unknown.
INTERRUPTED: Final = (
    "interrupted. Unless the result was just being published, the table is unchanged; run the same command again to do what"
    " is missing"
)


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
    """A command's session and file systems; all of it ends with the stack."""

    def __init__(
        self, master: str | None, conf: Mapping[str, str], progress: SparkProgress, stack: ExitStack
    ) -> None:
        self._master = master
        self._conf = conf
        self._progress = progress
        self._stack = stack
        self._session: Any = None
        self._jvm: Jvm | None = None

    def session(self) -> Any:
        """Return the session; raises what its start raises."""
        from squall_io.spark.session.sessions import shared_session

        if self._session is None:
            self._progress.announce("starting Spark")
            self._session = self._stack.enter_context(shared_session(self._master, self._conf)).session
        return self._session

    def store(self, path: str) -> OpenStore:
        """Open the file system at a path, through one small JVM for all of them: whether there is anything to do is known
            before Spark is
        started. With a Spark Connect server it is reached through its session.
        """
        from squall_io.spark.stores import WEBHDFS, open_files
        from squall_io.spark.stores.gateway import Jvm
        from squall_io.spark.stores.paths import LOCAL, scheme_of

        connect = over_connect(self._master, self._conf)
        if not connect and scheme_of(path) != LOCAL and WEBHDFS not in self._conf and self._jvm is None:
            self._jvm = Jvm.own(self._conf)
            self._stack.callback(self._jvm.close)
        session = self.session() if connect else None
        return self._stack.enter_context(open_files(path, session=session, jvm=self._jvm, conf=self._conf))
