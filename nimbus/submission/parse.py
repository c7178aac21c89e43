"""Parses a submission, and checks it again with the client's own rules. Nothing is trusted, and nothing is unpickled.

Pure functions: a JSON object becomes a `Submission`, or one error that names all its problems.
Must not know: HTTP, the store, the content of files (`nimbus.files.stored_files` checks that).
"""

from __future__ import annotations

import binascii
import json
from base64 import b64decode
from collections.abc import Iterable, Mapping
from typing import Final, TypeVar

from msgspec import Struct, ValidationError, convert

from nimbus.files.stored_files import KINDS, UnsoundFile, checked_name
from nimbus.submission.submission import Submission
from squall.api.backups import BundleAnswer
from squall.api.problems import named, problems_of
from squall.api.requests import SubmitRequest
from squall.cluster.records import SupervisorRecord
from squall.packages.versions import misfits
from topology_api.errors import InvalidConfig, SquallError
from topology_api.options import defaults, json_copy, without_daemons
from topology_api.options import problems_of as option_problems
from topology_api.topology import Topology

#: The limit of description and pickles together, in bytes: both are kept in the store.
PACKAGE_LIMIT: Final = 4 * 1024 * 1024
#: The limit of a submission's JSON, in bytes. The JSON contains the pickles as base64, and also configurations.
BODY_LIMIT: Final = 4 * PACKAGE_LIMIT

_KEY_LENGTH: Final = 100

S = TypeVar("S", bound=Struct)


class BadRequest(SquallError):
    """A request that does not have the expected form. `problems` lists everything that is wrong."""

    def __init__(self, problems: Iterable[str], what: str = "the request") -> None:
        self.problems: tuple[str, ...] = tuple(problems)
        self.what = what
        super().__init__(self.problems, what)

    def __str__(self) -> str:
        return f"{self.what} cannot be read: {'; '.join(self.problems)}"


class TooLarge(SquallError):
    """A request, or something in it, that is over its limit."""


class VersionMismatch(SquallError):
    """A topology that was packed with a version of Python or cloudpickle that does not fit the cluster's versions."""

    def __init__(self, name: str, problems: Iterable[str]) -> None:
        self.name = name
        self.problems: tuple[str, ...] = tuple(problems)
        super().__init__(name, self.problems)

    def __str__(self) -> str:
        return f"topology {self.name!r} cannot run on this cluster: {'; '.join(self.problems)}"


def read(kind: type[S], body: object, what: str = "the request") -> S:
    """Return the body of a request as its struct. Raises `BadRequest` with all problems."""
    values, problems = problems_of(kind, body)
    if problems:
        raise BadRequest(problems, what)
    try:
        return convert(values, kind)
    except ValidationError as error:  # a text or a list outside of the limits of its field
        raise BadRequest([str(error)], what) from None


def read_submission(body: object) -> Submission:
    """Return the submission in a JSON value. Raises `BadRequest`, `TooLarge`, `InvalidTopology` or `InvalidConfig`."""
    values, problems = problems_of(SubmitRequest, body)
    key = values.get("submission", "")
    if len(key) > _KEY_LENGTH or not key.isprintable():
        problems.append(f"'submission' is a key of at most {_KEY_LENGTH} printable characters")
    problems.extend(problems_of_files(values.get("files", {})))
    pickles, damaged = _decoded(values.get("pickles", {}))
    problems += damaged
    if problems:
        raise BadRequest(problems, "the submission")
    request = convert(values, SubmitRequest)
    topology = _topology(request.description, pickles)
    conf, component_confs = checked_confs(topology, request.conf, request.component_confs)
    checked_confs(
        topology, request.options.topology, request.options.components
    )  # they may become a configuration later
    versions = {"python": request.python, "cloudpickle": request.cloudpickle, "squall": request.squall}
    return Submission(
        topology, conf, component_confs, request.active, request.submission, request.files, versions, request.replace,
        request.wait_secs, request.options, request.reset_options, state_start=request.state,
    )  # fmt: skip


