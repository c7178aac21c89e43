"""The files between supervisors and workers, and those of state directories, to freeze.

Must not know: how they are read.
"""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from tests.frozen import current_code
from tests.frozen.frozen_data import as_text
from tests.frozen.make_records import LONE, ODD, SOUND
from tests.frozen.mutations import tabulate
from tests.frozen.old_code import old
from tests.frozen.plain_values import plain
from tests.frozen.state_folders import identities, states

ADDRESS: Final = ("tcp://10.0.0.1:6701", "tcp://10.0.0.1:6702")
#: The content of small files of state directories.
IDS: Final = (
    "rack-1-0a1b2c3d",
    "nimbus-host-0a1b2c3d",
    "a b",
    "",
    "ä",
    "x" * 100,
    "x" * 101,
    "x" * 200,
    "a/b",
    "\xff",
)
KEYS: Final = ("01" * 32, "0A" * 32, "01" * 31, "x", "", "01" * 33)
TOKENS: Final = ("a-token_1", "two words", "", "tökén", "a\nb")
FOLDERS: Final = (
    ("words-1-0", "w1"), ("a b/ü", "."), ("..", ".."), ("x" * 300, "ü" * 100), (ODD, ODD), ("", ""), ("%", "%25"),
)  # fmt: skip


def frozen_files() -> dict[str, Any]:
    """Name -> kind, bytes and values of each file."""
    found = {}
    for kind, values in _values().items():
        for name, value in values.items():
            data = current_code.WRITE_FILE[kind](value)
            read = current_code.READ_FILE[kind](data)
            again = current_code.WRITE_FILE[kind](read)
            found[f"{kind}: {name}"] = {
                "kind": kind,
                "data": as_text(data),
                "value": plain(read),
                **({} if again == data else {"again": as_text(again)}),
            }
    return found


def frozen_parts() -> dict[str, Any]:
    """The same for parts of files."""
    found = {}
    for kind, values in {"error report": _reports(), "histogram": _histograms()}.items():
        for name, value in values.items():
            data = json.dumps(value.as_dict(), separators=(",", ":")).encode()
            read = plain(current_code.READ_PART[kind](data))
            found[f"{kind}: {name}"] = {"kind": kind, "data": as_text(data), "value": read}
    return found


def mutated_files() -> dict[str, Any]:
    """The outcomes of invalid files."""
    files = {name: each["data"].encode("latin-1") for name, each in (frozen_files() | frozen_parts()).items()}
    readers = {**current_code.READ_FILE, **current_code.READ_PART}
    return {
        kind: tabulate(read, files.get(f"{kind}: with one of each") or files[f"{kind}: full"])
        for kind, read in readers.items()
    }


def _values() -> dict[str, dict[str, Any]]:
    counters = _counters()
    module, counted = old("squall.cluster.counters"), old("nimbus.counted").Counted
    topology, small = counted(), counted()
    small.count(
        "w1",
        (1, 0),
        module.WorkerCounters({"a": module.ComponentCounters(emitted=2)}, (_reports()["minimal"],)),
    )
    small.count("w1", (1, 1), module.WorkerCounters({"a": module.ComponentCounters(acked=3)}, (), 5))
    topology.count("w1", (1, 0), counters["full"])
    topology.count("w1", (1, 1), counters["odd"])
    topology.count("w2 ü/", (3, 2), counters["minimal"])
    return {
        **_talk(),
        "counters": counters,
        "counters of a topology": {"minimal": counted(), "full": topology, "with one of each": small},
    }


def _talk() -> dict[str, dict[str, Any]]:
    files, place = old("squall.worker_files"), old("squall.cluster.records").Placement
    pulse, end, keys = files.Pulse, files.End, files.Keys
    started = old("supervisor.directories").Started
    least = files.Orders(
        1, "w-1-0", "w", "w1", (1, 0), "s1", "run", 1, (place("w1", "s1", 0, (1, 0), (1,)),), {}, ((1, "l", 0),), (),
        dict(SOUND), {}, "/state/topologies/w-1-0/bundle",
    )  # fmt: skip
    full = files.Orders(
        17, "words-12-1700000000", "words", "w1", (5, 2), "rack-1", "drain", 6,
        (place("w1", "rack-1", 0, (5, 2), (1, 3)), place("w2", "rack-2", 3, (4, 0), (2,))),
        {"w2": ADDRESS}, ((1, "lines", 0), (2, "lines", 1), (3, "count", 0)), (2,),
        {**SOUND, "mine": [1, 2.5, None, {"a": True}]}, {"lines": {"x": 1}, "count": {}},
        "/var/lib/squall/bundle", "0.0.0.0", "host-1.example.org", (6701, 6702), 12.5, 4711,
    )  # fmt: skip
    odd = files.Orders(
        2**63, ODD, ODD, LONE, (0, 0), ODD, "stop", 0, (), {ODD: (ODD, "")}, (), (0,), {**SOUND, ODD: LONE}, {ODD: {}},
        ODD, lease_secs=1,
    )  # fmt: skip
    return {
        "orders": {"minimal": least, "full": full, "odd": odd},
        "pulse": {
            "minimal": pulse(1, 0, (1, 0), 0, 1, "run", 1),
            "full": pulse(
                4711, 1234567, (5, 2), 99, 17, "drain", 6, True, True, True, True, "ValueError: boom", (1, 2), ADDRESS,
                12, ("count", 3, 0.25),
            ),
            "odd": pulse(2**40, 2**63, (0, 10**20), 2, 3, ODD, 4, crash=LONE, address=("", ODD), executing=(ODD, 0, 1)),
        },
        "end": {
            "minimal": end(1, (1, 0), 0, ""),
            "full": end(4711, (5, 2), 74, "the orders are for another one"),
            "odd": end(2**31, (0, 0), -9, LONE + ODD),
        },
        "keys": {"minimal": keys("", ""), "full": keys("p" * 40, "s" * 40), "odd": keys(ODD, LONE)},
        "lease": {"minimal": 0, "full": 4711, "odd": 10**20},
        "process": {
            "minimal": started(0, 0, (1, 0), 0),
            "full": started(4711, 1234567, (5, 2), 3),
            "odd": started(-1, 2**63, (0, 10**20), 65_535),
        },
        "needs": {
            "minimal": {},
            "full": {"code": "ab" * 32, "environment": "cd" * 20},
            "odd": {ODD: LONE, "": ""},
        },
    }  # fmt: skip


