"""What a user of Squall imports: spouts, bolts, groupings, the builder, and the errors.

Only names; each is documented where it is written.
"""

# isort: off
from topology_api import core_choice as core_choice  # before anything that may be compiled
# isort: on

from topology_api.builder import BoltDeclarer, Handle, TopologyBuilder
from topology_api.components import BatchBolt, Bolt, Spout
from topology_api.context import Context
from topology_api.errors import (
    CannotPack,
    EmitError,
    FailTuple,
    GroupingError,
    InvalidConfig,
    InvalidTopology,
    NameTaken,
    NoSuchTopology,
    NotYet,
    SquallError,
    TopologyFailed,
)
from topology_api.fields import Fields, Stream
from topology_api.groupings import Grouping
from topology_api.hooks import Hook
from topology_api.topology import Topology
from topology_api.tuples import Tuple
from topology_api.values import Failure, Replay

__all__ = [
    "BatchBolt",
    "Bolt",
    "BoltDeclarer",
    "CannotPack",
    "Context",
    "EmitError",
    "FailTuple",
    "Failure",
    "Fields",
    "Grouping",
    "GroupingError",
    "Handle",
    "Hook",
    "InvalidConfig",
    "InvalidTopology",
    "NameTaken",
    "NoSuchTopology",
    "NotYet",
    "Replay",
    "Spout",
    "SquallError",
    "Stream",
    "Topology",
    "TopologyBuilder",
    "TopologyFailed",
    "Tuple",
]
