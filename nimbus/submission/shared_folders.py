"""Whether the hosts that may run a topology share the folder of its state: whom to ask, and what the answers mean.

Pure functions over values. Must not know: how supervisors are asked.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from squall.cluster.records import SupervisorRecord
from squall.stores.paths import LOCAL, InvalidPath, check_path, folder_of, scheme_of
from topology_api.epoch_rules import STATE_PATH, state_path
from topology_api.errors import InvalidConfig


class HostSight(msgspec.Struct, frozen=True):
    """What is known of one host. `sees`: whether it sees the folder that another one has; None: not known, and `why`."""

    host: str
    supervisor: str
    sees: bool | None
    why: str = ""


def state_folder(conf: Mapping[str, Any], name: str) -> str:
    """Return the folder on this machine in which a topology keeps its state; "" if it is elsewhere, or there is none."""
    path = state_path(conf)
    if not isinstance(path, str):
        return ""
    try:
        place = check_path(f"{path}/{name}")
    except InvalidPath:
        return ""  # the workers say what is wrong with it
    return folder_of(place) if scheme_of(place) == LOCAL else ""


def hosts_to_ask(supervisors: Iterable[SupervisorRecord], drained: Collection[str]) -> list[SupervisorRecord]:
    """Return one supervisor of each host on which workers of a topology may run; none if that is one host. A topology of one
    worker asks, too: another host may start the worker again."""
    found: dict[str, SupervisorRecord] = {}
    for record in sorted(supervisors, key=lambda each: (not each.url, each.id)):
        if record.id not in drained and not record.cannot_start:
            found.setdefault(record.host, record)
    return [found[host] for host in sorted(found)] if len(found) > 1 else []


def require_shared(name: str, path: str, folder: str, sights: Sequence[HostSight]) -> None:
    """Raise `InvalidConfig` if a host does not see a folder that another one has. A host of which nothing is known refuses
    nothing. `folder`: where was looked; it is above that of the state, if that is missing."""
    if not any(each.sees is False for each in sights):
        return
    seen, unseen = ([each.host for each in sights if each.sees is sees] for sees in (True, False))
    unknown = "".join(
        f"; of host {each.host} nothing is known: {each.why}" for each in sights if each.sees is None
    )
    raise InvalidConfig(
        [
            f"{STATE_PATH} is {path}, which the hosts do not share: a file that was put into {folder} of host {seen[0]} is "
            f"seen on {_hosts(seen)}, and not on {_hosts(unseen)}{unknown}. Give a folder of a file system that all hosts have "
            "at the same path, or hdfs://host:port/folder; or drain the hosts that do not see it: one worker, too, "
            "may be started on another host"
        ],
        f"topology {name!r}",
    )


def _hosts(names: Sequence[str]) -> str:
    return f"host{'s' if len(names) > 1 else ''} {', '.join(names)}"
