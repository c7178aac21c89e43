"""The records of a store to freeze: of each kind one with only the required fields, one with all, one that is odd.

Must not know: where they are written.
"""

from __future__ import annotations

from typing import Any

from tests.frozen.old_code import old
from tests.frozen.plain_values import plain

#: The options in every topology's configuration.
SOUND = {"topology.workers": 2, "topology.message.timeout.secs": 30, "topology.worker.timeout.secs": 3.5}
ODD = 'ä "quoted"\\ \n\t\0 日本 🙂 \u2028 </script> %2F a/b'
LONE = "half a pair: \ud83d"


def frozen_records() -> dict[str, dict[str, Any]]:
    """Name -> kind, bytes and values of each record."""
    records = old("squall.cluster.records")
    found = {}
    for name, record in _records(records).items():
        data = records.encode(record)
        kind = type(record).__name__
        assert records.decode(type(record), data) == record
        found[f"{kind} {name}"] = {"kind": kind, "data": data.decode("ascii"), "value": plain(record)}
    return found


def _records(records: Any) -> dict[str, Any]:
    return {
        **{f"topology: {name}": each for name, each in _topologies(records).items()},
        **{f"placing: {name}": each for name, each in _assignments(records).items()},
        **{f"daemon: {name}": each for name, each in _daemons(records).items()},
        **{f"report: {name}": each for name, each in _reports(records).items()},
    }


def _topologies(records: Any) -> dict[str, Any]:
    record, note = records.TopologyRecord, records.Note
    notes = (note("worker w1 died", 1.5), note("it is started again", 2, "w1", True), note(ODD, 3.25, ODD))
    found = {
        "minimal": record("w-1-0", "w", "ACTIVE", None, dict(SOUND), {}, (), 0, None, None, 0.0),
        "full": record(
            "words-12-1700000000", "words", "REBALANCING", "INACTIVE",
            {**SOUND, "db.host": "db1", "mine": [1, 2.5, None, True, {"a": []}], "topology.acking": False},
            {"lines": {"topology.workers": 2, "x": {"y": "z"}}, "count": {}},
            ((1, "lines", 0), (2, "lines", 1), (3, "count", 0)),
            17, 1234.5, "ValueError: boom", 1_700_000_000.25,
            highest_task=9, parallelism={"count": 4}, finished=(1, 2), renumbered={"lines": 3}, notes=notes,
            wait=30.0, submission="5f0c", files={"code": "ab" * 32, "wheels": "cd" * 32, "requirements": "ef" * 32},
            python="3.11", replaces="words-11-1699999999", since=1_700_000_001.5, until=1_700_000_031.5,
        ),
        "odd": record(
            f"{ODD}-3-4", ODD, "FAILED", None, {**SOUND, ODD: ODD, "": None, LONE: LONE}, {ODD: {ODD: [ODD]}},
            ((65_535, ODD, 0),), 2**40, None, f"{ODD}\n{LONE}", -1.0, notes=(note(LONE, -0.0),), submission=ODD,
        ),
        "whole numbers where others may stand": record(
            "w-1-0", "w", "KILLED", "ACTIVE", {key: int(value) for key, value in SOUND.items()}, {},
            ((1, "lines", 0),), 1, 60, None, 5, wait=3, since=7, until=9,
        ),
        "great numbers": record(
            "w-1-0", "w", "KILLED", None, {**SOUND, "huge": 10**40, "tiny": 5e-324, "float": 1e300}, {},
            ((2**53 + 1, "lines", 10**20),), 10**18, 1e22, None, 0.1 + 0.2, highest_task=2**63,
        ),
    }  # fmt: skip
    for state in sorted(records.STATES):
        found[state] = record("w-1-0", "w", state, None, dict(SOUND), {}, ((1, "l", 0),), 1, None, None, 1.0)
    return found


def _assignments(records: Any) -> dict[str, Any]:
    place = records.Placement
    return {
        "minimal": records.Assignment("words-1-0", 0, ()),
        "full": records.Assignment(
            "words-12-1700000000",
            17,
            (place("w1", "s1", 0, (17, 0), (1, 2, 3)), place("w2", "s2", 3, (16, 5), ())),
        ),
        "odd": records.Assignment(f"{ODD}-1-0", 2**53 + 1, (place(ODD, LONE, 10**20, (0, 0), (65_535,)),)),
    }


def _daemons(records: Any) -> dict[str, Any]:
    versions = {"squall": "0.1.0", "python": "3.11.7", "cloudpickle": "3.1.1"}
    return {
        "supervisor minimal": records.SupervisorRecord("s1", "host-1", 4),
        "supervisor full": records.SupervisorRecord(
            "rack-1-0a1b2c3d", "host-1.example.org", 12, True, "https://host-1.example.org:6702", "ab" * 32,
            versions, {"cpus": 8, "memory_bytes": 16_700_000_000.0},
        ),
        "supervisor odd": records.SupervisorRecord(ODD, LONE, 0, False, ODD, "", {ODD: LONE}, {ODD: 1e-7}),
        "Nimbus minimal": records.NimbusRecord("n1", "", ""),
        "Nimbus full": records.NimbusRecord(
            "nimbus-host-0a1b2c3d", "http://host:6627", "host", "cd" * 32, versions, 1_700_000_000.125
        ),
        "Nimbus odd": records.NimbusRecord(ODD, ODD, LONE, ODD, {"": ""}, 3),
    }  # fmt: skip


def _reports(records: Any) -> dict[str, Any]:
    report = records.WorkerReport
    return {
        "minimal": report("w1", (1, 0), False, False, False, False, None),
        "full": report(
            "w1", (17, 3), True, True, True, True, "ValueError: boom\n  at words.py:7",
            ("tcp://10.0.0.1:6701", "tcp://10.0.0.1:6702"), (1, 2, 3), 17, "it died: killed by SIGKILL", True,
        ),
        "odd": report(ODD, (2**53 + 1, 10**20), True, False, False, False, LONE, (ODD, ""), (0,), note=ODD),
    }  # fmt: skip
