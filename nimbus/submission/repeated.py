"""A rollback: an earlier version of a topology is submitted again, as a new version that replaces the present one.

The new version has the code, settings, files and operators' options that the earlier version had when it lost the name. It is
on trial like any other new version. Pure functions over values.
Must not know: the store, requests, how a version is replaced.
"""

from __future__ import annotations

from collections.abc import Sequence

from nimbus.submission.submission import Submission
from squall.cluster.records import SetOptions, TopologyRecord, VersionRecord
from squall.cluster.registry import is_version
from topology_api.errors import SquallError
from topology_api.options import defaults
from topology_api.topology import Topology
from topology_api.wording import shown


class NoRollback(SquallError):
    """No version is kept to which the topology could return."""


def chosen(present: TopologyRecord, earlier: Sequence[VersionRecord], wanted: str | None) -> VersionRecord:
    """Return the version to which a topology returns. `earlier`: the versions that are kept, the one that ended last first;
    `wanted`: its id, or the number in its id; None: the version that was replaced last. Raises `NoRollback`."""
    if wanted is None:
        replaced = (version for version in earlier if version.how == "replaced")
        if (found := next(replaced, None)) is None:
            kept = _kept(earlier)
            why = f"no version that was replaced is kept; {kept}, and may be named" if earlier else kept
            raise NoRollback(f"topology {present.name!r} cannot be rolled back: {why}")
        return found
    if is_version(wanted, present.id):
        raise NoRollback(
            f"{present.id} is the present version of topology {present.name!r}; {_kept(earlier)}"
        )
    for version in earlier:
        if is_version(wanted, version.id):
            return version
    raise NoRollback(
        f"no version {shown(wanted)} of topology {present.name!r} is kept; {_kept(earlier)}; an older version has to be"
        " submitted again"
    )


def repetition(version: VersionRecord, topology: Topology, state_start: str = "") -> Submission:
    """Return the submission that repeats a version; `topology` is in its bundle. `state_start`: see `Submission`."""
    usual = defaults()
    return Submission(
        topology,
        {**usual, **version.conf},
        {component: {**usual, **conf} for component, conf in version.component_confs.items()},
        files=version.files,
        versions={"python": version.python},
        replace=True,
        options=version.set_options or SetOptions(),
        reset_options=True,
        repeats=version.id,
        state_start=state_start,
    )


def _kept(earlier: Sequence[VersionRecord]) -> str:
    if not earlier:
        return "no earlier version is kept"
    return f"kept are: {', '.join(f'{version.id} ({version.how})' for version in earlier)}"
