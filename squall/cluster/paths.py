"""Where in the store each thing lives.

```
/topologies/<name>                 TopologyRecord: holding the record is holding the name
/assignments/<id>                  Assignment: the workers that a topology has
/leaving/<id>                      Assignment: workers that were withdrawn and are not gone yet
/reports/<id>/<worker>             WorkerReport: the last word of a worker
/supervisors/<id>                  SupervisorRecord: a supervisor that is there
/keys/<id>                         the key pair of a topology's links; in no record and no log
/blobs/<id>/description            the topology's typed description (in chunks, see blobs)
/blobs/<id>/pickles/<component>    the pickle of a component
/counters/<name>                   numbers that are never given twice
```

<id> is that of a submission ("name-<n>-<time>"). Names stand quoted, so that any name that a topology may
have is one that a store may have.
Must not know: what the values are.
"""

from __future__ import annotations

from urllib.parse import quote, unquote

TOPOLOGIES = "/topologies"
ASSIGNMENTS = "/assignments"
LEAVING = "/leaving"
REPORTS = "/reports"
SUPERVISORS = "/supervisors"
KEYS = "/keys"
BLOBS = "/blobs"
COUNTERS = "/counters"


def topology(name: str) -> str:
    """The record of the topology of that name."""
    return f"{TOPOLOGIES}/{quoted(name)}"


def assignment(topology_id: str) -> str:
    """The assignment of a topology."""
    return f"{ASSIGNMENTS}/{quoted(topology_id)}"


def leaving(topology_id: str) -> str:
    """The workers of a topology that are to go."""
    return f"{LEAVING}/{quoted(topology_id)}"


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
    """The key pair of a topology's links."""
    return f"{KEYS}/{quoted(topology_id)}"


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


def quoted(name: str) -> str:
    """A name as it stands in a path; `unquoted` gives it back."""
    text = quote(name, safe="")
    # The only names that quoting leaves as they are and that a store does not take.
    return text.replace(".", "%2E") if text in (".", "..") else text


def unquoted(name: str) -> str:
    """The name that stands in a path."""
    return unquote(name)
