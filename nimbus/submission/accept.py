"""Accept a submission: store what it brings, make its record, and give it its name or its place in the queue for it.

One write, that of its record, makes it a topology; anything written before is an orphan without it. A submission that
comes again with the same key is the one that is already there.
Must not know: slots, what becomes of a topology.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from nimbus.lifecycle.assigning import TopologyKeys
from nimbus.lifecycle.cleanup import readable_record
from nimbus.lifecycle.rebalancing import WORKERS
from nimbus.lifecycle.replacing import Replacements
from nimbus.lifecycle.states import ACTIVE, INACTIVE, KILLED
from nimbus.lifecycle.transition import MESSAGE_TIMEOUT
from nimbus.placement.tasks import number_tasks
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
    """A submission. `conf` and `component_confs` are merged: every option of Squall's is in them."""

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
    """Accepts the submissions of one Nimbus."""

    def __init__(
        self,
        registry: Registry,
        keys: TopologyKeys | None,
        replacements: Replacements,
        stamp: Callable[[], str] | None = None,
    ) -> None:
        """`stamp`: makes the end of a topology's id; default: the wall clock's second."""
        self._registry = registry
        self._keys = keys
        self._replacements = replacements
        self._stamp = stamp

    def submitted(self, submission: str) -> TopologyRecord | None:
        """Return the topology that was submitted with this key, also one that waits for its name."""
        if not submission:
            return None
        return next((record for record in self._records() if record.submission == submission), None)

    def accept(self, order: Order, time: float) -> TopologyRecord:
        """Accept a topology at `time` (seconds since 1970); `NameTaken` while another one has its name.

        With `replace` it waits for the name; `IllegalTransition` or `ReplacementWaits` when it cannot.
        """
        check(order)
        name = order.topology.name
        there = readable_record(self._registry, name)
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
                self._registry.topologies.create(record)
            else:
                self._replacements.wait_for_name(record)
        except Exists:
            self._check_ours(record)
        _log.info("%s: submitted as %s, %s", name, topology_id, record.state)
        return record

    def _check_ours(self, record: TopologyRecord) -> None:
        """Raise `NameTaken`, unless the record that exists is ours: from a call whose answer was lost."""
        if record.id in {each.id for each in self._records()}:
            return
        if self._keys is not None:
            self._keys.forget(record.id)
        self._registry.remove_all_of(record.id)
        raise NameTaken(record.name)

    def _records(self) -> Iterator[TopologyRecord]:
        yield from self._registry.all_topologies()
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
    """`InvalidConfig` for a wait that is negative or infinite; None is allowed."""
    if wait_secs is not None and not 0 <= wait_secs < float("inf"):
        raise InvalidConfig([f"wait_secs must be 0 or more seconds, not {wait_secs!r}"])


def _check_size(record: TopologyRecord) -> None:
    size = len(encode(record))
    if size > _MOST_AT_FIRST:
        raise TooBig(
            f"topology {record.name!r} is too large: its configuration and the list of its {len(record.tasks):,} tasks have"
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
        tasks=number_tasks(order.topology),
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
