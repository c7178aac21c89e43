"""A user's pickles of this release are readable by every later one: the names in a pickle stay importable for ever.

Stores and bundles keep pickles as long as a topology runs. They name users' classes, their base classes of ours, and the
classes of their attributes.
"""

from __future__ import annotations

import base64
import pickle
import sys
from typing import Any

import pytest

from local_cluster.testing import run_bolt
from tests.frozen import current_api
from tests.frozen.frozen_data import DATA, load
from tests.frozen.on_purpose import PICKLES, RENAMED_ERRORS
from tests.frozen.pickled_names import names_in, resolved
from tests.frozen.plain_values import lacking, plain
from tests.frozen.user_components import instances

FROZEN: dict[str, Any] = load("pickles")
ERRORS: dict[str, list[str]] = load("errors")
SCRIPTS = sorted(path.stem for path in DATA.glob("scripts_*.json"))
HERE = f"scripts_{sys.version_info[0]}{sys.version_info[1]}"


def data_of(frozen: Any) -> bytes:
    return base64.b64decode(frozen["data"])


@pytest.mark.parametrize("name", [name for name in FROZEN if name not in PICKLES])
def test_a_frozen_pickle_is_loaded_unchanged(name: str) -> None:
    frozen = FROZEN[name]
    assert names_in(data_of(frozen)) == frozen["names"]
    for each in frozen["names"]:
        assert resolved(each) is not None
    value = pickle.loads(data_of(frozen))
    if name in instances():
        assert type(value) is type(instances()[name])
        assert lacking(plain(current_api.component_values(value)), frozen["told"]) == []
    elif ":" in name:
        assert value is resolved(name)
    elif name.startswith("error"):
        assert lacking(plain(vars(value)), frozen["told"]) == []
        assert str(value) and type(value).__name__ == name.split()[-1]
    else:
        assert lacking(plain(value), frozen["told"]) == []


def test_all_names_that_users_could_import_still_exist() -> None:
    then = {name for name in FROZEN if ":" in name}
    assert then <= current_api.public_names().keys()


@pytest.mark.parametrize("name", instances())
def test_a_component_packed_now_has_the_same_contents(name: str) -> None:
    now = pickle.loads(current_api.packed(instances()[name]))
    assert lacking(plain(current_api.component_values(now)), FROZEN[name]["told"]) == []


@pytest.mark.parametrize("file", SCRIPTS)
def test_names_used_by_a_frozen_script_still_exist(file: str) -> None:
    for frozen in load(file).values():
        assert frozen["names"] == names_in(data_of(frozen))
        for each in frozen["names"]:
            assert resolved(each) is not None


@pytest.mark.skipif(
    HERE not in SCRIPTS, reason="code of functions is in the bytes of one Python, and not of this one"
)
def test_the_classes_of_a_frozen_script_run() -> None:
    found = {name: pickle.loads(data_of(frozen)) for name, frozen in load(HERE).items()}
    run = run_bolt(found["bolt"], [("to",), ("or",)], source_fields="word")
    assert run.emitted() == [("TO",), ("OR",)]
    assert current_api.component_values(found["sink"])["path"].endswith("/tables/words")


def test_every_frozen_error_has_its_earlier_base_classes() -> None:
    kinds: dict[str, set[str]] = {}
    for name, *bases in current_api.error_classes().values():
        kinds.setdefault(name, set()).update(bases)
    for where, frozen in ERRORS.items():
        name, *bases = RENAMED_ERRORS.get(where, frozen)
        assert name in kinds, f"{where} is gone: code that catches it by this name catches nothing"
        assert kinds[name].issuperset(bases), f"{where} was one of {bases}"
        if where.startswith("topology_api."):
            assert issubclass(resolved(where), BaseException)


def test_each_deliberate_difference_of_pickles_and_errors_occurs() -> None:
    for name in PICKLES:
        with pytest.raises((ImportError, AttributeError)):
            pickle.loads(data_of(FROZEN[name]))
    names = {name for name, *_ in current_api.error_classes().values()}
    for where in RENAMED_ERRORS:
        assert ERRORS[where][0] not in names
