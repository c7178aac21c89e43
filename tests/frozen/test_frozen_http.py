"""Answers over HTTP have all earlier fields with the same values; mistakes are refused with the same error kind.

Texts for people may change. Fields may be added, none may be removed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.frozen.frozen_data import load
from tests.frozen.http_normal import missing, normal_answer, resolved
from tests.frozen.http_play import played
from tests.frozen.on_purpose import ANSWERS

FROZEN: dict[str, Any] = load("http")


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """All answers of one play."""
    yield played(tmp_path_factory.mktemp("frozen"))


def test_all_frozen_requests_are_made(answers: dict[str, Any]) -> None:
    assert answers.keys() == FROZEN.keys() >= ANSWERS.keys()


@pytest.mark.parametrize("name", FROZEN)
def test_an_answer_has_all_its_earlier_fields_except_for_deliberate_changes(
    answers: dict[str, Any], name: str
) -> None:
    assert missing(resolved(normal_answer(answers[name])), resolved(FROZEN[name])) == ANSWERS.get(name, [])


def test_the_document_has_its_earlier_paths_methods_and_statuses(answers: dict[str, Any]) -> None:
    paths = answers["openapi"]["body"]["paths"]
    for path, methods in FROZEN["openapi"]["body"]["paths"].items():
        for method, described in methods.items():
            assert paths[path][method]["responses"].keys() >= described["responses"].keys(), (method, path)


def test_each_endpoint_of_the_frozen_document_is_requested(answers: dict[str, Any]) -> None:
    """Newer endpoints are compared with their document in tests/nimbus_http/test_answers.py."""
    asked = {answer["asked"] for answer in answers.values()}
    for path, methods in FROZEN["openapi"]["body"]["paths"].items():
        pattern = re.compile(re.sub(r"\{\w+\}", "[^/]+", path))
        for method in methods:
            assert any(each == method.upper() and pattern.fullmatch(at) for each, at in asked), (method, path)
