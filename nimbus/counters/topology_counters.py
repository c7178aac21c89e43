"""The counters of one topology: the latest counters of each worker, the sums of ended workers, and the file that stores both.

Each topology has one file, named after its id, that preserves the counters across a restart of Nimbus. A file is written under
a temporary name and then renamed. Only the file's owner may read it, because error reports contain users' values. A file that
cannot be read is left out, with a warning: living workers will report their counters again in any case.
Must not know: how counters arrive, who reads them, when they are saved.
"""

from __future__ import annotations

import json
import logging
from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from msgspec import ValidationError, convert

from squall.atomic_files import TEMPORARY, write_bytes
from squall.cluster.counters import BadCounters, ComponentCounters, WorkerCounters
from squall.cluster.paths import quoted, unquoted
from squall.epoch_status import EpochReport, EpochStatus, LeadReport, newer, status_of
from squall.reports.error_reports import KEPT, ErrorReport, folded
from squall.values import Incarnation

_log = logging.getLogger(__name__)

FORMAT: Final = 1
_SUFFIX: Final = ".json"


@dataclass
class Counted:
    """The counters of one topology."""

    #: The latest counters of each worker.
    workers: dict[str, tuple[Incarnation, WorkerCounters]] = field(default_factory=dict)
    #: The sums of the incarnations that have ended, by component.
    base: dict[str, ComponentCounters] = field(default_factory=dict)
    #: The latest errors of the incarnations that have ended, by component.
    reports: dict[str, deque[ErrorReport]] = field(default_factory=dict)
    #: Worker -> its latest incarnation that `base` includes.
    folded: dict[str, Incarnation] = field(default_factory=dict)
    #: The newest report of a coordinator of epochs whose worker's incarnation has ended.
    lead: LeadReport | None = None

    def count(self, worker: str, incarnation: Incarnation, counters: WorkerCounters) -> None:
        """Record the counters of a worker, unless later counters are known."""
        if incarnation <= self.folded.get(worker, Incarnation(-1, -1)):
            return
        last = self.workers.get(worker)
        if last is not None:
            if incarnation < last[0] or (incarnation == last[0] and counters.number < last[1].number):
                return
            if incarnation > last[0]:
                self.fold(worker)
        self.workers[worker] = incarnation, counters

    def fold(self, worker: str) -> None:
        """Add the sums of a worker's ended incarnation to the base, and forget the incarnation's state."""
        incarnation, counters = self.workers.pop(worker)
        self.folded[worker] = incarnation
        if counters.epochs is not None:
            self.lead = newer(self.lead, counters.epochs.lead)
        for component, done in counters.components.items():
            self.base.setdefault(component, ComponentCounters()).add(done)
        for component in dict.fromkeys(report.component for report in counters.reports):
            own = [report for report in counters.reports if report.component == component]
            self.reports[component] = deque(folded([*self.reports.get(component, ()), *own]), maxlen=KEPT)

    def totals(self, component: str, living: Collection[tuple[str, Incarnation]]) -> ComponentCounters:
        """Return the sums of a component, and the component's present state as the `living` workers reported it.

        If no worker is living, return the last reported state, without idle reasons. So the trees of a killed worker, which
        were neither acked nor failed, are still counted as pending.
        """
        totals = ComponentCounters()
        if component in self.base:
            totals.add(self.base[component])
        for worker, (incarnation, counters) in self.workers.items():
            if (here := counters.components.get(component)) is not None:
                totals.add(here)
                if not living or (worker, incarnation) in living:
                    totals.add_present(here)
        if not living:
            totals.idle.clear()
            totals.down.clear()
            totals.undecided.clear()
            totals.loads.clear()
        return totals

    def epoch(self, living: Collection[tuple[str, Incarnation]], now: float) -> EpochStatus | None:
        """Return the epochs as users see them; None if there are none. What is waited for, the `living` workers say."""
        last, reports = self.lead, []
        for worker, (incarnation, counters) in self.workers.items():
            if counters.epochs is None:
                continue
            if (worker, incarnation) in living:
                reports.append(counters.epochs)
            else:
                last = newer(last, counters.epochs.lead)
        return status_of(last, reports, now)

    @property
    def newest_lead(self) -> LeadReport | None:
        """The newest report of a coordinator of epochs, which may have ended; None: there is none."""
        lead = self.lead
        for _, counters in self.workers.values():
            if counters.epochs is not None:
                lead = newer(lead, counters.epochs.lead)
        return lead

    @property
    def key_groups(self) -> int:
        """Into how many groups the keys of the topology's state are divided; 0: no coordinator of epochs has said so."""
        lead = self.newest_lead
        return 0 if lead is None else lead.groups

    @property
    def committed(self) -> int:
        """The last epoch that is known to be committed; 0: none is."""
        lead = self.newest_lead
        return 0 if lead is None else lead.number

    def has_emitted(self) -> bool:
        """Return whether any task has ever emitted anything."""
        latest = (counters.components for _, counters in self.workers.values())
        return any(done.emitted for components in (self.base, *latest) for done in components.values())

    def latest_reports(self) -> tuple[ErrorReport, ...]:
        """Return the latest errors of all workers, the oldest first. An error that recurs at each restart is listed once."""
        found = [report for reports in self.reports.values() for report in reports]
        found += [report for _, counters in self.workers.values() for report in counters.reports]
        return tuple(folded(found))


def write(directory: Path, topology_id: str, data: bytes) -> None:
    """Write the file of a topology atomically."""
    write_bytes(directory, _name(topology_id), data, 0o600)


def remove_others(directory: Path, topology_ids: Collection[str]) -> None:
    """Remove the files of all topologies that are not in `topology_ids`, and unfinished files of a killed Nimbus."""
    keep = set(map(_name, topology_ids))
    for path in [*directory.glob(f"*{_SUFFIX}"), *directory.glob(f"*{TEMPORARY}")]:
        if path.name not in keep:
            path.unlink(missing_ok=True)


def read_all(directory: Path) -> dict[str, Counted]:
    """Return the counters in the files of a directory, by topology id; an empty dict if there is no directory."""
    found: dict[str, Counted] = {}
    for path in sorted(directory.glob(f"*{_SUFFIX}")):
        try:
            found[unquoted(path.name[: -len(_SUFFIX)])] = decode(path.read_bytes())
        except (OSError, BadCounters) as error:
            _log.warning("%s: these counters cannot be read and are left out: %s", path, error)
    return found


def encode(base: bytes, folded: Mapping[str, Incarnation], workers: Mapping[str, Any]) -> bytes:
    """Return the bytes of a topology's file. `base`: from `base_of`; `workers`: worker -> (incarnation, counters)."""
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
    """Return the sums of the workers that are gone, as bytes."""
    reports = tuple(report for reports in counted.reports.values() for report in reports)
    epochs = None if counted.lead is None else EpochReport(counted.lead)
    return WorkerCounters(counted.base, reports, epochs=epochs).to_bytes()


def decode(data: bytes) -> Counted:
    """Decode the bytes that `encode` made; raise `BadCounters` for any other bytes."""
    try:
        body = json.loads(data)
        if body["format"] != FORMAT:
            raise BadCounters(f"they have format {body['format']!r:.40}, this Squall reads format {FORMAT}")
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
            lead=None if base.epochs is None else base.epochs.lead,
        )
    except (ValidationError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise BadCounters(f"this file holds no counters: {error!r:.300}") from error
    for report in base.reports:
        counted.reports.setdefault(report.component, deque(maxlen=KEPT)).append(report)
    return counted


def _name(topology_id: str) -> str:
    return f"{quoted(topology_id)}{_SUFFIX}"
