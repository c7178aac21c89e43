"""Which topologies keep their state at `topology.state.path`, and what they may contain. Returns problems as texts.

Must not know: how state is kept, which place `auto` stands for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

from topology_api.state_places import AUTO
from topology_api.wording import listed

if TYPE_CHECKING:
    from topology_api.components import Bolt
    from topology_api.topology import Topology

STATE_PATH: Final = "topology.state.path"
STATE_WEBHDFS: Final = "topology.state.webhdfs"
STATE_GROUPS: Final = "topology.state.groups"
ACKING: Final = "topology.acking"
REQUIRE: Final = "topology.require"
EPOCH_SECS: Final = "topology.epoch.secs"
#: How many key groups a new state has if the configuration names no number.
DEFAULT_GROUPS: Final = 1024
#: Seconds of an epoch in a topology without a staged sink.
DEFAULT_SECS: Final = 1.0
_WHY: Final = f"in a topology with {STATE_PATH}"
#: What else helps where no path is named.
_OR_MEMORY: Final = f"; or set {STATE_PATH} to null, which keeps the state in memory"


def state_path(conf: Mapping[str, object]) -> str | None:
    """Return where a topology keeps its state; None: in memory, or Nimbus has not chosen the place yet."""
    path = conf.get(STATE_PATH)
    return None if path == AUTO else cast("str | None", path)


def is_auto(conf: Mapping[str, object]) -> bool:
    """Return whether a configuration leaves the place of the state to Nimbus."""
    return conf.get(STATE_PATH) == AUTO


def keeps_something(keeps: Mapping[str, Any]) -> bool:
    """Return whether a component is a reason to keep state by default: it has state, or commits what it writes. `keeps`: what
    its description says."""
    return "states" in keeps or bool(keeps.get("commits"))


def keepers(topology: Topology) -> list[str]:
    """Return the components for which a topology keeps state by default."""
    return [spec.id for spec in topology.components if keeps_something(spec.keeps)]


def has_path(topology: Topology, conf: Mapping[str, object]) -> bool:
    """Return whether a topology keeps its state at a path, or will when Nimbus has chosen one."""
    return state_path(conf) is not None or (is_auto(conf) and bool(keepers(topology)))


def epoch_problems(topology: Topology, conf: Mapping[str, object]) -> Iterator[str]:
    """Yield what keeps a topology from having its state at `topology.state.path`; nothing if it has it in memory."""
    if not has_path(topology, conf):
        return
    or_memory = _OR_MEMORY if is_auto(conf) else ""
    if conf.get(ACKING) is False:
        yield f"topology.acking is false: {_WHY} it must be true{or_memory}"
    for spec in topology.bolts:
        if (problem := bolt_problem(topology.load(spec.id))) is not None:
            yield f"component {spec.id!r} {problem[0]}: {problem[1]}{or_memory}"
    from topology_api.letter_streams import returning_letters

    yield from (f"{problem}{or_memory}" for problem in returning_letters(topology))
    yield from groups_problems(topology, conf)


def groups_problems(
    topology: Topology, conf: Mapping[str, object], tasks: Mapping[str, int] | None = None
) -> Iterator[str]:
    """Yield each stateful bolt that has more tasks than there are key groups; nothing if its state is in memory.
    `tasks`: component -> its number of tasks, where that is not the declared one."""
    if not has_path(topology, conf) or STATE_GROUPS not in conf:
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
    meant = any(each.get(STATE_PATH, AUTO) is None for each in given)
    if state_path(conf) is not None or meant:
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
