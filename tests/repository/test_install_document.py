"""The instructions for installing Squall and for upgrading a running cluster are safe, and work."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.faults.running import ledger_run
from tests.repository.document_blocks import blocks
from tests.repository.test_budgets import PACKAGES

ROOT = Path(__file__).resolve().parents[2]
CAP = 100.0


def test_nothing_installs_squall_by_a_name_that_anyone_could_register() -> None:
    documents = [
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/*.md"),
        *ROOT.glob("examples/*.py"),
        *ROOT.glob("scripts/*"),
        ROOT / "conf" / "squall.yaml",
    ]
    documents += [path for package in PACKAGES for path in ROOT.glob(f"{package}/**/*.py")]
    documents = [path for path in documents if path.is_file()]
    assert len(documents) > 300
    by_name = r"(?:pip|pipx|uv)\S* (?:install|download|wheel)[^\n`]*? ['\"]?(squall(?:\[\w+\]|[=<>~]\S*)?)(?=[\s`'\"]|$)"
    asked = re.compile(by_name, re.MULTILINE)
    assert asked.search("# /opt/squall/bin/pip install -q squall\n") and asked.search("`pip install squall`")
    assert asked.search("pip install 'squall[spark]' matplotlib")
    assert {path.name: found for path in documents if (found := asked.findall(path.read_text("utf-8")))} == {}


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("pgrep") is None, reason="the script finds workers with pgrep")
def test_the_documented_script_renews_each_worker_under_load_and_fails_no_tuple(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "cluster.md").read_text("utf-8")
    [script] = [block.code for block in blocks(text) if "renew-workers.sh" in block.code]
    (tmp_path / "renew-workers.sh").write_text(script.replace("sleep 5", "sleep 1"))
    with ledger_run(tmp_path) as run:
        before = run.pids()
        states = sorted({str(run.worker(name).directory.parents[3]) for name in before})
        for state in states:
            command = ["sh", str(tmp_path / "renew-workers.sh"), state]
            assert subprocess.run(command, timeout=CAP, check=True, stdin=subprocess.DEVNULL).returncode == 0
        run.wait_for(
            lambda: not {*before.values()} & {*run.pids().values()}, "another process of each worker"
        )
        run.flows()
        total = run.drain()
        assert not total.failed and not total.orphaned and not total.duplicates
