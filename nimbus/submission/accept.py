"""Takes a submission in: ships what it brings, makes its record, and gives it its name, or its place in the queue for it.

What makes it a topology is one write, that of its record; whatever else was written before is an orphan without it. A
submission that comes again with the same key is the one that is there.
Must not know: slots, what becomes of a topology.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from nimbus.assigning import Keys
from nimbus.clearing import whole
from nimbus.lifecycle import ACTIVE, INACTIVE, KILLED
from nimbus.rebalancing import WORKERS
from nimbus.replacing import Replacements
from nimbus.stepping import MESSAGE_TIMEOUT
from nimbus.tasks import number_tasks
from squall.cluster.blobs import put_bundle
from squall.cluster.numbering import SUBMISSIONS
from squall.cluster.records import TopologyRecord, encode
from squall.cluster.registry import Registry
from squall.cluster.store import MOST_BYTES, Exists, TooBig
from topology_api.errors import InvalidConfig, NameTaken
from topology_api.topology import Topology

_log = logging.getLogger(__name__)

_SETTINGS = (WORKERS, MESSAGE_TIMEOUT)
#: Bytes of a new record. The rest of what a store takes is for what happens to the topology later: a deadline, notes, errors,
#: finished spouts. One that had no room for them could not even be killed.
_MOST_AT_FIRST: Final = MOST_BYTES - 100_000


@dataclass(frozen=True)
class Order:
    """What is submitted. `conf` and `component_confs` are merged: every option of Squall's is in them."""

    topology: Topology
    conf: Mapping[str, object]
    component_confs: Mapping[str, Mapping[str, object]]
    active: bool = True
    submission: str = ""
    """The submitter's own key; "": none."""
    files: Mapping[str, str] = field(default_factory=dict)
    python: str = ""
    replace: bool = False
    wait_secs: float | None = None
    """How long the version that has the name may drain; None: its message timeout."""


class Intake:
    """The door of one Nimbus."""

    def __init__(
        self,
        registry: Registry,
        keys: Keys | None,
        replacements: Replacements,
        stamp: Callable[[], str] | None = None,
    ) -> None:
        """`stamp`: the end of a topology's id; without it, the calendar's second."""
        self._registry = registry
        self._keys = keys
        self._replacements = replacements
        self._stamp = stamp

    def submitted(self, submission: str) -> TopologyRecord | None:
        """The topology that was submitted with this key, also one that waits for its name."""
        if not submission:
            return None
        return next((record for record in self._records() if record.submission == submission), None)

    def take(self, order: Order, time: float) -> TopologyRecord:
        """Take a topology in, `time` being that of the calendar; `NameTaken` while another one has its name.

        With `replace` it waits for the name, and `IllegalTransition` or `ReplacementWaits` say that it cannot.
        """
        check(order)
        name = order.topology.name
        there = whole(self._registry, name)
        if there is not None:
            if not order.replace:
                raise NameTaken(name, being_killed=there.state == KILLED)
            self._replacements.check(there)
        stamp = str(int(time)) if self._stamp is None else self._stamp()
        topology_id = f"{name}-{self._registry.next_number(SUBMISSIONS)}-{stamp}"
        record = _record(order, topology_id, time)
        _check_size(record)
        put_bundle(self._registry.store, topology_id, order.topology)
        if self._keys is not None:
            self._keys.make(topology_id)
        try:
            if there is None:
                self._registry.create_topology(record)
            else:
                self._replacements.wait_for_name(record)
        except Exists:
            self._check_ours(record)
        _log.info("%s: submitted as %s, %s", name, topology_id, record.state)
        return record

    def _check_ours(self, record: TopologyRecord) -> None:
        """Somebody else was first; unless it was we, in a call that was not answered."""
        if record.id in {each.id for each in self._records()}:
            return
        if self._keys is not None:
            self._keys.forget(record.id)
        self._registry.remove_all_of(record.id)
        raise NameTaken(record.name)

    def _records(self) -> Iterator[TopologyRecord]:
        yield from self._registry.topologies()
        yield from self._replacements.records()


def check(order: Order) -> None:
    """`InvalidConfig` for an order that could be neither placed nor killed."""
    problems = [
        f"{key} is not set: submit takes a merged configuration" for key in _SETTINGS if key not in order.conf
    ]
    if problems:
        raise InvalidConfig(problems)
    check_wait(order.wait_secs)


def check_wait(wait_secs: float | None) -> None:
    """`InvalidConfig` for what is no time to wait; None is no wish."""
    if wait_secs is not None and not 0 <= wait_secs < float("inf"):
        raise InvalidConfig([f"wait_secs must be 0 or more seconds, not {wait_secs!r}"])


def _check_size(record: TopologyRecord) -> None:
    size = len(encode(record))
    if size > _MOST_AT_FIRST:
        raise TooBig(
            f"topology {record.name!r} is not taken in: its configuration and the list of its {len(record.tasks):,} tasks have"
            f" {size:,} bytes, of at most {_MOST_AT_FIRST:,}"
        )


def _record(order: Order, topology_id: str, time: float) -> TopologyRecord:
    return TopologyRecord(
        id=topology_id,
        name=order.topology.name,
        state=ACTIVE if order.active else INACTIVE,
        previous=None,
        conf=dict(order.conf),
        component_confs={component: dict(own) for component, own in order.component_confs.items()},
        tasks=tuple((spec.task, spec.component, spec.index) for spec in number_tasks(order.topology)),
        version=0,
        deadline=None,
        error=None,
        submitted=time,
        since=time,
        wait=order.wait_secs if order.replace else None,
        submission=order.submission,
        files=dict(order.files),
        python=order.python,
    )
