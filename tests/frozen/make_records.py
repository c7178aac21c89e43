"""Makes the fixtures of records of format 6: `python -m tests.frozen.make_records`. Must not know: tests."""

from __future__ import annotations

from typing import Any

from squall.cluster.records import SetOptions, TopologyRecord, VersionRecord, encode
from squall.values import TaskRow, TopologyState
from tests.frozen import frozen_data
from tests.frozen.frozen_data import DIFFERENCES
from tests.frozen.plain_values import plain

CONF: dict[str, Any] = {
    "topology.workers": 2, "topology.message.timeout.secs": 30, "topology.worker.timeout.secs": 3.5,
    "topology.acking": True, "mine": [1, {"a": None}], "number": 1,
}  # fmt: skip
CONFS = {
    "lines": {**CONF, "topology.acking": False, "own": "x"},
    "count": CONF,
    "odd": {**CONF, "mine": [1.0, {"a": None}], "number": True},
}
OPTIONS = SetOptions({"topology.workers": 2}, {"lines": {"own": "x"}}, {"count": 3})
RECORDS = {
    "topology: minimal": TopologyRecord(
        "words-1-0", "words", TopologyState.ACTIVE, None, CONF, {}, (TaskRow(1, "lines", 0),), 0, None, None, 1.5
    ),
    "topology: components": TopologyRecord(
        "words-2-0", "words", TopologyState.REPLACING, "ACTIVE", CONF, CONFS, (TaskRow(1, "lines", 0), TaskRow(2, "count", 0)),
        7, 12.5, None, 1.5, highest_task=4, replaces="words-1-0", since=3.0, set_options=OPTIONS, by="operator at 10.0.0.1",
        state_start="@17", committed=18,
    ),
    "version: components": VersionRecord(
        "words-1-0", "words", "replaced", None, 1.5, 9.0, CONF, CONFS, {"code": "ab" * 32}, "3.11", OPTIONS
    ),
}  # fmt: skip


def main() -> None:
    """Write the fixtures of this commit."""
    found = {
        name: {"kind": type(record).__name__, "data": encode(record).decode("ascii"), "value": plain(record)}
        for name, record in RECORDS.items()
    }
    print(frozen_data.save("records", found, DIFFERENCES))


if __name__ == "__main__":
    main()
