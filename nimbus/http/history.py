"""View of a topology's versions: the one that waits, the present one, and those that are kept; and the one for a rollback.

Must not know: HTTP, callers.
"""

from __future__ import annotations

from nimbus.http.views import Views
from nimbus.lifecycle.progress import is_on_trial
from nimbus.lifecycle.versions import earlier_versions
from nimbus.submission.repeated import NoRollback, chosen
from nimbus.submission.set_options import shown_options
from squall.api import versions
from squall.cluster.blobs import BadBlob, get_bundle
from squall.cluster.records import TopologyRecord, VersionRecord
from squall.cluster.registry import number_of
from topology_api.topology import Topology


def history_answer(views: Views, name: str) -> versions.HistoryAnswer:
    """Return the versions of a topology. Raises `NoSuchTopology`, or `BadRecord` if the present version cannot be read."""
    record = views.record(name)
    waiting = views.registry.replacements.readable(name)
    found = [_entry(record, "on trial" if is_on_trial(record) else "running", record.state)]
    if waiting is not None and waiting.id != record.id:
        found.insert(0, _entry(waiting, "waiting", None))
    earlier = earlier_versions(views.registry, name, record.id)
    for version in sorted(earlier, key=lambda each: number_of(each.id), reverse=True):
        found.append(_entry(version, "on standby" if version.id == record.replaces else version.how, None))
    return versions.HistoryAnswer(name, found)


def wanted_version(views: Views, name: str, wanted: str | None) -> tuple[VersionRecord, Topology]:
    """Return the version to which a topology returns (see `chosen`), and the topology in its bundle. Raises `NoSuchTopology`,
    `BadRecord` or `NoRollback`."""
    record = views.record(name)
    version = chosen(record, earlier_versions(views.registry, name, record.id), wanted)
    try:
        return version, get_bundle(views.store, version.id)
    except BadBlob as error:
        raise NoRollback(f"no rollback to {version.id} is possible: {error}") from error


def _entry(
    version: TopologyRecord | VersionRecord,
    how: versions.HowVersion,
    state: str | None,
) -> versions.VersionEntry:
    return versions.VersionEntry(
        id=version.id,
        how=how,
        state=state,
        error=version.error,
        submitted=version.submitted,
        ended=version.ended if isinstance(version, VersionRecord) else None,
        by=version.by,
        options=shown_options(version.set_options),
        code=version.files.get("code"),
        repeats=version.repeats or None,
    )
