"""What a topology with `topology.state.path` may contain. Returns problems as texts. Must not know: how state is kept."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from topology_api.wording import listed

if TYPE_CHECKING:
    from topology_api.components import Bolt
    from topology_api.topology import Topology

STATE_PATH: Final = "topology.state.path"
STATE_WEBHDFS: Final = "topology.state.webhdfs"
STATE_GROUPS: Final = "topology.state.groups"
ACKING: Final = "topology.acking"
EPOCH_SECS: Final = "topology.epoch.secs"
#: How many key groups a new state has if the configuration names no number.
DEFAULT_GROUPS: Final = 1024
#: Seconds of an epoch in a topology without a staged sink.
DEFAULT_SECS: Final = 1.0
_WHY: Final = f"in a topology with {STATE_PATH}"


def epoch_problems(topology: Topology, conf: Mapping[str, object]) -> Iterator[str]:
    """Yield what keeps a topology from having its state at `topology.state.path`; nothing if the path is not set."""
    if conf.get(STATE_PATH) is None:
        return
    if conf.get(ACKING) is False:
        yield f"topology.acking is false: {_WHY} it must be true"
    for spec in topology.bolts:
        if (problem := bolt_problem(topology.load(spec.id))) is not None:
            yield f"component {spec.id!r} {problem[0]}: {problem[1]}"
    from topology_api.letter_streams import returning_letters

    yield from returning_letters(topology)
    yield from groups_problems(topology, conf)


def groups_problems(
    topology: Topology, conf: Mapping[str, object], tasks: Mapping[str, int] | None = None
) -> Iterator[str]:
    """Yield each stateful bolt that has more tasks than there are key groups; nothing if no `topology.state.path` is set.
    `tasks`: component -> its number of tasks, where that is not the declared one."""
    if conf.get(STATE_PATH) is None or STATE_GROUPS not in conf:
        return  # at `build()`, later settings may give them
    groups = groups_of(conf)
    for spec in topology.bolts:
        count = (tasks or {}).get(spec.id, spec.parallelism)
        if has_key(spec.keeps) and count > groups:
            yield few_groups_problem(spec.id, count, groups)


def named_groups(conf: Mapping[str, Any]) -> int | None:
    """Return the number of key groups that a configuration names; None: that of the state, whatever it is."""
    groups = conf.get(STATE_GROUPS)
    return None if groups is None else int(groups)


def groups_of(conf: Mapping[str, Any]) -> int:
    """Return the number of key groups of a new state."""
    return named_groups(conf) or DEFAULT_GROUPS


def has_key(keeps: Mapping[str, Any]) -> bool:
    """Return whether what a component keeps belongs to keys, whose groups its tasks share."""
    return bool(keeps.get("key"))


def state_in_memory(
    keeps: Mapping[str, Mapping[str, Any]], conf: Mapping[str, object], *given: Mapping[str, object]
) -> list[str]:
    """Return the bolts whose state ends with their worker, unless a setting says that this is meant. `keeps`: of each
    component, what its description says. `given`: the settings of the topology itself, and those of an operator: null for
    `topology.state.path` in one of them says so."""
    if conf.get(STATE_PATH) is not None or any(STATE_PATH in each for each in given):
        return []
    return [component for component, each in keeps.items() if "states" in each]


def memory_note(bolts: Sequence[str]) -> str:
    """Return what to know of these bolts."""
    return (
        f"the state of {listed(bolts)} is in memory and ends with its worker: set {STATE_PATH} (docs/state.md); "
        "if that is meant, set it to null in the topology or by -o"
    )


def few_groups_problem(bolt: str, tasks: int, groups: int) -> str:
    """Return why a stateful bolt cannot have as many tasks as asked for."""
    return (
        f"bolt {bolt!r} would have {tasks:,} tasks, and its keys are divided into {groups:,} groups ({STATE_GROUPS}), so some "
        f"tasks would have no keys: give it at most {groups:,} tasks, or set more groups and begin at another {STATE_PATH} "
        "(`--state FOLDER` takes the state along)"
    )


def other_groups_problem(before: int, now: int) -> str:
    """Return why a topology whose state has another number of key groups cannot go on from it."""
    return (
        f"its state has {before:,} key groups, and {STATE_GROUPS} is {now:,} now: leave it out, or begin at another "
        f"{STATE_PATH} (`--state FOLDER` takes the state along)"
    )


def epoch_secs(topology: Topology, conf: Mapping[str, object]) -> float:
    """Return how often an epoch ends, in seconds: `topology.epoch.secs`, or the longest `batch_interval` of a staged sink,
    whose readers get something for each epoch: a file, or a batch in a table.
    """
    given = conf[EPOCH_SECS]
    if isinstance(given, (int, float)):
        return float(given)
    intervals = (spec.batch_interval for spec in topology.bolts)
    return max((interval for interval in intervals if interval is not None), default=DEFAULT_SECS)


def bolt_problem(bolt: Bolt) -> tuple[str, str] | None:
    """Return what keeps a bolt from a topology with `topology.state.path`, and what to do about it; None: nothing."""
    # Not at the top: commands that only read settings import this module, and start faster without the classes of components.
    from topology_api.committing_sink import CommittingSink
    from topology_api.stateful import StatefulBolt

    if not bolt.auto_ack and isinstance(bolt, StatefulBolt):
        return (
            f"acks itself (auto_ack is False) and has state, which {STATE_PATH} does not allow: a tuple that it holds at a "
            "failure is executed again, and would count twice in its state",
            "leave auto_ack True, and keep what waits in a ListState",
        )
    if not bolt.auto_ack and isinstance(bolt, CommittingSink):
        return f"acks itself (auto_ack is False), and {_WHY} a sink's commit does that", "leave auto_ack True"
    return None
