"""The answers of the HTTP API about the cluster and about one daemon: as those about topologies, in `squall.api.answers`.

Must not know: paths, handlers, who reads an answer.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from squall.api.versions import Settings
from squall.values import Incarnation

Versions = dict[Annotated[str, Meta(title="program")], str]


class StoreState(Struct, frozen=True):
    """The store that Nimbus uses, and whether it is connected."""

    kind: str
    connected: bool


class LeaderEntry(Struct, frozen=True):
    """The leading Nimbus."""

    id: str
    url: str


class NimbusEntry(LeaderEntry, frozen=True):
    """One Nimbus of the cluster."""

    host: str
    leader: bool
    versions: Versions


class NimbusMember(Struct, frozen=True):
    """One Nimbus. `since`: seconds since 1970, when it began to lead or, on standby, when it started; null if unknown. `key`:
    the fingerprint of its public key. `has_token`: the operators' token is sealed to this key. An `away` Nimbus is not
    registered, but has a copy of the token."""

    id: str
    url: str
    host: str
    state: Literal["leading", "standby", "away"]
    since: float | None
    key: str
    has_token: bool
    versions: Versions


class NimbusesAnswer(Struct, frozen=True):
    """The Nimbuses of the cluster, and everyone to whom the operators' token is sealed. `why`: why the Nimbus that answers does
    not lead, if none leads."""

    nimbuses: list[NimbusMember]
    why: str | None


class SlotCounts(Struct, frozen=True):
    """Slots of all supervisors."""

    total: int
    used: int
    free: int


class ClusterAnswer(Struct, frozen=True):
    """`uptime_secs`: how long the answering Nimbus has been running."""

    id: str | None
    python: str
    cloudpickle: str
    version: str
    leader: LeaderEntry | None
    nimbuses: list[NimbusEntry]
    supervisors: int
    slots: SlotCounts
    topologies: int
    tasks: int
    uptime_secs: float
    store: StoreState


class SlotEntry(Struct, frozen=True):
    """A worker in a supervisor's slot."""

    topology: str
    worker: str
    slot: int
    tasks: int


class SupervisorEntry(Struct, frozen=True):
    """One supervisor and its workers. `cannot_start`: why its host cannot start workers at the moment; "": it can.
    `connections_closed`: how many connections to it were closed since it started because there were too many, by reason.
    `state_folder`: where on its host topologies keep their state if they name no place; "": not known."""

    id: str
    host: str
    slots: int
    used: int
    drained: bool
    connected: bool
    versions: Versions
    resources: dict[Annotated[str, Meta(title="name")], Any]
    workers: list[SlotEntry]
    cannot_start: str = ""
    connections_closed: dict[Annotated[str, Meta(title="reason")], int] = {}
    state_folder: str = ""

    @property
    def takes_workers(self) -> bool:
        """Whether new workers may be placed there."""
        return not self.drained and not self.cannot_start


class SupervisorsAnswer(Struct, frozen=True):
    """The supervisors of the cluster."""

    supervisors: list[SupervisorEntry]


class DrainAnswer(Struct, frozen=True):
    """Whether the supervisor is drained now."""

    id: str
    drained: bool


class ConfigurationAnswer(Struct, frozen=True):
    """The settings of one Nimbus."""

    id: str
    conf: Settings


class FileAnswer(Struct, frozen=True):
    """A file that Nimbus has now."""

    sha256: str
    size: int


class RefusedReport(Struct, frozen=True):
    """A report of a worker that should not run any more."""

    topology: str
    worker: str
    incarnation: Incarnation


class ReportsAnswer(Struct, frozen=True):
    """The reports of workers that should not run any more."""

    refused: list[RefusedReport]


class HealthAnswer(Struct, frozen=True):
    """Whether this Nimbus can work."""

    status: Literal["ok", "unavailable"]
    leading: bool
    store: StoreState


class OpenApiAnswer(Struct, frozen=True):
    """An OpenAPI document."""

    openapi: str
    info: Any
    paths: Any
    components: Any
