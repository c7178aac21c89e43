"""`squall table --register` with a Hive metastore in a folder: Spark's embedded Derby."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the tables."""
    return tmp_path_factory.mktemp("registered")


@pytest.fixture(scope="module")
def found(place: Path) -> dict[str, Any]:
    """The findings of register_script."""
    out = place / "found.json"
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.register_script", place, out],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=380,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(out.read_text())
    return found


@pytest.mark.timeout(400)
def test_a_registered_table_is_read_by_its_name(found: dict[str, Any], place: Path) -> None:
    data = f"file://{place}/it's a table/data"
    assert found["made"][:2] == [0, f"registered: shop.counts shows the files in {data}\n"]
    assert found["rows"] == [["a", "x"], ["b", "x"]]
    status, text, _ = found["again"]
    assert (status, json.loads(text)) == (
        0,
        {"name": "shop.counts", "location": data, "made": False, "columns": ["more"]},
    )
    assert found["more rows"] == [["a", None, "x"], ["b", None, "x"], ["c", None, "y"], ["d", 4, None]]
    assert found["pruned"] == [["c"]]


@pytest.mark.timeout(400)
def test_a_table_of_layout_1_is_registered_with_its_own_folder(found: dict[str, Any], place: Path) -> None:
    done, rows = found["layout 1"]
    assert done[:2] == [0, f"registered: first shows the files in file://{place}/first\n"]
    assert rows == [["of layout 1"]]


@pytest.mark.timeout(400)
def test_a_name_that_something_else_has_is_left_alone(found: dict[str, Any], place: Path) -> None:
    table = f"file://{place}/it's a table"
    advice = f"not at {table}/data: give another name, or drop it in the catalog first"
    assert found["seen"] == [1, "", [f"squall table: shop.seen is already a view, {advice}"]]
    there = f"shop.other is already a table at file:{place}/elsewhere"
    assert found["other"] == [1, "", [f"squall table: {there}, {advice}"]]
    status, _, [said] = found["no database"]
    assert status == 1
    assert said.startswith(f"squall table: {table} could not be registered as nowhere.counts: [SCHEMA_NOT_F")
