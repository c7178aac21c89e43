"""Each of four sick bolts is named, with component and task, by one command on a cluster of `squall dev`."""

from __future__ import annotations

import re
import shutil
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.squall_cli.test_cluster_dev import Dev, dev
from tests.zookeeper_servers import eventually

FILE = Path(__file__).parents[1] / "sick_bolts" / "sick_bolts.py"
KINDS = ("slow", "hung", "leaking", "raising")


def submit(cluster: Dev, kind: str) -> None:
    done = cluster.run("submit", str(cluster.home / FILE.name), "--", kind)
    assert done.returncode == 0, done.stderr


def sick_rows(cluster: Dev, kind: str) -> list[dict[str, str]]:
    """The rows of `squall status --tasks` for the tasks of the sick bolt, by column."""
    shown = cluster.run("status", f"sick-{kind}", "--tasks").stdout
    table = re.search(r"^LOAD OF.*?(?=\n\n|\Z)", shown, re.M | re.S)
    if table is None:
        return []
    head, *rows = table.group().splitlines()
    ends = [(each.group(), each.end()) for each in re.finditer(r"\S+(?: \S+)*", head)]
    found = []
    for row in rows:
        begin, cells = 0, {}
        for name, end in ends:
            stop = end if name != "LOAD OF" else row.index("  ")
            cells[name], begin = row[begin:stop].strip(), stop
        found.append(cells)
    return [each for each in found if each["LOAD OF"].startswith("sick ")]


@pytest.mark.slow
def test_one_command_names_each_sick_bolt_with_its_task(tmp_path: Path) -> None:
    shutil.copy(FILE, tmp_path)
    with dev(tmp_path) as cluster:
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda kind: submit(cluster, kind), KINDS))

        def names_the_slow_one() -> bool:
            rows = sick_rows(cluster, "slow")
            slow = [each for each in rows if re.fullmatch(r"[34]\d\dms", each["EXEC p99"])]
            return len(rows) == 2 and [int(each["BUSY"].rstrip("%")) >= 30 for each in slow] == [True]

        def names_the_leaking_one() -> bool:
            rows = sick_rows(cluster, "leaking")
            return sorted(int(each["GREW"].rstrip("M") or 0) >= 10 for each in rows) == [False, True]

        def names_the_hung_one() -> bool:
            shown = cluster.run("status", "sick-hung").stdout
            told = r"sick\[\d\] has been in one call for .* s, at sick_bolts.py:\d+, in execute, with <Tuple "
            return bool(re.search(told, shown))

        def names_the_raising_one() -> bool:
            shown = cluster.run("errors", "sick-raising").stdout
            return bool(re.search(r"sick\[\d\].*no rate for key-5", shown, re.S))

        eventually(names_the_leaking_one)
        eventually(names_the_slow_one)
        eventually(names_the_raising_one)
        eventually(names_the_hung_one)
        cluster.process.signal(signal.SIGINT)
        cluster.process.wait_for("Ctrl-C: ending")
        cluster.process.signal(signal.SIGINT)
        assert cluster.process.end() == 0
