"""Where in the store each thing lives.

```
/cluster                           the id of this cluster and the format of its records, made by its first leader
/leadership/leader                 the id of the Nimbus that leads; ephemeral: who creates it, leads
/leadership/epoch                  written by each new leader: its version guards all writes of that leader
/nimbuses/<id>                     NimbusRecord; ephemeral
/supervisors/<id>                  SupervisorRecord: registered until it leaves or is given up for its silence
/presence/<id>                     the state directory and the process of a supervisor or a Nimbus; ephemeral
/drained/<id>                      a supervisor that is to get no work
/topologies/<name>                 TopologyRecord: holding the record is holding the name
/replacements/<name>               TopologyRecord of the version that waits for the drain of the one that has the name
/replaced/<name>                   TopologyRecord of the version before, until the new one has proved that it runs
/assignments/<id>                  Assignment: the workers that a topology has
/leaving/<id>                      Assignment: workers that were withdrawn and are not gone yet
/former/<id>                       Assignment: the workers that were withdrawn last, which says where their logs are
/reports/<id>/<worker>             WorkerReport: the last word of a worker
/keys/<id>/<recipient>             the key pair of a topology's links, sealed to a Nimbus or a supervisor
/keys/operator/<recipient>         the operators' token, sealed to a Nimbus
/blobs/<id>/description            the topology's typed description (in chunks, see blobs)
/blobs/<id>/pickles/<component>    the pickle of a component
/counters/<name>                   numbers that are never given twice
```

<id> of a topology is that of a submission ("name-<n>-<time>"), <recipient> the id of a Nimbus or supervisor. Names stand
quoted, so that any name that a topology may have is one that a store may have. All of it lies below one root (by default
`/squall`), so that several clusters may share a ZooKeeper.
Must not know: what the values are.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final
from urllib.parse import quote, unquote

TOPOLOGIES = "/topologies"
ASSIGNMENTS = "/assignments"
LEAVING = "/leaving"
FORMER = "/former"
REPORTS = "/reports"
SUPERVISORS = "/supervisors"
KEYS = "/keys"
BLOBS = "/blobs"
COUNTERS = "/counters"
CLUSTER = "/cluster"
LEADERSHIP = "/leadership"
LEADER = "/leadership/leader"
EPOCH = "/leadership/epoch"
NIMBUSES = "/nimbuses"
PRESENCE = "/presence"
DRAINED = "/drained"
REPLACEMENTS = "/replacements"
REPLACED = "/replaced"
OF_TOPOLOGIES = (ASSIGNMENTS, LEAVING, FORMER, REPORTS, KEYS, BLOBS)
"""Below these stands what belongs to a topology, by its id."""
OPERATOR = "operator"
"""Stands where a topology's id stands, for the operators' token."""

#: Names whose quoting is remembered: daemons ask for the same few all the time.
_NAMES_KNOWN: Final = 8192


def topology(name: str) -> str:
    """The record of the topology of that name."""
    return f"{TOPOLOGIES}/{quoted(name)}"


def assignment(topology_id: str) -> str:
    """The assignment of a topology."""
    return f"{ASSIGNMENTS}/{quoted(topology_id)}"


def leaving(topology_id: str) -> str:
    """The workers of a topology that are to go."""
    return f"{LEAVING}/{quoted(topology_id)}"


def former(topology_id: str) -> str:
    """The workers that a topology had when all of them had to go."""
    return f"{FORMER}/{quoted(topology_id)}"


def reports(topology_id: str) -> str:
    """Above the reports of a topology's workers."""
    return f"{REPORTS}/{quoted(topology_id)}"


def report(topology_id: str, worker: str) -> str:
    """The last report of a worker."""
    return f"{reports(topology_id)}/{quoted(worker)}"


def supervisor(supervisor_id: str) -> str:
    """The record of a supervisor; there is one while the supervisor is there."""
    return f"{SUPERVISORS}/{quoted(supervisor_id)}"


def keys(topology_id: str) -> str:
    """Above the sealed copies of the key pair of a topology's links."""
    return f"{KEYS}/{quoted(topology_id)}"


def sealed_keys(topology_id: str, recipient: str) -> str:
    """The copy that one Nimbus or supervisor can open."""
    return f"{keys(topology_id)}/{quoted(recipient)}"


def nimbus(nimbus_id: str) -> str:
    """The record of a Nimbus that is there."""
    return f"{NIMBUSES}/{quoted(nimbus_id)}"


def presence(daemon_id: str) -> str:
    """What is there while the process of a supervisor or a Nimbus is connected."""
    return f"{PRESENCE}/{quoted(daemon_id)}"


def drained(supervisor_id: str) -> str:
    """What says that a supervisor is to get no work."""
    return f"{DRAINED}/{quoted(supervisor_id)}"


def replacement(name: str) -> str:
    """The version that is to take the name over."""
    return f"{REPLACEMENTS}/{quoted(name)}"


def replaced(name: str) -> str:
    """The version that had the name before."""
    return f"{REPLACED}/{quoted(name)}"


def bundle(topology_id: str) -> str:
    """Above everything that was shipped for a topology."""
    return f"{BLOBS}/{quoted(topology_id)}"


def description(topology_id: str) -> str:
    """The typed description of a topology."""
    return f"{bundle(topology_id)}/description"


def pickles(topology_id: str) -> str:
    """Above the pickles of a topology's components."""
    return f"{bundle(topology_id)}/pickles"


def pickle(topology_id: str, component: str) -> str:
    """The pickle of a component."""
    return f"{pickles(topology_id)}/{quoted(component)}"


def counter(name: str) -> str:
    """A counter."""
    return f"{COUNTERS}/{quoted(name)}"


@lru_cache(_NAMES_KNOWN)
def quoted(name: str) -> str:
    """A name as it stands in a path; `unquoted` gives it back."""
    text = quote(name, safe="")
    # The only names that quoting leaves as they are and that a store does not take.
    return text.replace(".", "%2E") if text in (".", "..") else text


@lru_cache(_NAMES_KNOWN)
def unquoted(name: str) -> str:
    """The name that stands in a path."""
    return unquote(name)