def _reports() -> dict[str, Any]:
    report = old("squall.error_reports").ErrorReport
    return {
        "minimal": report("words", "count", 1, "execute", "ValueError: boom", "", (), None, 0.0),
        "full": report(
            "words", "count", 2, "prepare", "ValueError: boom\nat line 2", "words.py:7, in prepare",
            ("a hint", 'File "words.py", line 7, in prepare', "caused by KeyError: 'x'"), "(word='a')", 1_700_000_000.5, 3,
        ),
        "odd": report(ODD, LONE, 10**20, "", ODD, LONE, (ODD, ""), "", 3, 2**63),
    }  # fmt: skip


def _histograms() -> dict[str, Any]:
    made = {name: old("squall.telemetry").Histogram() for name in ("minimal", "full", "odd")}
    for number in range(1, 60):
        made["full"].add(number * 0.37 / 7, number)
    for value in (0.0, -1.0, 2.0**-40, 2.0**70, 1e-9, 0.1 + 0.2):
        made["odd"].add(value)
    return made


def _counters() -> dict[str, Any]:
    module = old("squall.cluster.counters")
    worker, component = module.WorkerCounters, module.ComponentCounters
    histograms, reports = _histograms(), _reports()
    busy = component(
        1, 2, 3, 4, 5, 6, 7, histograms["full"], {"seen": 8, "rate": 0.5, "sizes": histograms["odd"]},
        {"timeout": 1, "failed": 2}, (12.5, "ValueError: boom"), 9, {"max pending": 1}, {"depth": 3, "why": "it raised"},
    )  # fmt: skip
    tiny = old("squall.telemetry").Histogram()
    tiny.add(0.5, 3)
    small = component(
        1, latency=tiny, metrics={"seen": 8, "sizes": tiny}, failures={"timeout": 1}, first_failure=(1.5, "why"), pending=2,
        idle={"none": 1}, gauges={"depth": 0.5},
    )  # fmt: skip
    odd = component(
        emitted=10**20,
        metrics={ODD: True, "text": ODD},
        failures={LONE: 1},
        first_failure=(3, LONE),
        gauges={"": -0.5},
    )
    return {
        "minimal": worker({}),
        "with one of each": worker({"lines": small}, (reports["minimal"],), 3),
        "full": worker({"lines": busy, "count": component(executed=5)}, tuple(reports.values()), 17),
        "odd": worker({ODD: odd, "none": component()}, (reports["odd"],), 0),
    }


def frozen_places() -> dict[str, Any]:
    """The directories of workers below a state directory; the identity of daemons by theirs."""
    state = Path("/state")
    folders = {json.dumps(pair): str(current_code.worker_directory(state, *pair)) for pair in FOLDERS}
    texts = {"ids": list(IDS), "keys": list(KEYS), "tokens": list(TOKENS)}
    said = {}
    for name, state_of in states(texts).items():
        with TemporaryDirectory() as folder:
            said[name] = identities(Path(folder), *state_of)
    return {
        "folders": folders,
        **texts,
        "told": said,
        "found": {str(each): _found(each) for each in (False, True)},
    }


def _found(with_process: bool) -> Any:
    """The worker that a supervisor finds; its process does not live."""
    files = frozen_files()
    with TemporaryDirectory() as folder:
        for kind in ("orders", "pulse", "keys", "lease", *(("process",) if with_process else ())):
            data = files[f"{kind}: full"]["data"].replace('"pid":4711', '"pid":999999999')
            (Path(folder) / f"{kind}.json").write_text(data)
        return current_code.found_worker(Path(folder))
