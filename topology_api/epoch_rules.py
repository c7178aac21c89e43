"""What a topology with `topology.state.path` may contain. Returns problems as texts. Must not know: how state is kept."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from topology_api.committing_sink import CommittingSink
from topology_api.components import Bolt
from topology_api.stateful import StatefulBolt
from topology_api.topology import Topology

STATE_PATH: Final = "topology.state.path"
STATE_WEBHDFS: Final = "topology.state.webhdfs"
ACKING: Final = "topology.acking"
EPOCH_SECS: Final = "topology.epoch.secs"
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
    if not bolt.auto_ack and isinstance(bolt, StatefulBolt):
        return (
            f"acks itself (auto_ack is False) and has state, which {STATE_PATH} does not allow: a tuple that it holds at a "
            "failure is executed again, and would count twice in its state",
            "leave auto_ack True, and keep what waits in a ListState",
        )
    if not bolt.auto_ack and isinstance(bolt, CommittingSink):
        return f"acks itself (auto_ack is False), and {_WHY} a sink's commit does that", "leave auto_ack True"
    return None
