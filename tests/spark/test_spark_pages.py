"""Every code block of docs/spark*.md works, in this process and with the tests' shared session."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.repository.document_blocks import run_document

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted(ROOT.glob("docs/spark*.md"))


@pytest.fixture
def as_a_reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An empty folder, whose modules are importable and unloaded afterwards; a document brings a `__main__` and commands of its
    own.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", os.environ["PATH"])
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", None) or "").startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
@pytest.mark.usefixtures("as_a_reader")
def test_every_block_of_a_document_about_spark_runs(spark: SparkSession, document: Path) -> None:
    run_document(document)
    assert spark.range(3).count() == 3, "the session is used, and stays"


def test_there_are_documents_about_spark() -> None:
    assert len(DOCUMENTS) >= 4
