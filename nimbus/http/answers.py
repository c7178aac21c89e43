"""What the answers of the API hold, as values: the documents are made from them, and tests hold real answers against them.

A shape is `str`, `int`, `float`, `bool` or `object` (anything); a dict, an object that always has these fields; a list, of
as many as there are; a tuple, a list of just these; `Maybe`, that or null; `Each`, an object by names; `OneOf`, one of some
texts.
Must not know: handlers, requests.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final


@dataclass(frozen=True)
class Maybe:
    """That, or null."""

    shape: Shape


@dataclass(frozen=True)
class Each:
    """An object that has one of these by each name; `name` says which names."""

    name: str
    shape: Shape


@dataclass(frozen=True)
class OneOf:
    """One of these texts."""

    texts: tuple[str, ...]


Shape = type | Mapping[str, Any] | list[Any] | tuple[Any, ...] | Maybe | Each | OneOf


@dataclass(frozen=True)
class Answer:
    """An answer: its shape (None: no JSON), and what else is said of it."""

    shape: Shape | None = None
    note: str = ""


def as_text(answer: Answer) -> str:
    """An answer as people read it."""
    if answer.shape is None:
        return answer.note
    return f"`{_text(answer.shape)}`{answer.note}"


def as_schema(shape: Shape) -> dict[str, Any]:
    """A shape as JSON Schema. Objects may get more fields in later releases."""
    if isinstance(shape, type):
        return dict(_TYPES[shape])
    if isinstance(shape, Maybe):
        return {"anyOf": [as_schema(shape.shape), {"type": "null"}]}
    if isinstance(shape, Each):
        return {"type": "object", "additionalProperties": as_schema(shape.shape)}
    if isinstance(shape, OneOf):
        return {"type": "string", "enum": list(shape.texts)}
    if isinstance(shape, list):
        return {"type": "array", "items": as_schema(shape[0])}
    if isinstance(shape, tuple):
        parts = [as_schema(each) for each in shape]
        return {"type": "array", "prefixItems": parts, "minItems": len(parts), "maxItems": len(parts)}
    fields = {name: as_schema(each) for name, each in shape.items()}
    return {"type": "object", "required": list(fields), "properties": fields}


_TYPES: Final[Mapping[type, Mapping[str, Any]]] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    object: {},
}


def _text(shape: Shape) -> str:
    if isinstance(shape, Maybe):
        return f"{_text(shape.shape)} or null"
    if isinstance(shape, Each):
        return f"{{{shape.name}: {_text(shape.shape)}}}"
    if isinstance(shape, OneOf):
        return " or ".join(f'"{text}"' for text in shape.texts)
    if isinstance(shape, list):
        return f"[{_text(shape[0])}]"
    assert isinstance(shape, Mapping)
    fields = (f'"{name}": {_text(each)}' if _has_names(each) else f'"{name}"' for name, each in shape.items())
    return f"{{{', '.join(fields)}}}"


def _has_names(shape: Shape) -> bool:
    """Whether there is more to be said of a field than its own name; of what type it is, machines want to know."""
    if isinstance(shape, (Maybe, Each)):
        return _has_names(shape.shape)
    if isinstance(shape, list):
        return _has_names(shape[0])
    return isinstance(shape, (Mapping, OneOf))


# What there is

_VERSIONS: Final = Each("program", str)
_STORE: Final = {"kind": str, "connected": bool}
_STATED: Final = {"name": str, "state": str}
_STANDS_BY: Final = Maybe({"id": str, "secs": float})
_INCARNATION: Final = (int, int)
_COMPONENT: Final = {
    "kind": OneOf(("spout", "bolt")), "emitted": int, "executed": int, "acked": int, "failed": int, "replayed": int,
    "pending": int, "errors": int, "dropped": int, "p50": Maybe(float), "p99": Maybe(float), "idle": str,
    "metrics": Each("name", object), "failures": Each("reason", int), "first_failure": str,
}  # fmt: skip
_COMPONENTS: Final = Each("component", {**_COMPONENT, "tasks": int})
_WORKER: Final = {
    "worker": str, "supervisor": str, "host": Maybe(str), "slot": int, "incarnation": _INCARNATION,
    "tasks": [(int, str, int)], "opened": bool, "state": str,
}  # fmt: skip

CLUSTER: Final = Answer(
    {
        "id": Maybe(str), "version": str, "python": str, "cloudpickle": str, "leader": Maybe({"id": str, "url": str}),
        "nimbuses": [{"id": str, "url": str, "host": str, "leader": bool, "versions": _VERSIONS}], "supervisors": int,
        "slots": {"total": int, "used": int, "free": int}, "topologies": int, "tasks": int, "uptime_secs": float,
        "store": _STORE,
    },
    "; `uptime_secs` is that of the Nimbus which answers",
)  # fmt: skip
SUPERVISORS: Final = Answer(
    {"supervisors": [{
        "id": str, "host": str, "slots": int, "used": int, "drained": bool, "connected": bool, "versions": _VERSIONS,
        "resources": Each("name", object), "workers": [{"topology": str, "worker": str, "slot": int, "tasks": int}],
    }]},
)  # fmt: skip
DRAINED: Final = Answer({"id": str, "drained": bool})
CONFIGURATION: Final = Answer({"id": str, "conf": Each("option", object)})
TOPOLOGIES: Final = Answer(
    {"topologies": [{
        **_STATED, "id": str, "tasks": int, "workers": int, "components": int, "uptime_secs": float, "state_secs": float,
        "emitted": int,
        "acked": int, "failed": int, "pending": int, "errors": int, "error": Maybe(str), "stands_by": _STANDS_BY,
        "held_up": Maybe({"workers": int, "why": str}),
    }]},
    "; `acked`, `failed` and `pending` are those of the spouts. The state BAD says that a record cannot be read, `error` why; "
    "`stands_by` as below; `held_up`: how many workers of an ACTIVE topology are not up (they go on dying, or what they need"
    " cannot be prepared), and why the first is not",
)  # fmt: skip
SUBMITTED: Final = Answer({**_STATED, "id": str})
SUBMITTED_BEFORE: Final = Answer(
    SUBMITTED.shape, ", for a submission that was there already: nothing was done again"
)
TOPOLOGY: Final = Answer(
    {
        **_STATED, "id": str, "submitted": float, "uptime_secs": float, "state_secs": float, "components": _COMPONENTS,
        "errors": [str], "error": Maybe(str), "notes": [str], "note_times": [float], "files": Each("kind", str),
        "workers": [_WORKER], "workers_wanted": int, "stands_by": _STANDS_BY,
    },
    ": what `status(name)` gives (see [api.md](api.md)), `errors` as texts, `workers` as below. `state_secs`: since it"
    " came into its state; `note_times`: when each of `notes` was said (seconds since 1970). There are fewer than"
    " `workers_wanted` when there are fewer tasks, or slots. `stands_by` is the version before, which runs again unless the"
    " workers of this one are up in so many seconds",
)  # fmt: skip
CHANGED: Final = Answer(_STATED)
COMPONENT: Final = Answer(
    {
        "topology": str, "id": str, **_COMPONENT, "parallelism": int,
        "tasks": [{"task": int, "index": int, "worker": Maybe(str), "host": Maybe(str)}],
        "inputs": [{"source": str, "stream": str, "grouping": str, "fields": [str]}],
        "outputs": Each("stream", {"fields": [str], "direct": bool}), "conf": Each("option", object),
    },
)  # fmt: skip
ERRORS: Final = Answer(
    {"errors": [{
        "topology": str, "component": str, "task": int, "call": str, "place": str, "frames": [str], "tuple_text": Maybe(str),
        "time": float, "times": int, "text": str,
    }]},
    "; `text` is the whole report for people",
)  # fmt: skip
WORKERS: Final = Answer(
    {"workers": [_WORKER]},
    "; `tasks` are `[task, component, index]`, `state` is STARTING, RUNNING, DRAINED, STOPPING, STOPPED, or LOST when its "
    "supervisor is gone",
)
CONFIGURATIONS: Final = Answer(
    {"conf": Each("option", object), "component_confs": Each("component", Each("option", object))}
)
COUNTERS: Final = Answer(
    {
        "topology": str, "id": str, "components": _COMPONENTS,
        "workers": [{"worker": str, "incarnation": _INCARNATION, "components": Each("component", Each("counter", object))}],
    },
)  # fmt: skip
LOG: Final = Answer(
    {
        "worker": str,
        "incarnation": Maybe(_INCARNATION),
        "offset": int,
        "next_offset": int,
        "size": int,
        "text": str,
    }
)
SENT: Final = Answer({"sha256": str, "size": int})
SENT_BEFORE: Final = Answer(SENT.shape, ": it was there already")
REFUSED: Final = Answer(
    {"refused": [{"topology": str, "worker": str, "incarnation": _INCARNATION}]},
    ": the reports of workers that are not wanted any more",
)
OPENAPI: Final = Answer({"openapi": str, "info": object, "paths": object, "components": object})
HEALTH: Final = Answer({"status": OneOf(("ok", "unavailable")), "leading": bool, "store": _STORE})
HEALTH_503: Final = Answer(HEALTH.shape, ", when it is `unavailable`")
BYTES: Final = Answer(None, "the bytes of the file")
NOTHING: Final = Answer(None, "nothing but that it is there")
PROMETHEUS: Final = Answer(None, "the text format of Prometheus")
