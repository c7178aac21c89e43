"""docs/cluster.md: its commands for one machine set up a working cluster, and every test that it names exists."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from tests.faults import leaks
from tests.repository.document_blocks import Block, blocks
from tests.zookeeper_servers import free_ports, java_and_jars

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "docs" / "cluster.md"
NAMED = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")
PORT = re.compile(r"(?<=127\.0\.0\.1:)\d{4}(?::\d{4})?")
CAP = 60


def named_tests() -> list[tuple[str, str]]:
    return NAMED.findall(DOCUMENT.read_text(encoding="utf-8"))


def of_one_machine() -> list[Block]:
    """The blocks below "On one machine"."""
    text = DOCUMENT.read_text(encoding="utf-8")
    begin = text[: text.index("## On one machine")].count("\n")
    end = text[: text.index("## On three hosts")].count("\n")
    return [block for block in blocks(text) if begin < block.line < end]


def commands(block: Block) -> str:
    return "\n".join(line[2:] for line in block.code.splitlines() if line.startswith("$ "))


def test_every_test_that_the_document_names_exists() -> None:
    assert len(named_tests()) > 15
    for path, name in named_tests():
        file = ROOT / path
        assert file.is_file(), path
        assert not name or re.search(rf"^def {name}\(", file.read_text(encoding="utf-8"), re.MULTILINE), name


def test_every_row_of_failures_names_a_test() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    rows = (
        text[text.index("## What happens when something dies") :]
        .split("|---|---|---|\n")[1]
        .partition("\n\n")[0]
        .splitlines()
    )
    assert len(list(filter(None, rows))) > 15
    assert [row for row in rows if row and not NAMED.search(row.rstrip("| ").rpartition("|")[2])] == []


def with_free_ports(text: str, known: dict[str, str]) -> str:
    """The text with other ports: tests do not use fixed ones."""

    def another(found: re.Match[str]) -> str:
        return ":".join(known.setdefault(port, str(free_ports(1)[0])) for port in found[0].split(":"))

    return PORT.sub(another, text)


@pytest.mark.slow
def test_a_cluster_on_one_machine_is_set_up_by_the_documented_commands(tmp_path: Path) -> None:
    java_and_jars()  # skips where there are none, but not in CI
    setup, look, topology, use, end = of_one_machine()
    ports: dict[str, str] = {}
    (tmp_path / "cluster.sh").write_text(with_free_ports(setup.code, ports))
    (tmp_path / "ticks.py").write_text(topology.code)
    there = "squall supervisors --json > there 2> /dev/null && grep -q host-1 there && grep -q host-2 there"
    wait = f"for i in $(seq {CAP}); do {there} && break; sleep 1; done"
    said = "squall status ticks --json > after.json"
    script = "\n".join(
        ("set -eu", f'squall() {{ "{sys.executable}" -m squall_cli "$@"; }}', ". ./cluster.sh", wait, commands(look),
         commands(use), commands(end).replace("squall kill ticks --wait", f"{said}\nsquall kill ticks --wait"))
    )  # fmt: skip
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SQUALL_")}
    mark = uuid.uuid4().hex
    places = {
        leaks.MARK: mark,
        "HOME": str(tmp_path),
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "PYTHONPATH": str(ROOT),
    }
    process = subprocess.Popen(
        ["bash", "-c", script], cwd=tmp_path, env={**kept, **places}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, start_new_session=True,
    )  # fmt: skip
    try:
        text, _ = process.communicate(timeout=110)
    finally:
        left = leaks.processes(mark, str(tmp_path))
        for each in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(each.pid, signal.SIGKILL)
        process.communicate()
    logs = "".join(f"{path.name}:\n{path.read_text()[-1500:]}" for path in sorted(tmp_path.glob("*.log")))
    assert process.returncode == 0, text + logs
    assert "host-1" in text and "host-2" in text and "ACTIVE" in text
    after = json.loads((tmp_path / "after.json").read_text())
    assert {worker["host"] for worker in after["workers"]} == {"host-1"}
    assert after["components"]["ticks"]["failed"] == 0
    assert not [each.command for each in left if " -m worker " in f"{each.command} "]
