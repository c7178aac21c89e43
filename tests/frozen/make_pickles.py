"""Pickles to freeze: of users' components, of all names that users import, and of a script's classes.

Must not know: where the classes are.
"""

from __future__ import annotations

import base64
import pickle
from typing import Any

import cloudpickle

from local_cluster.testing import MutatedValue
from tests.frozen import current_api, user_components
from tests.frozen.pickled_names import names_in
from tests.frozen.plain_values import plain
from tests.frozen.script_components import script_components
from topology_api import (
    CannotPack,
    EmitError,
    FailTuple,
    Failure,
    Fields,
    GroupingError,
    InvalidConfig,
    InvalidTopology,
    NameTaken,
    NoSuchTopology,
    NotYet,
    Replay,
    SquallError,
    Stream,
    TopologyFailed,
)


def frozen_pickles() -> dict[str, Any]:
    """By name: the pickle, the names in it, the arguments of the instance."""
    found = {}
    for name, component in user_components.instances().items():
        found[name] = pickled(current_api.packed(component), plain(current_api.component_values(component)))
    for name, value in current_api.public_names().items():
        found[name] = pickled(cloudpickle.dumps(value), None)
    for name, value in _values().items():
        found[name] = pickled(cloudpickle.dumps(value), plain(value))
    for name, error in _errors().items():
        found[name] = pickled(pickle.dumps(error), plain(vars(error)))
    return found


def pickled(data: bytes, told: Any) -> dict[str, Any]:
    """A pickle as JSON values."""
    return {"data": base64.b64encode(data).decode(), "names": names_in(data), "told": told}


def _values() -> dict[str, Any]:
    return {
        "value Fields": Fields("a", "b"),
        "value Fields of nothing": Fields(),
        "value Replay": Replay(4, 0.25, 8),
        "value Failure": Failure("failed", "count", 3, "ValueError: no", 2),
        "value Stream": Stream(Fields("a"), direct=True),
    }


def _errors() -> dict[str, Exception]:
    errors = (
        SquallError("x"), InvalidTopology(["one", "two"], "words"), InvalidConfig(["one"], "the environment"),
        EmitError("x"), GroupingError("x"), FailTuple("bad line"), FailTuple(), NotYet("this", "do that"),
        NoSuchTopology("a"), NameTaken("a", being_killed=True), TopologyFailed("a", "report"),
        CannotPack("bolt 'count'", "self.db.lock", "TypeError: no"), MutatedValue("a", "b", "c", "d", [1], [2], ("e",)),
    )  # fmt: skip
    return {f"error {number} {type(error).__name__}": error for number, error in enumerate(errors)}


def frozen_scripts() -> dict[str, Any]:
    """A script's classes travel by value, in the bytes of one Python."""
    return {
        name: pickled(current_api.packed(component), None) for name, component in script_components().items()
    }


def frozen_errors() -> dict[str, Any]:
    """Every error of ours, with the names of its base classes."""
    return dict(sorted(current_api.error_classes().items()))
