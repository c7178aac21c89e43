"""Makes the frozen fixtures: the output of one commit's code, and its results for mutated input.

    git checkout 6407a8e -- topology_api squall nimbus supervisor worker squall_io local_cluster squall_cli
    python -m tests.frozen.make_fixtures            # all of them, or those that are named

It runs only with that commit's code, and refuses any other. Its output is never made again for other code: the fixtures are the
promise that every later release of this format reads the bytes in the stores, files and packages of today. Must not know: the
current code.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final

from tests.frozen import (
    make_bundles,
    make_http,
    make_messages,
    make_pickles,
    make_records,
    make_store,
    make_tables,
    make_worker_files,
)
from tests.frozen.frozen_data import save
from tests.frozen.mutations import tabulate
from tests.frozen.old_code import old, require_commit


def records() -> Iterable[object]:
    """The records of a store, and the outcomes of mutated ones."""
    frozen = make_records.frozen_records()
    yield save("records", frozen)
    module = old("squall.cluster.records")
    tables = {}
    for kind in ("TopologyRecord", "Assignment", "SupervisorRecord", "NimbusRecord", "WorkerReport"):
        [data] = [each["data"] for name, each in frozen.items() if each["kind"] == kind and "full" in name]
        read = partial(module.decode, getattr(module, kind))
        tables[kind] = tabulate(read, data.encode(), numbers=("4", "5", "5.0", "6", '"5"'))
    yield save("mutated_records", tables)


def store() -> Iterable[object]:
    """All other values of a store."""
    yield save("store", make_store.frozen_store())
    yield save("store_values", make_store.frozen_values())
    yield save("seals", make_store.frozen_seals())
    yield save("mutated_values", make_store.mutated_values())


def files() -> Iterable[object]:
    """Files of workers and of state directories."""
    yield save("files", make_worker_files.frozen_files())
    yield save("parts_of_files", make_worker_files.frozen_parts())
    yield save("mutated_files", make_worker_files.mutated_files())
    yield save("state_directories", make_worker_files.frozen_places())


def messages() -> Iterable[object]:
    """Messages between workers, and the targets of tuples."""
    yield save("messages", make_messages.frozen_messages())
    yield save("routes", make_messages.frozen_routes())


def http() -> Iterable[object]:
    """Answers over HTTP."""
    yield make_http.save_archive()
    yield save("http", make_http.frozen_answers())


def pickles() -> Iterable[object]:
    """Pickles of components, and all errors."""
    yield save("pickles", make_pickles.frozen_pickles())
    yield save("errors", make_pickles.frozen_errors())


def scripts() -> Iterable[object]:
    """Pickles that contain code: once with each Python."""
    yield save(f"scripts_{sys.version_info[0]}{sys.version_info[1]}", make_pickles.frozen_scripts())


def bundles() -> Iterable[object]:
    """Submissions and bundles."""
    yield save("bundles", make_bundles.frozen_bundles())
    yield save("mutated_bundles", make_bundles.mutated_bundles())
    yield save("archives", make_bundles.frozen_archives())


def tables() -> Iterable[object]:
    """Tables that Spark reads, and positions of readers."""
    yield save("tables", make_tables.frozen_tables())
    yield save("positions", make_tables.frozen_positions())
    yield save("table_names", make_tables.frozen_names())
    yield save("mutated_tables", make_tables.mutated_records())


MAKERS: Final[Mapping[str, Callable[[], Iterable[object]]]] = {
    "records": records,
    "store": store,
    "files": files,
    "messages": messages,
    "http": http,
    "pickles": pickles,
    "bundles": bundles,
    "tables": tables,
    "scripts": scripts,
}


def main() -> None:
    """Make the named ones, or all."""
    require_commit()
    for name in sys.argv[1:] or MAKERS:
        for path in MAKERS[name]():
            print(path)


if __name__ == "__main__":
    main()
