"""A debugger in user code: `pdb.set_trace()` in `execute` stops there, shows the user's variables, steps and continues.

It runs in a process of its own, with a person's commands as standard input, and with either core.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
import pdb
from local_cluster import LocalCluster
from local_cluster.testing import ScriptedSpout
from topology_api import Bolt, TopologyBuilder

class Debugged(Bolt):
    outputs = ("number",)

    def execute(self, tup):
        number = tup["number"]
        if number == 2:
            pdb.set_trace()
        doubled = 2 * number
        self.emit((doubled,))

class Prints(Bolt):
    def execute(self, tup):
        print("got", tup["number"], flush=True)

builder = TopologyBuilder("debugged")
builder.set_spout("numbers", ScriptedSpout("number", [(1,), (2,), (3,)]))
builder.set_bolt("debugged", Debugged()).shuffle_grouping("numbers")
builder.set_bolt("prints", Prints()).shuffle_grouping("debugged")
with LocalCluster(simulated_time=True) as cluster:
    cluster.submit(builder.build())
    cluster.advance(60)
    print("acked", cluster.status("debugged").components["numbers"].acked)
"""


def debug(tmp_path: Path, *typed: str) -> tuple[list[str], str]:
    """The output of the program and the debugger for these commands, and its stderr."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM, encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, str(program)],
        input="\n".join(typed) + "\n",
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines(), done.stderr


@pytest.mark.slow
def test_pdb_stops_shows_steps_and_goes_on(tmp_path: Path) -> None:
    lines, errors = debug(tmp_path, "p 'value', number, tup.values", "n", "n", "p 'twice', doubled", "w", "c")
    text = "\n".join(lines)
    assert "('value', 2, (2,))" in text and "('twice', 4)" in text
    assert "-> doubled = 2 * number" in text and "-> self.emit((doubled,))" in text
    assert f"{tmp_path / 'program.py'}(15)execute()" in text
    assert re.findall(r"(?:got|acked) \d+", text) == ["got 2", "got 4", "got 6", "acked 3"]
    assert not errors


@pytest.mark.slow
def test_pdb_may_change_a_variable_and_step_out_of_the_call(tmp_path: Path) -> None:
    lines, _ = debug(tmp_path, "number = 21", "r", "c", "c", "c")
    text = "\n".join(lines)
    assert "--Return--" in text and "execute()->None" in text
    assert "got 42" in text and "got 6" in text and "acked 3" in text
