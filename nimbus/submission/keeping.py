"""Whether a version of a topology can go on from the state of the version that it replaces.

Decided from the two descriptions, which say what each component keeps. What components keep that the running version does not
have, only its workers see: a version that cannot go on from that fails its trial, and the running version returns.
Pure functions over values. Must not know: the store, where state is kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from nimbus.lifecycle.rebalancing import kept_number_problem
from nimbus.lifecycle.states import COMPLETED, FAILED
from nimbus.placement.tasks import count_tasks, number_tasks
from nimbus.submission.submission import Submission
from squall.cluster.records import TopologyRecord
from squall.packages.state_paths import BadStart, StateStart
from topology_api.epoch_rules import (
    STATE_PATH,
    groups_problems,
    named_groups,
    other_groups_problem,
    state_in_memory,
    state_path,
)
from topology_api.errors import InvalidConfig
from topology_api.state_types import keeping_problems


def has_state(record: TopologyRecord) -> bool:
    """Return whether a topology keeps its state at a path."""
    return state_path(record.conf) is not None


def unkept_bolts(record: TopologyRecord, description: Mapping[str, Any]) -> list[str]:
    """Return the bolts of a topology whose state ends with their worker, unless that is meant."""
    keeps = {each["id"]: each.get("keeps", {}) for each in description["components"]}
    operators = record.set_options.topology if record.set_options is not None else {}
    return state_in_memory(keeps, record.conf, description["conf"], operators)


def committed_before(there: TopologyRecord | None, submission: Submission) -> int:
    """Return an epoch that is committed where a submission keeps its state; 0: none is known to be. Of an ended topology, the
    state may have been dropped since."""
    if there is None or there.state in (COMPLETED, FAILED):
        return 0
    return there.committed if state_path(there.conf) == state_path(submission.conf) else 0


def check_start(submission: Submission) -> None:
    """Raise `InvalidConfig` for a submission that begins with an epoch that it cannot have. What is kept, only its workers
    see."""
    if not submission.state_start:
        return
    problems = []
    try:
        StateStart.parse(submission.state_start)
    except BadStart as error:
        problems.append(str(error))
    if state_path(submission.conf) is None:
        problems.append(f"--state needs a topology that keeps its state: set {STATE_PATH}")
    if problems:
        raise InvalidConfig(problems, f"topology {submission.topology.name!r}")


def check_groups(submission: Submission) -> None:
    """Raise `InvalidConfig` for a submission with more tasks of a stateful bolt than there are key groups."""
    tasks = count_tasks(number_tasks(submission.topology, submission.options.parallelism))
    if problems := [*groups_problems(submission.topology, submission.conf, tasks)]:
        raise InvalidConfig(problems, f"topology {submission.topology.name!r}")


def problems_of_takeover(
    there: TopologyRecord, description: Mapping[str, Any], submission: Submission
) -> Iterator[str]:
    """Yield what keeps a submission from going on from the state of the topology that has the name. `description`: that of this
    topology."""
    before, after = state_path(there.conf), state_path(submission.conf)
    if before is None:
        return  # the new version begins without state
    if before != after:
        start = str(before).removeprefix("file://")
        yield (
            f"the running version keeps its state at {before}, and for the new version {STATE_PATH} is {after or 'null'}, so "
            f"the state would be left behind: set {STATE_PATH} to {before}, take it along by --state {start}, or kill the "
            "topology and submit the new version then"
        )
        return
    was_divided, divided = named_groups(there.conf), named_groups(submission.conf)
    if was_divided is not None and divided not in (
        None,
        was_divided,
    ):  # where none is named, only the workers know it
        assert divided is not None
        yield other_groups_problem(was_divided, divided)
    old = {each["id"]: each for each in description["components"]}
    counts = count_tasks(there.tasks)
    wanted = count_tasks(number_tasks(submission.topology, submission.options.parallelism))
    for spec in submission.topology.components:
        was = old.get(spec.id)
        if was is None:
            continue
        if was["kind"] != spec.kind:
            yield f"component {spec.id!r} was a {was['kind']}, and is a {spec.kind} now: give it another name"
            continue
        if spec.keeps_tasks and counts[spec.id] != wanted[spec.id]:
            yield kept_number_problem(spec.id, counts[spec.id], wanted[spec.id])
        for problem in keeping_problems(there.name, spec.id, was.get("keeps", {}), spec.keeps):
            yield f"{problem}{back_to(there.name, submission)}"


def back_to(name: str, submission: Submission) -> str:
    """Return what else helps a rollback: an epoch of the version that returns."""
    if not submission.repeats:
        return ""
    return (
        f"; or begin with an epoch of that version (`squall state list` shows those that are kept): `squall rollback {name} "
        f"{submission.repeats} --state @EPOCH`"
    )
