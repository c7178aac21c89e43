"""Replays: the modules of a topology's classes travel, with the modules beside them that they import."""

from __future__ import annotations

import importlib
import subprocess
import sys
import zipfile
from io import BytesIO
from pathlib import Path

import pytest

from squall_io.spark.replay.shipping import archive_of, modules_of, place_of
from tests.squall_io.replay_topologies import word_count
from topology_api import Bolt, Fields, Spout, TopologyBuilder, Tuple


class Anything(Spout):
    outputs = Fields("n")

    def next_tuple(self) -> None:
        self.finish()


def test_a_module_travels_with_its_imports_from_its_folder_and_nothing_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shipped_package").mkdir()
    (tmp_path / "shipped_package" / "__init__.py").write_text("")
    (tmp_path / "shipped_package" / "inner.py").write_text("ONE = 1\n")
    (tmp_path / "shipped_beside.py").write_text("from shipped_package.inner import ONE\n")
    (tmp_path / "shipped_bolt.py").write_text(
        "import json, click\nimport shipped_beside\nfrom topology_api import Bolt, Fields\n"
        "class B(Bolt):\n    outputs = Fields('n')\n"
        "    def execute(self, tup):\n        self.emit((shipped_beside.ONE,))\n"
    )
    (tmp_path / "shipped_unused.py").write_text("raise SystemExit\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    module = importlib.import_module("shipped_bolt")
    builder = TopologyBuilder("shipped")
    builder.set_spout("numbers", Anything())
    builder.set_bolt("it", module.B()).shuffle_grouping("numbers")
    try:
        found = modules_of(builder.build())
        own = {place for place in found if place.startswith("shipped_")}
        assert own == {
            "shipped_bolt.py",
            "shipped_beside.py",
            "shipped_package/__init__.py",
            "shipped_package/inner.py",
        }
        assert not any(place.startswith(("json", "click", "topology_api", "worker")) for place in found)
        archive = tmp_path / "modules.zip"
        archive.write_bytes(archive_of({place: found[place] for place in own}))
        program = "import shipped_bolt; print(shipped_bolt.shipped_beside.ONE, shipped_bolt.__file__)"
        environment = {"PYTHONPATH": f"{archive}:{Path(__file__).parents[2]}"}
        done = subprocess.run(
            [sys.executable, "-c", program], env=environment, cwd="/", capture_output=True, text=True
        )
        assert done.stdout.startswith(f"1 {archive}"), done.stderr
    finally:
        for name in [name for name in sys.modules if name.startswith("shipped_")]:
            del sys.modules[name]


@pytest.mark.parametrize(
    ("folder", "travels"),
    [("my-site-packages-demo", True), ("old.dist-packages", True), ("site-packages", False)],
)
def test_a_module_in_a_folder_with_a_name_like_that_of_installed_packages_travels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str, travels: bool
) -> None:
    (tmp_path / folder).mkdir()
    (tmp_path / folder / "shipped_alone.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path / folder))
    importlib.import_module("shipped_alone")
    try:
        assert (place_of("shipped_alone") == "shipped_alone.py") is travels
    finally:
        del sys.modules["shipped_alone"]


def test_equal_modules_give_equal_bytes_and_folders_are_in_the_archive(tmp_path: Path) -> None:
    file = tmp_path / "inner.py"
    file.write_text("ONE = 1\n")
    data = archive_of({"outer/middle/inner.py": file})
    assert data == archive_of({"outer/middle/inner.py": file})
    assert zipfile.ZipFile(BytesIO(data)).namelist() == ["outer/", "outer/middle/", "outer/middle/inner.py"]


def test_classes_of_a_script_need_no_module() -> None:
    class Local(Bolt):
        outputs = Fields("n")

        def execute(self, tup: Tuple) -> None: ...

    assert "tests/squall_io/replay_topologies.py" in modules_of(word_count())
    builder = TopologyBuilder("script")
    builder.set_spout("numbers", Anything())
    builder.set_bolt("it", Local()).shuffle_grouping("numbers")
    assert "__main__.py" not in modules_of(builder.build())
