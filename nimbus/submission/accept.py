"""Accepts a submission: stores its values, makes its record, and gives the topology its name, or lets it wait for the name.

A submission becomes a topology when its record is written; without the record, all values written before are orphans. If a
submission with the same key exists already, the new one is treated as the same submission.
Must not know: slots, the further life of a topology.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from msgspec import structs

from nimbus.lifecycle.cleanup import TopologyKeys, readable_record, remove_all_of
from nimbus.lifecycle.rebalancing import WORKERS
from nimbus.lifecycle.replacing import Replacements, every_record, versions
from nimbus.lifecycle.states import ACTIVE, INACTIVE, KILLED
from nimbus.lifecycle.transition import MESSAGE_TIMEOUT
from nimbus.placement.tasks import number_tasks
from nimbus.submission.keeping import (
    check_groups,
    check_start,
    committed_before,
    has_state,
    problems_of_takeover,
)
from nimbus.submission.set_options import kept_by, with_options
from nimbus.submission.state_place import inherited, placed
from nimbus.submission.submission import Submission
from squall.cluster.blobs import get_description, put_bundle
from squall.cluster.component_settings import merged
from squall.cluster.numbering import SUBMISSIONS
from squall.cluster.records import SetOptions, TopologyRecord
from squall.cluster.registry import Registry
from squall.cluster.store import MOST_BYTES, Exists, TooBig
from topology_api.epoch_rules import is_auto
from topology_api.errors import InvalidConfig, NameTaken
from topology_api.values import MAX_SECONDS, number_problem
from topology_api.wording import typed

_log = logging.getLogger(__name__)

_SETTINGS = (WORKERS, MESSAGE_TIMEOUT)
#: The limit of a new record in bytes. The rest of the store's limit is reserved for later additions to the record: a deadline,
#: notes, errors, finished spouts. Without this reserve, a topology could not even be killed.
_MOST_AT_FIRST: Final = MOST_BYTES - 80_000


@dataclass(eq=False, repr=False)
class Intake:
    """Accepts the submissions of one Nimbus."""

    registry: Registry
    keys: TopologyKeys | None
    replacements: Replacements
    #: Makes the last part of a topology's id; None: the last part is the wall clock in whole seconds.
    stamp: Callable[[], str] | None

    def submitted(self, key: str) -> TopologyRecord | None:
        """Return the topology that was submitted with this key, even if it still waits for its name."""
        if not key:
            return None
        return next((record for record in self._records() if record.submission == key), None)

    def _records(self) -> Iterator[TopologyRecord]:
        """Yield all topologies, then the versions that wait for a name or may get it back. All these versions are
        read before the first of them is yielded."""
        yield from self.registry.all_topologies()
        yield from [version for _, version in versions(self.registry) if isinstance(version, TopologyRecord)]

    def check(self, submission: Submission, time: float) -> tuple[TopologyRecord | None, TopologyRecord]:
        """Return (the topology that has the name, the record of the submission, without an id). Writes nothing, and raises what
        `accept` raises."""
        _check(submission)
        name = submission.topology.name
        there = readable_record(self.registry, name)
        if there is not None:
            if not submission.replace:
                raise NameTaken(name, being_killed=there.state == KILLED)
            self.replacements.check(there)
            submission = _with_kept(submission, there)
        submission = self._with_place(submission, there)
        check_start(submission)
        if there is not None:
            self._check_state(there, submission)
        check_groups(submission)
        record = structs.replace(_record(submission, "", time), committed=committed_before(there, submission))
        self._check_size(record)
        return there, record

    def _with_place(self, submission: Submission, there: TopologyRecord | None) -> Submission:
        """Return the submission with the place where its state is kept, if it leaves that to Nimbus."""
        if is_auto(submission.conf) and there is not None:
            submission = inherited(submission, there, get_description(self.registry.store, there.id))
        if is_auto(submission.conf):
            supervisors = self.registry.all_supervisors()
            submission = placed(submission, supervisors, self.registry.drained_supervisors())
        return submission

    def _check_state(self, there: TopologyRecord, submission: Submission) -> None:
        """Raise `InvalidConfig` if a submission cannot go on from the state of the topology that it replaces."""
        if has_state(there) and not submission.state_start:
            description = get_description(self.registry.store, there.id)
            if problems := [*problems_of_takeover(there, description, submission)]:
                raise InvalidConfig(problems, f"topology {there.name!r}")

    def _check_size(self, record: TopologyRecord) -> None:
        size = len(self.registry.topologies.encoded(record)[1])
        if size <= _MOST_AT_FIRST:
            return
        behind = ", ".join(self.registry.daemons_behind())
        upgrade = (
            f"; it has more room as soon as a later release runs these daemons: {behind}" if behind else ""
        )
        raise TooBig(
            f"topology {record.name!r} is too large: its configuration and the list of its {len(record.tasks):,} tasks"
            f" have {size:,} bytes, but at most {_MOST_AT_FIRST:,} are allowed{upgrade}"
        )

    def accept(self, submission: Submission, time: float) -> TopologyRecord:
        """Accept a topology at `time` (seconds since 1970). Raises `NameTaken` while another topology has the same name.

        With `replace`, the topology waits for the name instead. Raises `IllegalTransition` or `ReplacementWaits` if it cannot
        wait.
        """
        there, record = self.check(submission, time)
        name = record.name
        stamp = str(int(time)) if self.stamp is None else self.stamp()
        topology_id = f"{name}-{self.registry.next_number(SUBMISSIONS)}-{stamp}"
        record = structs.replace(record, id=topology_id)
        put_bundle(self.registry.store, topology_id, submission.topology)
        if self.keys is not None:
            self.keys.make(topology_id)
        try:
            (self.registry.topologies if there is None else self.registry.replacements).create(record)
        except Exists as error:
            # No error if the existing record is this submission's own, written by a call whose answer was lost.
            if record.id not in {each.id for each in every_record(self.registry)[0]}:
                remove_all_of(self.registry, self.keys, record.id)
                raise NameTaken(name) from error
        _log.info("%s: submitted as %s, %s", name, topology_id, record.state)
        return record


def _check(submission: Submission) -> None:
    """Raise `InvalidConfig` for a submission that could be neither placed nor killed."""
    problems = [
        f"{key} is not set: submit takes a merged configuration"
        for key in _SETTINGS
        if key not in submission.conf
    ]
    problems += [
        f"{name} is {typed(value)}: give True or False"
        for name, value in (("active", submission.active), ("replace", submission.replace))
        if not isinstance(value, bool)
    ]
    if problems:
        raise InvalidConfig(problems, f"topology {submission.topology.name!r}")
    check_wait(submission.wait_secs)


def check_wait(wait_secs: object) -> None:
    """Raise `InvalidConfig` for a wait that is not a number of seconds; None is allowed."""
    problem = None if wait_secs is None else number_problem(wait_secs, 0, MAX_SECONDS, "seconds")
    if problem:
        raise InvalidConfig([f"wait_secs {problem}"])


def _record(submission: Submission, topology_id: str, time: float) -> TopologyRecord:
    return TopologyRecord(
        id=topology_id,
        name=submission.topology.name,
        state=ACTIVE if submission.active else INACTIVE,
        previous=None,
        conf=dict(submission.conf),
        component_confs=merged(submission.conf, submission.component_confs),
        tasks=number_tasks(submission.topology, submission.options.parallelism),
        version=0,
        deadline=None,
        error=None,
        submitted=time,
        since=time,
        wait=submission.wait_secs if submission.replace else None,
        submission=submission.key,
        files=dict(submission.files),
        python=submission.python,
        set_options=None if submission.options == SetOptions() else submission.options,
        by=submission.by,
        repeats=submission.repeats,
        state_start=submission.state_start,
    )


def _with_kept(submission: Submission, there: TopologyRecord | None) -> Submission:
    """Return the submission with what operators have set for the topology that it replaces."""
    if there is None or there.set_options is None or submission.reset_options:
        return submission
    components = [component.id for component in submission.topology.components]
    options = kept_by(there.set_options, submission.options, components)
    conf, own = with_options(submission.conf, submission.component_confs, options)
    return structs.replace(submission, conf=conf, component_confs=own, options=options)
