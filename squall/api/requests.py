"""The requests of the HTTP API as structs: the fields of bodies and queries, with their limits and what they mean.

Must not know: paths, handlers, what a request does.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from squall.cluster.records import SetOptions
from squall.values import Incarnation
from topology_api.values import MAX_SECONDS

Seconds = Annotated[float, Meta(ge=0, le=MAX_SECONDS)]


class NoFields(Struct, frozen=True, forbid_unknown_fields=True):
    """A request without fields."""


class SubmitRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A topology to run."""

    submission: Annotated[
        str, Meta(description="A key that the submitter chooses, the same in each retry: a UUID.")
    ]
    description: Annotated[dict[str, Any], Meta(description="The typed description, `Topology.describe()`.")]
    pickles: Annotated[
        dict[str, str], Meta(description="Component -> its pickle, as base64. Nimbus never unpickles.")
    ] = {}
    conf: Annotated[dict[str, Any], Meta(description="The merged configuration of the topology.")] = {}
    component_confs: Annotated[
        dict[str, Any], Meta(description="Component -> its merged configuration.")
    ] = {}
    python: Annotated[
        str,
        Meta(
            description="The Python version that packed the topology (`3.11.4`); the minor version must be the cluster's."
        ),
    ]
    cloudpickle: Annotated[
        str,
        Meta(
            description="The cloudpickle version that packed the topology; major and minor version must be the cluster's."
        ),
    ]
    squall: Annotated[str, Meta(description="The release of Squall that packed the topology.")] = ""
    active: Annotated[bool, Meta(description="Whether the spouts start immediately.")] = True
    replace: Annotated[
        bool, Meta(description="Whether the topology takes over from a running one of this name.")
    ] = False
    wait_secs: Annotated[
        Seconds | None, Meta(description="With `replace`: how long the old topology may drain.")
    ] = None
    state: Annotated[
        str,
        Meta(
            description="The epoch of a kept state with which the topology begins: `/path`, `/path@17`, or `@17` of its own"
            " state. Default: the last commit."
        ),
    ] = ""
    options: Annotated[
        SetOptions,
        Meta(
            description="What `-o` has set; the merged configurations contain it, and the next version keeps it."
        ),
    ] = SetOptions()
    reset_options: Annotated[
        bool,
        Meta(
            description="With `replace`: forget what was set for the running topology by `-o` and rebalance."
        ),
    ] = False
    files: Annotated[
        dict[str, str],
        Meta(description="The files that were sent before: `code`, `wheels`, `requirements` -> SHA-256."),
    ] = {}


_Wait = Annotated[
    Seconds | None,
    Meta(description="The maximum time to drain, in seconds. Default: the topology's message timeout."),
]


class KillQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """How to kill a topology."""

    wait_secs: _Wait = None


class RebalanceRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """The changes of a rebalance."""

    workers: Annotated[int | None, Meta(description="The new number of workers. Default: as before.")] = None
    parallelism: Annotated[
        dict[str, Any] | None, Meta(description="Component -> its new number of tasks.")
    ] = None
    wait_secs: _Wait = None


class RollbackRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The version to which a topology returns."""

    submission: Annotated[
        str,
        Meta(description="A key that the caller chooses, the same in each retry: a UUID.", max_length=100),
    ]
    version: Annotated[
        str | None,
        Meta(description="Its id, or the number in its id. Default: the version that was replaced last."),
    ] = None
    wait_secs: _Wait = None
    state: Annotated[
        str,
        Meta(
            description="The epoch of a kept state with which it begins, as for a submission. Default: the last commit."
        ),
    ] = ""


class ErrorsQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Selects errors."""

    component: Annotated[str | None, Meta(description="Only errors of this component.")] = None


class LogQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Selects a piece of a log."""

    file: Annotated[
        Literal["worker", "output", "build"],
        Meta(
            description="Which log: the worker's own log, output that bypassed it, or the build log of its environment."
        ),
    ] = "worker"
    offset: Annotated[int, Meta(description="The first byte; negative: counted from the end.")] = 0
    limit: Annotated[int, Meta(description="The maximum number of bytes.", ge=1)] = 65_536
    version: Annotated[
        Annotated[str, Meta(min_length=1)] | None,
        Meta(description="The id of a version that has ended (`GET /topologies/{name}/previous`)."),
    ] = None


class ReportRow(Struct, frozen=True, forbid_unknown_fields=True):
    """A worker's report, as the record that is kept in the store."""

    topology: str
    report: dict[str, Any]


class CountersRow(Struct, frozen=True, forbid_unknown_fields=True):
    """A worker's counters."""

    topology_id: str
    worker: str
    incarnation: Incarnation
    counters: dict[str, Any]


class ReportsRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """The reports and counters that a supervisor forwards."""

    reports: Annotated[
        list[ReportRow], Meta(description="The reports of workers, with the names of their topologies.")
    ] = []
    counters: Annotated[list[CountersRow], Meta(description="The counters of workers.")] = []


class LiveStateRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """A key of a component, of which the running tasks show the state."""

    component: Annotated[str, Meta(description="The component.")]
    key: Annotated[
        str,
        Meta(
            max_length=65_536,
            description="The key as JSON, in the form in which `squall state export` writes keys.",
        ),
    ]
    state: Annotated[str, Meta(description="Only this state, or the timers of this name; empty: all.")] = ""
