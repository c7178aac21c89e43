"""Where a topology keeps its state if it names no place: what `auto` for `topology.state.path` stands for.

It is decided once, at submission, and from then on it is part of the topology's record. So neither a move, a supervisor that
comes or goes, nor a rollback changes it. The rules, in this order:

| the version that is replaced | the new version, with `auto` | its path |
|---|---|---|
| has a path | | that one: what is there is not left behind |
| has state in memory, of a component that the new version has, too | asks for no path | null |
| any other, or none | keeps something | a folder of the supervisor; refused if there are several hosts |
| any other, or none | keeps nothing | null |

So no version gains or loses state unless a setting says so: one whose state is in memory since an earlier release keeps
it there until it asks for a path: by `auto` in the topology's code or -o, by `topology.require`, or by --state.
Pure functions over values. Must not know: how records are read, what is in a folder.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, NoReturn

from msgspec import structs

from nimbus.submission.submission import Submission
from squall.cluster.records import SupervisorRecord, TopologyRecord
from squall.stores.paths import InvalidPath, check_path
from topology_api.epoch_rules import REQUIRE, STATE_PATH, is_auto, keepers, keeps_something, state_path
from topology_api.errors import InvalidConfig
from topology_api.wording import listed

_WAYS_OUT = (
    f"by -o {STATE_PATH}=hdfs://host:port/folder or -o {STATE_PATH}=file:///folder (a folder of a file system that all hosts "
    f"have at the same path), or keep the state in memory by -o {STATE_PATH}=null"
)


def with_place(submission: Submission, path: str | None) -> Submission:
    """Return a submission that keeps its state at a path; None: in memory."""
    own = {component: {**conf, STATE_PATH: path} for component, conf in submission.component_confs.items()}
    return structs.replace(submission, conf={**submission.conf, STATE_PATH: path}, component_confs=own)


def inherited(submission: Submission, there: TopologyRecord, description: Mapping[str, Any]) -> Submission:
    """Return a submission with `auto` as what follows from the version that it replaces; with `auto`, if nothing does.
    `description`: that of this version."""
    before = state_path(there.conf)
    if before is not None:
        return with_place(submission, before)
    return with_place(submission, None) if _stays_in_memory(submission, description) else submission


def _stays_in_memory(submission: Submission, description: Mapping[str, Any]) -> bool:
    given = (submission.topology.conf, submission.options.topology)
    if any(map(is_auto, given)) or submission.conf.get(REQUIRE) is not None or submission.state_start:
        return False
    before = {each["id"]: each.get("keeps", {}) for each in description["components"]}
    # An earlier release does not say which bolts commit what they write.
    return any(
        spec.id in before and (keeps_something(before[spec.id]) or spec.keeps.get("commits"))
        for spec in submission.topology.components
        if keeps_something(spec.keeps)
    )


def placed(
    submission: Submission, supervisors: Iterable[SupervisorRecord], drained: Collection[str]
) -> Submission:
    """Return a submission with `auto` as the place where its state is kept on a cluster with these supervisors. Raises
    `InvalidConfig` if it has to name one."""
    keeping = keepers(submission.topology)
    if not keeping:
        return with_place(submission, None)
    known = sorted(supervisors, key=lambda each: each.id)
    # A drained host gets no workers. One that cannot start any at the moment may do so later.
    hosts = sorted({each.host for each in known if each.id not in drained} or {each.host for each in known})
    name = submission.topology.name
    if not hosts:
        _refuse(name, keeping, "no supervisor is registered: start one, or name a place")
    if len(hosts) > 1:
        _refuse(
            name, keeping, f"the hosts ({', '.join(hosts)}) share no folder that Squall knows of: name one"
        )
    # The first by its id, drained or not: the folder is the same if another one joins the host or is drained.
    folder = next((each.state_folder for each in known if each.host == hosts[0] and each.state_folder), "")
    if not folder:
        old = f"the supervisors of host {hosts[0]} are of an earlier release, which has no folder for it"
        _refuse(name, keeping, f"{old}: restart them with this one, or name a place")
    try:
        check_path(f"file://{folder}/{name}")
    except InvalidPath as error:
        _refuse(
            name, keeping, f"the supervisor's state directory cannot be used for it ({error}): name a place"
        )
    return with_place(submission, f"file://{folder}")


def _refuse(name: str, keeping: Collection[str], why: str) -> NoReturn:
    problem = f"{STATE_PATH} is auto, and the topology keeps state ({listed(keeping)}), but {why} {_WAYS_OUT}"
    raise InvalidConfig([problem], f"topology {name!r}")