def checked_confs(
    topology: Topology, conf: Mapping[str, object], component_confs: Mapping[str, object]
) -> tuple[dict[str, object], dict[str, dict[str, object]]]:
    """Return the merged configurations, with defaults for options that an older submitter does not know. Raises `InvalidConfig`
    with all problems. Options of daemons, which come from the submitter's site file, are ignored.
    """
    problems = option_problems(without_daemons(conf), "topology")
    whole = {**defaults(), **without_daemons(conf)}
    known = [component.id for component in topology.components]
    own: dict[str, dict[str, object]] = {}
    for component, values in component_confs.items():
        if component not in known:
            problems.append(f"component_confs names {component!r:.80}, which is not a component")
        elif not isinstance(values, dict):
            problems.append(f"component_confs[{component!r}] is {named(values)}, but must be an object")
        else:
            problems += [
                f"{component}: {each}" for each in option_problems(without_daemons(values), "topology")
            ]
            own[component] = {**whole, **without_daemons(values)}
    if problems:
        raise InvalidConfig(problems, f"topology {topology.name!r}")
    return json_copy(whole), {component: json_copy(own.get(component, whole)) for component in known}


def check_versions(
    name: str, packed: Mapping[str, str], own: Mapping[str, str], supervisors: Iterable[SupervisorRecord]
) -> None:
    """Raise `VersionMismatch`, which names both versions, if a worker on this cluster could not read the pickles. `packed`: the
    versions with which the topology was packed."""
    others = [("this Nimbus", own)]
    others += [(f"supervisor {record.id} on {record.host}", record.versions) for record in supervisors]
    problems = misfits(packed, others)
    if problems:
        raise VersionMismatch(name, problems)


def read_bundle(body: object, what: str) -> Topology:
    """Return the topology of a bundle in a JSON value. Raises what `read_submission` raises."""
    bundle = read(BundleAnswer, body, what)
    pickles, damaged = _decoded(bundle.pickles)
    if damaged:
        raise BadRequest(damaged, what)
    return _topology(bundle.description, pickles)


def _decoded(texts: Mapping[str, str]) -> tuple[dict[str, bytes], list[str]]:
    """Return (component -> its pickle, the problems of those that are not base64)."""
    pickles: dict[str, bytes] = {}
    problems = []
    for component, text in texts.items():
        try:
            pickles[component] = b64decode(text, validate=True)
        except (binascii.Error, ValueError):
            problems.append(f"pickles[{component!r:.80}] is not base64")
    return pickles, problems


def _topology(description: Mapping[str, object], pickles: Mapping[str, bytes]) -> Topology:
    _check_size(description, pickles)
    return Topology.from_description(description, pickles)


def problems_of_files(files: Mapping[str, str]) -> list[str]:
    """Return the problems of the files that a topology names, kind -> SHA-256."""
    problems = [
        f"files names {kind!r:.80}: the kinds are {', '.join(KINDS)}" for kind in files if kind not in KINDS
    ]
    for kind, sha256 in files.items():
        try:
            checked_name(sha256)
        except UnsoundFile as error:
            problems.append(f"files[{kind!r:.80}]: {error}")
    return problems


def _check_size(description: Mapping[str, object], pickles: Mapping[str, bytes]) -> None:
    size = len(json.dumps(description)) + sum(map(len, pickles.values()))
    if size <= PACKAGE_LIMIT:
        return
    largest = max(pickles, key=lambda component: len(pickles[component]), default="")
    share = f"; the largest is {largest!r} with {len(pickles[largest]):,}" if largest else ""
    raise TooLarge(
        f"description and pickled components have {size:,} bytes, but at most {PACKAGE_LIMIT:,} are allowed{share}:"
        " ship big values as files (squall submit --resource), and open them in `open` or `prepare`"
    )
