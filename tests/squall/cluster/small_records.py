"""A topology of one task, its worker and that worker's report: records for the tests of registries."""

from __future__ import annotations

from squall.cluster.records import Assignment, Placement, TopologyRecord, WorkerReport
from squall.values import Incarnation, TaskRow, TopologyState
from topology_api.options import defaults

WORDS = TopologyRecord(
    "words-1-0",
    "words",
    TopologyState.ACTIVE,
    None,
    defaults(),
    {},
    (TaskRow(1, "lines", 0),),
    0,
    None,
    None,
    0.0,
)
PLACED = Assignment("words-1-0", 1, (Placement("w1", "s1", 0, Incarnation(1, 0), (1,)),))
REPORT = WorkerReport("w1", Incarnation(1, 0), True, False, False, False, None)
