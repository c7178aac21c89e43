"""The current code accepts submissions and bundles of the commit's code, and makes the same ones."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from squall.cluster.records import SetOptions
from tests.frozen import current_api
from tests.frozen.bundle_readers import SAID, archive_values, built, reader_of_body, reader_of_folder
from tests.frozen.frozen_checks import check_mutations
from tests.frozen.frozen_data import as_bytes, load
from tests.frozen.plain_values import lacking, plain, text_of
from topology_api import Topology

FROZEN: dict[str, Any] = load("bundles")
MUTATED: dict[str, Any] = load("mutated_bundles")
ARCHIVES: dict[str, Any] = load("archives")
#: The submitter's fields.
OWN = ("squall", "python", "cloudpickle")


def pickles_of(name: str) -> dict[str, bytes]:
    return {each: base64.b64decode(text) for each, text in FROZEN[name]["pickles"].items()}


@pytest.mark.parametrize("name", FROZEN)
def test_a_frozen_description_gives_the_same_topology(name: str) -> None:
    frozen = FROZEN[name]
    found = current_api.read_description(frozen["description"].encode(), pickles_of(name))
    assert lacking(plain(found), frozen["told"]) == []


@pytest.mark.parametrize("name", FROZEN)
@pytest.mark.parametrize("said", SAID)
def test_a_frozen_submission_is_accepted_unchanged(name: str, said: str) -> None:
    frozen = FROZEN[name]["bodies"][said]
    found = plain(current_api.read_body(json.dumps(frozen["body"]).encode()))
    new = [found.pop(field) for field in ("options", "reset_options", "by", "repeats", "state_start")]
    assert new == [plain(SetOptions()), False, "", "", ""]
    assert (
        lacking(
            {**found, "conf": {}, "component_confs": {}},
            {**frozen["told"], "conf": {}, "component_confs": {}},
        )
        == []
    )
    for conf in ("conf", "component_confs"):  # options may have been added
        assert not [each for each in frozen["told"][conf] if each not in found[conf]]


@pytest.mark.parametrize("name", FROZEN)
@pytest.mark.parametrize("said", SAID)
def test_a_submission_is_sent_as_before(name: str, said: str) -> None:
    topology = Topology.from_description(json.loads(FROZEN[name]["description"]), pickles_of(name))
    now, then = current_api.body_of(topology, **SAID[said]), FROZEN[name]["bodies"][said]["body"]
    assert now.keys() >= then.keys()
    assert all(text_of(now[key]) == text_of(then[key]) for key in then if key not in OWN)


def test_a_built_topology_is_described_as_before() -> None:
    now, then = built().describe(), json.loads(FROZEN["built"]["description"])
    # What components keep was added, and readers of that release ignore it.
    assert [sorted(each.pop("keeps", {})) for each in now["components"]] == [["class"], [], []]
    for each in now["components"] + then["components"]:
        for reads in each["inputs"]:
            reads["custom"] = bool(reads["custom"])  # another Python may pickle in other bytes
    assert text_of(now) == text_of(then)


@pytest.mark.parametrize("name", FROZEN)
def test_a_frozen_bundle_in_a_folder_is_read_unchanged(tmp_path: Path, name: str) -> None:
    for file, text in FROZEN[name]["folder"].items():
        (tmp_path / file).write_bytes(as_bytes(text))
    assert lacking(plain(current_api.read_bundle(tmp_path)), FROZEN[name]["told"]) == []


def test_a_component_of_a_frozen_bundle_is_loaded() -> None:
    frozen = FROZEN["built"]
    topology = Topology.from_description(json.loads(frozen["description"]), pickles_of("built"))
    assert topology.load("lines").words == ["to", "be"]
    assert [type(topology.load(each)).__name__ for each in ("count", "gather")] == ["Count", "Gather"]


@pytest.mark.parametrize("what", MUTATED)
def test_invalid_bundles_are_read_or_refused_as_before(what: str) -> None:
    small = FROZEN["small"]
    files = {name: as_bytes(text) for name, text in small["folder"].items()}
    readers = {
        "description": lambda data: current_api.read_description(data, pickles_of("small")),
        "manifest of a bundle": reader_of_folder(files),
        "submission": reader_of_body(small["description"].encode()),
    }
    check_mutations(what, readers[what], MUTATED[what])


@pytest.mark.parametrize("name", ARCHIVES)
def test_an_archive_has_the_same_contents_or_is_refused_as_before(name: str) -> None:
    assert archive_values(base64.b64decode(ARCHIVES[name]["data"])) == ARCHIVES[name]["told"]
