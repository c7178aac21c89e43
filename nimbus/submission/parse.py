"""What a submitter sends, read and checked again with the client's own rules; nothing of it is believed, or unpickled.

Values in, values out: a JSON object becomes a `Submission`, or one error that names all its problems.
Must not know: HTTP, the store, the files themselves (`nimbus.files` looks into them).
"""

from __future__ import annotations

import binascii
import json
from base64 import b64decode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from nimbus.files import KINDS, BadFile, checked_name
from squall.cluster.records import SupervisorRecord
from squall.versions import misfits
from topology_api.errors import InvalidConfig, SquallError
from topology_api.options import OPTIONS, defaults, json_copy, problems_of
from topology_api.topology import Topology
from topology_api.values import MAX_SECONDS, number_problem

#: Bytes of description and pickles together: they are kept in the store.
PACKAGE_LIMIT: Final = 4 * 1024 * 1024
#: Bytes of the JSON around them: pickles travel as base64, and configurations come with them.
BODY_LIMIT: Final = 4 * PACKAGE_LIMIT

_KEY_LENGTH: Final = 100


class BadRequest(SquallError):
    """A request that is not of the form that is expected. `problems` holds everything that was found."""

    def __init__(self, problems: Iterable[str], what: str = "the request") -> None:
        self.problems: tuple[str, ...] = tuple(problems)
        self.what = what
        super().__init__(self.problems, what)

    def __str__(self) -> str:
        return f"{self.what} cannot be read: {'; '.join(self.problems)}"


class TooLarge(SquallError):
    """A request, or something in it, that is over its limit."""


class VersionMismatch(SquallError):
    """A topology that was packed by another Python or cloudpickle than those that are to run it."""

    def __init__(self, name: str, problems: Iterable[str]) -> None:
        self.name = name
        self.problems: tuple[str, ...] = tuple(problems)
        super().__init__(name, self.problems)

    def __str__(self) -> str:
        return f"topology {self.name!r} cannot run on this cluster: {'; '.join(self.problems)}"


@dataclass(frozen=True)
class Submission:
    """A topology that somebody wants to run, with everything that was said about it."""

    #: The submitter's own key: what comes again with it is the same submission.
    key: str
    topology: Topology
    conf: Mapping[str, object]
    component_confs: Mapping[str, Mapping[str, object]]
    active: bool
    replace: bool
    wait_secs: float | None
    #: What it brings besides: kind -> SHA-256.
    files: Mapping[str, str]
    #: What it was packed with: "python", "cloudpickle", "squall".
    versions: Mapping[str, str]


class Fields:
    """A JSON object whose values are taken out by name and type; what does not fit is noted, not raised."""

    def __init__(self, body: object, known: Iterable[str]) -> None:
        self.problems: list[str] = []
        self._body: Mapping[str, Any] = {}
        if not isinstance(body, dict):
            self.problems.append(f"a JSON object was expected, not {_named(body)}")
            return
        self._body = body
        unknown = sorted(set(body) - set(known))
        if unknown:
            self.problems.append(f"there is no field {', '.join(map(repr, unknown))!s:.200}")

    def take(self, name: str, default: Any, *types: type) -> Any:
        """A field, or its default when it is not there or null; wrong types are noted."""
        value = self._body.get(name)
        if value is None:
            return default
        if type(value) not in types:
            wanted = "a number" if float in types else " or ".join(_NAMES[kind] for kind in types)
            self.problems.append(f"{name!r} is {_named(value)}, it must be {wanted}")
            return default
        return value

    def need(self, name: str, default: Any, *types: type) -> Any:
        """A field that must be there."""
        if self._body.get(name) is None:
            self.problems.append(f"{name!r} is missing")
            return default
        return self.take(name, default, *types)

    def texts(self, name: str) -> dict[str, str]:
        """An object whose values are texts."""
        values = self.take(name, {}, dict)
        wrong = [key for key, value in values.items() if not isinstance(value, str)]
        self.problems.extend(f"{name}[{key!r:.80}] is no text" for key in wrong)
        return {key: value for key, value in values.items() if isinstance(value, str)}

    def seconds(self, name: str) -> float | None:
        """A number of seconds, 0 or more, or None."""
        value = self.take(name, None, int, float)
        problem = None if value is None else number_problem(value, 0, MAX_SECONDS, "seconds", above=False)
        if problem:
            self.problems.append(f"{name!r} {problem}")
        return None if value is None or problem else float(value)

    def check(self, what: str = "the request") -> None:
        """`BadRequest` with everything that was noted."""
        if self.problems:
            raise BadRequest(self.problems, what)


