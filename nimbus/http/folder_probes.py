"""Asks the supervisors whether their hosts share the folder of a topology's state, before the topology is accepted.

One host puts a probe, all others look for it at the same time, and it is removed. This takes a few seconds at most. A
supervisor that has not answered by then is named in the log, and refuses nothing: a worker that does not see the folder waits,
and says so.
Must not know: what the answers mean (`nimbus.submission.shared_folders`).
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing
from typing import Any, Final

from msgspec import ValidationError, convert, to_builtins

from nimbus.submission.shared_folders import HostSight, hosts_to_ask, require_shared, state_folder
from squall.api.folder_probes import LOOK, PUT, REMOVE, FolderProbe, ProbeSeen
from squall.cluster.records import SupervisorRecord
from squall.cluster.registry import Registry
from squall.http.client import Client
from topology_api.epoch_rules import STATE_PATH
from topology_api.errors import SquallError

_log = logging.getLogger(__name__)

#: Seconds for one answer.
STEP_SECS: Final = 2.5
#: Seconds after which no further host is asked to put the probe.
PUT_SECS: Final = 3.0
#: How many supervisors are asked at once.
_AT_ONCE: Final = 32

MakeClient = Callable[[SupervisorRecord], Client]


def check_shared(registry: Registry, ask: MakeClient, name: str, conf: Mapping[str, Any]) -> None:
    """Raise `InvalidConfig` if workers of a topology may run on hosts that do not share the folder of its state."""
    folder = state_folder(conf, name)
    if not folder:
        return
    hosts = hosts_to_ask(registry.all_supervisors(), registry.drained_supervisors())
    if not hosts:
        return
    probe = FolderProbe(folder, secrets.token_hex(16))
    began, sights = time.monotonic(), dict[str, HostSight]()
    for record in hosts:
        if time.monotonic() - began > PUT_SECS:
            break
        put = _asked(ask, record, PUT, probe)
        sights[record.id] = _sight(record, put)
        if isinstance(put, ProbeSeen) and put.seen:
            _look(ask, record, FolderProbe(put.folder, probe.number), hosts, sights)
            break
    for record in hosts:
        sights.setdefault(record.id, HostSight(record.host, record.id, None, "it was not asked in time"))
    found = [sights[record.id] for record in hosts]
    for each in found:
        if each.sees is None:
            _log.warning(
                "%s: it is not known whether supervisor %s on %s sees %s: %s",
                name,
                each.supervisor,
                each.host,
                folder,
                each.why,
            )
    where = put.folder if isinstance(put, ProbeSeen) else folder
    require_shared(name, str(conf[STATE_PATH]), where, found)


def _look(
    ask: MakeClient,
    holder: SupervisorRecord,
    probe: FolderProbe,
    hosts: Sequence[SupervisorRecord],
    sights: dict[str, HostSight],
) -> None:
    """Let all hosts but one look for its probe, and remove it then."""
    others = [record for record in hosts if record is not holder]
    pool = ThreadPoolExecutor(min(_AT_ONCE, len(others)), thread_name_prefix="squall-probes")
    try:
        asked = {record.id: pool.submit(_asked, ask, record, LOOK, probe) for record in others}
        wait(asked.values(), timeout=STEP_SECS + 1.0)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        _asked(ask, holder, REMOVE, probe)
    for record in others:
        if asked[record.id].done() and not asked[record.id].cancelled():
            sights[record.id] = _sight(record, asked[record.id].result())


def _asked(ask: MakeClient, record: SupervisorRecord, step: str, probe: FolderProbe) -> ProbeSeen | str:
    """Return a supervisor's answer, or why there is none."""
    if not record.url:
        return "its supervisor answers no questions"
    try:
        with closing(ask(record)) as client:
            answer = client.post(
                f"/folder-probes/{step}", to_builtins(probe), repeatable=True, timeout=STEP_SECS
            )
        return convert(answer, ProbeSeen)
    except (SquallError, ValidationError) as error:
        return str(error)


def _sight(record: SupervisorRecord, answer: ProbeSeen | str) -> HostSight:
    if isinstance(answer, str):
        return HostSight(record.host, record.id, None, answer)
    if answer.problem:
        return HostSight(record.host, record.id, None, answer.problem)
    return HostSight(record.host, record.id, answer.seen)
