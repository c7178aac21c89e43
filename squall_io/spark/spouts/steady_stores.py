"""Stores for tasks that read for months (`squall.stores.java.steady`), by the settings of their spout.

Must not know: what files hold, spouts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from squall.stores.files import OpenStore
from squall.stores.paths import check_path, scheme_of
from squall_io.spark.stores import open_files
from squall_io.spark.stores.opening import needs_jvm, open_hadoop

if TYPE_CHECKING:
    from squall.stores.java.hadoop import HadoopFiles, Jvm


def open_steady(path: str, conf: Mapping[str, str], follow_links: bool = False) -> OpenStore:
    """Open a store at a path; the store survives the end of its JVM. `follow_links` and errors are those of `open_files`."""
    scheme = scheme_of(check_path(path))
    if not needs_jvm(scheme, conf):
        return open_files(path, conf=conf, follow_links=follow_links)
    from squall.stores.java.steady import SteadyStore

    def open_with(root: str, jvm: Jvm) -> HadoopFiles:
        return open_hadoop(root, jvm, conf)

    return SteadyStore(path, conf, open_with)
