"""What a worker is told, from what the store says; and what Nimbus is told, from what the worker says. Values in, values out.

Must not know: files, processes, time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

from squall.cluster.records import Placement, WorkerReport
from squall.worker_files import Address, Incarnation, Orders, Pulse
from supervisor.wanted import TopologyView

#: What a "drained" of a worker answers to: another wait for a drain is another one.
Occasion = tuple[str, str, float | None, int]


@dataclass(frozen=True)
class Surroundings:
    """What a supervisor tells all its workers."""

    supervisor: str
    bind: str
    host: str
    """The host that others reach its workers by."""
    lease_secs: float


@dataclass(frozen=True)
class Own:
    """What is a worker's own, and stays while its process lives."""

    worker: str
    incarnation: Incarnation
    bundle: str
    ports: tuple[int, int]
    seed: int


def orders_for(
    view: TopologyView, own: Own, around: Surroundings, restarts: Mapping[str, Incarnation]
) -> Orders:
    """The orders of a worker, without their number (0). `restarts`: incarnations that are known here before the store knows."""
    record = view.record
    placements = tuple(
        replace(place, incarnation=_incarnation(view, place, restarts)) for place in view.placements
    )
    return Orders(
        number=0,
        topology_id=record.id,
        topology=record.name,
        worker=own.worker,
        incarnation=own.incarnation,
        supervisor=around.supervisor,
        asked=view.asked,
        version=view.version,
        placements=placements,
        addresses=_addresses(view, placements, own.worker),
        tasks=record.tasks,
        finished=record.finished,
        conf=cast("Mapping[str, Any]", record.conf),
        component_confs=cast("Mapping[str, Mapping[str, Any]]", record.component_confs),
        bundle=own.bundle,
        bind=around.bind,
        host=around.host,
        ports=own.ports,
        lease_secs=around.lease_secs,
        seed=own.seed,
    )


def occasion_of(view: TopologyView) -> Occasion:
    """What is being asked of a topology's workers now; it differs from one drain to the next."""
    return view.asked, view.record.state, view.record.deadline, view.version


def _incarnation(view: TopologyView, place: Placement, restarts: Mapping[str, Incarnation]) -> Incarnation:
    """That of the process which runs a placement now, as far as anybody has heard."""
    report = view.reports.get(place.worker)
    heard = [place.incarnation, restarts.get(place.worker, place.incarnation)]
    if report is not None:
        heard.append(report.incarnation)
    return max(each for each in heard if each[0] == place.incarnation[0])


def _addresses(view: TopologyView, placements: tuple[Placement, ...], worker: str) -> dict[str, Address]:
    """Where the others are reached: only what the process that runs now has said."""
    found = {}
    for place in placements:
        report = view.reports.get(place.worker)
        if place.worker == worker or report is None or report.incarnation != place.incarnation:
            continue
        if report.address is not None and not report.stopped:
            found[place.worker] = report.address
    return found


def ports_of(address: Address | None) -> tuple[int, int]:
    """The ports of two endpoints such as tcp://127.0.0.1:6701; 0 for one that has none."""
    if address is None:
        return 0, 0
    ports = [endpoint.rpartition(":")[2] for endpoint in address]
    data, control = (int(port) if port.isdigit() else 0 for port in ports)
    return data, control


@dataclass(frozen=True)
class Standing:
    """Where a worker stands, as its supervisor knows: what a report of it is made from."""

    worker: str
    incarnation: Incarnation
    """Of the process that runs, or of the next one to be started."""
    pulse: Pulse | None
    """The last one of that incarnation."""
    asked: str | None
    """What it is asked now; None: nothing yet."""
    asked_since: int
    """The number of the first orders that asked so on this occasion."""
    stopped: bool
    note: str | None
    waits: bool = False
    """No process can be started yet: what it needs is being prepared."""


def report_of(standing: Standing) -> WorkerReport:
    """What Nimbus is told of a worker."""
    pulse = standing.pulse
    if pulse is None:
        return WorkerReport(
            standing.worker, standing.incarnation, False, False, False, standing.stopped, None,
            version=standing.incarnation[0], note=standing.note,
            waits=standing.waits,
        )  # fmt: skip
    # A worker that drained for an earlier occasion still says so until it has read its new orders.
    answers = pulse.asked == "drain" and pulse.orders >= standing.asked_since
    return WorkerReport(
        worker=standing.worker,
        incarnation=standing.incarnation,
        opened=pulse.opened,
        ended=pulse.ended,
        drained=pulse.drained and answers and standing.asked == "drain",
        stopped=standing.stopped,
        crash=pulse.crash,
        address=pulse.address,
        finished=pulse.finished,
        version=pulse.version,
        note=standing.note,
    )
