"""What is answered over HTTP has all the fields that it had, with the same values; what is wrong is refused by the same word.

Texts for people may be others. Fields may come, none may go.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.frozen.frozen_data import load
from tests.frozen.http_normal import missing, normal_answer
from tests.frozen.http_play import played
from tests.frozen.on_purpose import ANSWERS

FROZEN: dict[str, Any] = load("http")


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """All answers of one play."""
    yield played(tmp_path_factory.mktemp("frozen"))


def test_everything_that_was_asked_is_asked(answers: dict[str, Any]) -> None:
    assert answers.keys() == FROZEN.keys()


@pytest.mark.parametrize("name", FROZEN)
def test_an_answer_has_all_that_it_had_but_for_what_is_on_purpose(answers: dict[str, Any], name: str) -> None:
    differs = missing(normal_answer(answers[name]), FROZEN[name]) != []
    assert differs is (name in ANSWERS)


def test_the_document_has_the_paths_methods_and_statuses_that_it_had(answers: dict[str, Any]) -> None:
    paths = answers["openapi"]["body"]["paths"]
    for path, methods in FROZEN["openapi"]["body"]["paths"].items():
        for method, described in methods.items():
            assert paths[path][method]["responses"].keys() >= described["responses"].keys(), (method, path)


def test_each_endpoint_of_the_document_is_asked(answers: dict[str, Any]) -> None:
    asked = {answer["asked"] for answer in answers.values()}
    for path, methods in answers["openapi"]["body"]["paths"].items():
        pattern = re.compile(re.sub(r"\{\w+\}", "[^/]+", path))
        for method in methods:
            assert any(each == method.upper() and pattern.fullmatch(at) for each, at in asked), (method, path)
