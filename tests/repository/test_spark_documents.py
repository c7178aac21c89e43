"""docs/spark*.md: every test that they name exists, and every row of failures names one."""

from __future__ import annotations

import re
from pathlib import Path

from tests.repository.test_cluster_document import NAMED

ROOT = Path(__file__).resolve().parents[2]
GUARANTEES = ROOT / "docs" / "spark-guarantees.md"
ROW = "|---|---|---|---|\n"


def test_every_test_that_the_documents_of_spark_name_exists() -> None:
    named = [
        found
        for document in sorted(ROOT.glob("docs/spark*.md"))
        for found in NAMED.findall(document.read_text(encoding="utf-8"))
    ]
    assert len(named) > 30
    for path, name in named:
        file = ROOT / path
        assert file.is_file(), path
        assert not name or re.search(rf"^def {name}\(", file.read_text(encoding="utf-8"), re.MULTILINE), name


def test_every_row_of_failures_of_a_sink_names_a_test() -> None:
    text = GUARANTEES.read_text(encoding="utf-8")
    rows = text[text.index("## What happens when something dies") :].split(ROW)[1].splitlines()
    assert len(list(filter(None, rows))) > 20
    assert [row for row in rows if row and not NAMED.search(row.rstrip("| ").rpartition("|")[2])] == []
