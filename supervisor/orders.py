"""Makes a worker's orders from the store's records. Pure functions.

Must not know: files, processes, time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import msgspec
from msgspec.structs import replace

from squall.cluster.records import Placement, TopologyRecord
from squall.values import Address, Incarnation, TopologyState
from squall.worker_files import COMMITTED, HEIR, ON_TRIAL, RETURNS, STATE_START, Orders
from supervisor.desired_state import TopologyView

#: Identifies the request that a worker answers with "drained". Each drain that Nimbus awaits has a different occasion.
Occasion = tuple[str, str, float | None, int]


class HostSettings(msgspec.Struct, frozen=True):
    """The part of the orders that all workers of a host share."""

    supervisor: str
    bind: str
    #: The host name under which others reach the host's workers.
    host: str
    lease_secs: float


class Own(msgspec.Struct, frozen=True):
    """The part of a worker's orders that stays the same while the worker's process lives."""

    worker: str
    incarnation: Incarnation
    bundle: str
    ports: tuple[int, int]
    seed: int


def orders_for(
    view: TopologyView, own: Own | Orders, host: HostSettings, restarts: Mapping[str, Incarnation]
) -> Orders:
    """Return a worker's orders, with number 0. `restarts`: the incarnations of this supervisor's workers, which may be newer
    than those in the store."""
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
        supervisor=host.supervisor,
        asked=view.asked,
        version=view.version,
        placements=placements,
        addresses=_addresses(view, placements, own.worker),
        tasks=record.tasks,
        finished=record.finished,
        conf=cast("Mapping[str, Any]", {**record.conf, **_about_version(record)}),
        component_confs=record.component_confs,
        bundle=own.bundle,
        bind=host.bind,
        host=host.host,
        ports=own.ports,
        lease_secs=host.lease_secs,
        seed=own.seed,
    )


def _about_version(record: TopologyRecord) -> dict[str, object]:
    """Return what a worker has to know of its version, besides its configuration."""
    found: dict[str, object] = {}
    if record.replaces is not None:
        found[ON_TRIAL] = record.replaces
    if record.state_start:
        found[STATE_START] = record.state_start
    if record.returns:
        found[RETURNS] = record.returns
    if record.committed:
        found[COMMITTED] = record.committed
    return found


def orders_to_stop(orders: Orders, views: Mapping[str, TopologyView]) -> Orders:
    """Return a worker's last orders. If its version is being rolled back, or was rolled back while this supervisor did not know
    it, they name the version that has the name again. `views`: the topologies in the store, by their id."""
    before, view = orders.conf.get(ON_TRIAL), views.get(orders.topology_id)
    if view is not None:
        rolled_back = view.record.state == TopologyState.FAILED and view.record.replaces == before
    else:
        rolled_back = before in views
    conf = {**orders.conf, HEIR: before} if isinstance(before, str) and rolled_back else orders.conf
    return replace(orders, asked="stop", conf=conf)


def occasion_of(view: TopologyView) -> Occasion:
    """Return the occasion of the present orders of a topology's workers. The occasion differs from one drain to the next."""
    return view.asked, view.record.state, view.record.deadline, view.version


def _incarnation(view: TopologyView, place: Placement, restarts: Mapping[str, Incarnation]) -> Incarnation:
    """Return the latest known incarnation of a placement's worker."""
    report = view.reports.get(place.worker)
    heard = [place.incarnation, restarts.get(place.worker, place.incarnation)]
    if report is not None:
        heard.append(report.incarnation)
    return max(known for known in heard if known.version == place.incarnation.version)


def _addresses(view: TopologyView, placements: tuple[Placement, ...], worker: str) -> dict[str, Address]:
    """Return the addresses of all workers except `worker`, as their current processes reported them."""
    found = {}
    for place in placements:
        report = view.reports.get(place.worker)
        if place.worker == worker or report is None or report.incarnation != place.incarnation:
            continue
        if report.address is not None and not report.stopped:
            found[place.worker] = report.address
    return found


def ports_of(address: Address | None) -> tuple[int, int]:
    """Return the ports of two endpoints such as tcp://127.0.0.1:6701; 0 for an endpoint without a port."""
    if address is None:
        return 0, 0
    ports = [endpoint.rpartition(":")[2] for endpoint in address]
    data, control = (int(port) if port.isdigit() else 0 for port in ports)
    return data, control
