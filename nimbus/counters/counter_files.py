"""What was counted, kept in files over a restart of Nimbus: one for each topology, whose name is the topology's id.

A file is written beside its place and renamed into it, for its owner alone: error reports show users' values. What cannot
be read is left out, with a warning: the workers that live tell their counters again anyway.
Must not know: when it is saved, topologies' names and states.
"""

from __future__ import annotations

import json
import logging
from collections import deque
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Final

from msgspec import ValidationError, convert

from nimbus.counters.topology_counters import Counted
from squall.cluster.counters import BadCounters, WorkerCounters
from squall.cluster.paths import quoted, unquoted
from squall.reports.error_reports import KEPT
from squall.values import Incarnation
from squall.worker_files import write_bytes

_log = logging.getLogger(__name__)

FORMAT: Final = 1
_SUFFIX: Final = ".json"


def write(directory: Path, topology_id: str, data: bytes) -> None:
    """Write the file of a topology, all at once."""
    write_bytes(directory, _name(topology_id), data, 0o600)


def remove_others(directory: Path, topology_ids: Collection[str]) -> None:
    """Remove the files of all other topologies."""
    keep = set(map(_name, topology_ids))
    for path in directory.glob(f"*{_SUFFIX}"):
        if path.name not in keep:
            path.unlink(missing_ok=True)


def read_all(directory: Path) -> dict[str, Counted]:
    """What the files of a directory hold, by topology id; nothing where there is no directory."""
    found: dict[str, Counted] = {}
    for path in sorted(directory.glob(f"*{_SUFFIX}")):
        try:
            found[unquoted(path.name[: -len(_SUFFIX)])] = decode(path.read_bytes())
        except (OSError, BadCounters) as error:
            _log.warning("%s: these counters cannot be read and are left out: %s", path, error)
    return found


def encode(base: bytes, folded: Mapping[str, Incarnation], workers: Mapping[str, Any]) -> bytes:
    """The bytes of a topology's file. `base`: `base_of` it; `workers`: worker -> (incarnation, counters)."""
    body = {
        "format": FORMAT,
        "base": json.loads(base),
        "folded": folded,
        "workers": {
            worker: [incarnation, json.loads(counters.to_bytes())]
            for worker, (incarnation, counters) in workers.items()
        },
    }
    return json.dumps(body, separators=(",", ":")).encode()


def base_of(counted: Counted) -> bytes:
    """The sums of what is gone."""
    reports = tuple(report for reports in counted.reports.values() for report in reports)
    return WorkerCounters(counted.base, reports).to_bytes()


def decode(data: bytes) -> Counted:
    """What `encode` made bytes of, or `BadCounters`."""
    try:
        body = json.loads(data)
        if body["format"] != FORMAT:
            raise ValueError(f"their format is {body['format']!r:.40}, this Squall reads {FORMAT}")
        base = WorkerCounters.from_bytes(json.dumps(body["base"]).encode())
        counted = Counted(
            workers={
                str(worker): (
                    convert(incarnation, Incarnation),
                    WorkerCounters.from_bytes(json.dumps(counters).encode()),
                )
                for worker, (incarnation, counters) in body["workers"].items()
            },
            base=dict(base.components),
            folded=convert(body["folded"], dict[str, Incarnation]),
        )
    except (ValidationError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise BadCounters(f"this file holds no counters: {error!r:.300}") from error
    for report in base.reports:
        counted.reports.setdefault(report.component, deque(maxlen=KEPT)).append(report)
    return counted


def _name(topology_id: str) -> str:
    return f"{quoted(topology_id)}{_SUFFIX}"
