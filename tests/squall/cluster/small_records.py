"""A topology of one task, its worker and that worker's word: what the tests of registries write and read."""

from __future__ import annotations

from squall.cluster.records import Assignment, Placement, TopologyRecord, WorkerReport
from topology_api.options import defaults

WORDS = TopologyRecord(
    "words-1-0", "words", "ACTIVE", None, defaults(), {}, ((1, "lines", 0),), 0, None, None, 0.0
)
PLACED = Assignment("words-1-0", 1, (Placement("w1", "s1", 0, (1, 0), (1,)),))
REPORT = WorkerReport("w1", (1, 0), True, False, False, False, None)