_NAMES: Final = {
    str: "a text", bool: "true or false", dict: "an object", list: "a list", int: "a whole number",
    float: "a number",
}  # fmt: skip
_SUBMISSION: Final = (
    "submission", "description", "pickles", "conf", "component_confs", "active", "replace", "wait_secs", "files",
    "python", "cloudpickle", "squall",
)  # fmt: skip


def read_submission(body: object) -> Submission:
    """The submission that a JSON value holds; `BadRequest`, `TooLarge`, `InvalidTopology` or `InvalidConfig`."""
    fields = Fields(body, _SUBMISSION)
    key = fields.need("submission", "", str)
    description = fields.need("description", {}, dict)
    encoded = fields.texts("pickles")
    conf = fields.take("conf", {}, dict)
    component_confs = fields.take("component_confs", {}, dict)
    versions = {name: fields.need(name, "", str) for name in ("python", "cloudpickle")}
    versions["squall"] = fields.take("squall", "", str)
    active, replace = fields.take("active", True, bool), fields.take("replace", False, bool)
    wait_secs, files = fields.seconds("wait_secs"), fields.texts("files")
    if len(key) > _KEY_LENGTH or not key.isprintable():
        fields.problems.append(f"'submission' is a key of at most {_KEY_LENGTH} printable characters")
    fields.problems.extend(_problems_of_files(files))
    pickles = _decoded(encoded, fields)
    fields.check("the submission")
    _check_size(description, pickles)
    topology = Topology.from_description(description, pickles)
    whole, own = checked_confs(topology, conf, component_confs)
    return Submission(key, topology, whole, own, active, replace, wait_secs, files, versions)


def checked_confs(
    topology: Topology, conf: Mapping[str, object], component_confs: Mapping[str, object]
) -> tuple[dict[str, object], dict[str, dict[str, object]]]:
    """The merged configurations as they came, with the defaults of options that an older submitter does not know;
    `InvalidConfig` with all problems. What the submitter's site says of its daemons is none of ours."""
    problems = problems_of(_without_daemons(conf), "topology")
    whole = {**defaults(), **_without_daemons(conf)}
    known = [component.id for component in topology.components]
    own: dict[str, dict[str, object]] = {}
    for component, values in component_confs.items():
        if component not in known:
            problems.append(f"component_confs names {component!r:.80}, which is no component of the topology")
        elif not isinstance(values, dict):
            problems.append(f"component_confs[{component!r}] is {_named(values)}, it must be an object")
        else:
            problems += [f"{component}: {each}" for each in problems_of(_without_daemons(values), "topology")]
            own[component] = {**whole, **_without_daemons(values)}
    if problems:
        raise InvalidConfig(problems, f"topology {topology.name!r}")
    return json_copy(whole), {component: json_copy(own.get(component, whole)) for component in known}


def check_versions(
    submission: Submission, own: Mapping[str, str], supervisors: Iterable[SupervisorRecord]
) -> None:
    """`VersionMismatch`, which names both versions, when a worker on this cluster could not read the pickles."""
    others = [("this Nimbus", own)]
    others += [(f"supervisor {record.id} on {record.host}", record.versions) for record in supervisors]
    problems = misfits(submission.versions, others)
    if problems:
        raise VersionMismatch(submission.topology.name, problems)


def _without_daemons(conf: Mapping[str, object]) -> dict[str, object]:
    return {key: value for key, value in conf.items() if key not in OPTIONS or OPTIONS[key].scope != "daemon"}


def _problems_of_files(files: Mapping[str, str]) -> list[str]:
    problems = [
        f"files names {kind!r:.80}: there are {', '.join(KINDS)}" for kind in files if kind not in KINDS
    ]
    for kind, sha256 in files.items():
        try:
            checked_name(sha256)
        except BadFile as error:
            problems.append(f"files[{kind!r:.80}]: {error}")
    return problems


def _decoded(encoded: Mapping[str, str], fields: Fields) -> dict[str, bytes]:
    pickles = {}
    for component, text in encoded.items():
        try:
            pickles[component] = b64decode(text, validate=True)
        except (binascii.Error, ValueError):
            fields.problems.append(f"pickles[{component!r:.80}] is not base64")
    return pickles


def _check_size(description: Mapping[str, object], pickles: Mapping[str, bytes]) -> None:
    size = len(json.dumps(description)) + sum(map(len, pickles.values()))
    if size <= PACKAGE_LIMIT:
        return
    largest = max(pickles, key=lambda component: len(pickles[component]), default="")
    share = f"; the largest is {largest!r} with {len(pickles[largest]):,}" if largest else ""
    raise TooLarge(
        f"description and pickled components are {size:,} bytes, of at most {PACKAGE_LIMIT:,}{share}: ship big values as"
        " files (squall submit --resource), and open them in `open` or `prepare`"
    )


def _named(value: object) -> str:
    return "null" if value is None else _NAMES.get(type(value), type(value).__name__)
