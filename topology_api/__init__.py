"""The names that users of Squall import: spouts, bolts, groupings, the builder, and the errors. Each is documented in the
module that defines it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Final

from topology_api import core_choice as core_choice  # before anything that may be compiled
from topology_api import errors as errors
from topology_api.errors import *  # noqa: F403 - all of its `__all__`

#: The names of each module. Every command needs `errors`, so that module is imported at once. Any other module is imported when
#: one of its names is first used: `squall list`, for example, needs none of them.
PLACES: Final = {
    "builder": ("TopologyBuilder",),
    "committing_sink": ("CommittingSink",),
    "components": ("BatchBolt", "Bolt", "Spout"),
    "context": ("Context",),
    "declarer": ("BoltDeclarer", "Handle"),
    "errors": tuple(errors.__all__),
    "fields": ("Fields", "Stream"),
    "groupings": ("Grouping",),
    "hooks": ("Hook",),
    "rewindable": ("RewindableSpout",),
    "staged_sink": ("StagedSink",),
    "token_sink": ("TokenSink",),
    "state": ("BroadcastState", "ListState", "MapState", "ValueState"),
    "stateful": ("StatefulBolt",),
    "topology": ("Topology",),
    "tuples": ("Tuple",),
    "values": ("Failure", "Replay"),
}
__all__ = sorted(name for names in PLACES.values() for name in names)

if TYPE_CHECKING:
    from topology_api.builder import TopologyBuilder as TopologyBuilder
    from topology_api.committing_sink import CommittingSink as CommittingSink
    from topology_api.components import BatchBolt as BatchBolt
    from topology_api.components import Bolt as Bolt
    from topology_api.components import Spout as Spout
    from topology_api.context import Context as Context
    from topology_api.declarer import BoltDeclarer as BoltDeclarer
    from topology_api.declarer import Handle as Handle
    from topology_api.fields import Fields as Fields
    from topology_api.fields import Stream as Stream
    from topology_api.groupings import Grouping as Grouping
    from topology_api.hooks import Hook as Hook
    from topology_api.rewindable import RewindableSpout as RewindableSpout
    from topology_api.staged_sink import StagedSink as StagedSink
    from topology_api.state import BroadcastState as BroadcastState
    from topology_api.state import ListState as ListState
    from topology_api.state import MapState as MapState
    from topology_api.state import ValueState as ValueState
    from topology_api.stateful import StatefulBolt as StatefulBolt
    from topology_api.token_sink import TokenSink as TokenSink
    from topology_api.topology import Topology as Topology
    from topology_api.tuples import Tuple as Tuple
    from topology_api.values import Failure as Failure
    from topology_api.values import Replay as Replay
else:

    def __getattr__(name: str) -> object:
        """Import a name of the API, or a module of `PLACES`, when it is first used, and keep it."""
        if name in PLACES:
            return import_module(f"{__name__}.{name}")
        module = next((module for module, names in PLACES.items() if name in names), None)
        if module is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = globals()[name] = getattr(import_module(f"{__name__}.{module}"), name)
        return found

    def __dir__() -> list[str]:
        """Return all names, imported or not."""
        return sorted({*globals(), *__all__, *PLACES})
