"""The paths of all values in the store.

```
/cluster                           the id of this cluster and the format of its records, made by its first leader
/leadership/leader                 the id of the Nimbus that leads; ephemeral: the Nimbus that creates it leads
/leadership/epoch                  written by each new leader: its version guards all writes of that leader
/nimbuses/<id>                     NimbusRecord; ephemeral
/supervisors/<id>                  SupervisorRecord: kept until the supervisor leaves or is given up because it is silent
/presence/<id>                     the state directory and the process of a supervisor or a Nimbus; ephemeral
/drained/<id>                      present while a supervisor gets no new work
/topologies/<name>                 TopologyRecord: the name is taken as long as the record exists
/replacements/<name>               TopologyRecord of a new version, which waits until the running version has drained
/replaced/<name>                   TopologyRecord of the previous version, until the new version has proved that it runs
/assignments/<id>                  Assignment: the workers that a topology has
/leaving/<id>                      Assignment: workers that were withdrawn and have not ended yet
/former/<id>                       Assignment: the workers that were withdrawn last, kept so that their logs can be found
/versions/<id>                     VersionRecord: a version that had the name of its topology before, for a rollback
/ended/<id>                        EndedVersion: the errors and counters of a version that has ended, for a while
/letters/<supervisor>              HeldLetters: how many dead letters of which topologies are on a supervisor's host
/reports/<id>/<worker>             WorkerReport: the last report of a worker
/keys/<id>/<recipient>             the key pair of a topology's links, sealed to a Nimbus or a supervisor
/keys/operator/<recipient>         the operators' token, sealed to a Nimbus
/blobs/<id>/description            the topology's typed description (in chunks, see blobs)
/blobs/<id>/pickles/<component>    the pickle of a component
/counters/<name>                   numbers that are never used twice
```

The <id> of a topology is the id of a submission ("name-<n>-<time>"), a <recipient> is the id of a Nimbus or supervisor. Names
are quoted, so that any name of a topology can be a name in a store. Everything is below one root (by default `/squall`), so
that several clusters may share a ZooKeeper.
Must not know: what the values are.
"""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Final
from urllib.parse import quote, unquote

TOPOLOGIES = "/topologies"
ASSIGNMENTS = "/assignments"
LEAVING = "/leaving"
FORMER = "/former"
ENDED = "/ended"
VERSIONS = "/versions"
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
LETTERS = "/letters"
DRAINED = "/drained"
REPLACEMENTS = "/replacements"
REPLACED = "/replaced"
#: The folders with values of one topology, by the topology's id.
OF_TOPOLOGIES = (ASSIGNMENTS, LEAVING, FORMER, REPORTS, KEYS, BLOBS)
#: Of these, the folders with values that an earlier version does not keep.
OF_RUNNING = (ASSIGNMENTS, LEAVING, FORMER, REPORTS, KEYS)
#: Used in place of a topology's id for the operators' token.
OPERATOR = "operator"

#: The number of names whose quoting is cached: daemons use the same few names all the time.
_NAMES_KNOWN: Final = 8192


def below(folder: str, name: str) -> str:
    """Return the path of a name below a folder."""
    return f"{folder}/{quoted(name)}"


#: The record of the topology with a name.
topology: Final = partial(below, TOPOLOGIES)
#: The record of the version that will replace the topology with a name.
replacement: Final = partial(below, REPLACEMENTS)
#: The record of the previous version of the topology with a name.
replaced: Final = partial(below, REPLACED)
#: The workers of the topology with an id.
assignment: Final = partial(below, ASSIGNMENTS)
#: The leaving workers of the topology with an id.
leaving: Final = partial(below, LEAVING)
#: The workers that were withdrawn last from the topology with an id.
former: Final = partial(below, FORMER)
#: The folder of the reports of a topology's workers, by its id.
reports: Final = partial(below, REPORTS)
#: The folder of the sealed copies of a topology's key pair, by its id.
keys: Final = partial(below, KEYS)
#: The folder of a topology's bundle, by its id.
bundle: Final = partial(below, BLOBS)
#: The record of a registered supervisor.
supervisor: Final = partial(below, SUPERVISORS)
#: The record of a running Nimbus.
nimbus: Final = partial(below, NIMBUSES)
#: Present while the process of a supervisor or a Nimbus is connected.
presence: Final = partial(below, PRESENCE)
#: Present while a supervisor is drained.
drained: Final = partial(below, DRAINED)
counter: Final = partial(below, COUNTERS)


def report(topology_id: str, worker: str) -> str:
    """Return the path of a worker's last report."""
    return below(reports(topology_id), worker)


def sealed_keys(topology_id: str, recipient: str) -> str:
    """Return the path of the copy of a topology's keys that one Nimbus or supervisor can open."""
    return below(keys(topology_id), recipient)


def description(topology_id: str) -> str:
    """Return the path of a topology's typed description."""
    return f"{bundle(topology_id)}/description"


def pickles(topology_id: str) -> str:
    """Return the folder of the pickles of a topology's components."""
    return f"{bundle(topology_id)}/pickles"


def pickle(topology_id: str, component: str) -> str:
    """Return the path of a component's pickle."""
    return below(pickles(topology_id), component)


@lru_cache(_NAMES_KNOWN)
def quoted(name: str) -> str:
    """Return a name as it is written in a path; the opposite of `unquoted`."""
    text = quote(name, safe="")
    # Quoting does not change these two names, but a store does not accept them.
    return text.replace(".", "%2E") if text in (".", "..") else text


@lru_cache(_NAMES_KNOWN)
def unquoted(name: str) -> str:
    """Return the name that is written in a path."""
    return unquote(name)
