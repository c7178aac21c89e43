"""Drained supervisors: they get no new work, so that their host can be taken down.

Must not know: what runs there, who moves it away.
"""

from __future__ import annotations

import logging

from squall.cluster.registry import Registry
from topology_api.errors import SquallError

_log = logging.getLogger(__name__)


class NoSuchSupervisor(SquallError):
    """No supervisor has this id."""

    def __init__(self, supervisor_id: str) -> None:
        self.supervisor_id = supervisor_id
        super().__init__(supervisor_id)

    def __str__(self) -> str:
        return f"there is no supervisor {self.supervisor_id!r}: `squall supervisors` lists all of them"


def set_drained(registry: Registry, supervisor_id: str, on: bool) -> None:
    """Drain a supervisor, or, with `on` False, let it get work again; `NoSuchSupervisor` for an unknown one."""
    drained = registry.drained_supervisors()
    if (supervisor_id in drained) == on:
        if not on:
            _check_known(registry, supervisor_id)
        return
    if on:
        _check_known(registry, supervisor_id)
        registry.save_drained(supervisor_id)
        _log.info("supervisor %s: gets no new work, what runs there moves away", supervisor_id)
    else:
        registry.remove_drained(supervisor_id)
        _log.info("supervisor %s: may get work again", supervisor_id)


def _check_known(registry: Registry, supervisor_id: str) -> None:
    known = {record.id for record in registry.all_supervisors()} | registry.unread_supervisors
    if supervisor_id not in known:
        raise NoSuchSupervisor(supervisor_id)
