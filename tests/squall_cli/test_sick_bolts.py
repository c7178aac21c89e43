"""Each sick bolt is named, with component and task, by one command on a cluster of `squall dev`, within the promised time."""

from __future__ import annotations

import re
import shutil
import signal
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.repository.promised_bounds import allowed
from tests.squall_cli.test_cluster_dev import Dev, dev
from tests.zookeeper_servers import eventually

FILE = Path(__file__).parents[1] / "sick_bolts" / "sick_bolts.py"


def submit(cluster: Dev, kind: str) -> float:
    """Submit a sick bolt; return when it began to work, or its worker was ordered."""
    # Of a bolt whose `prepare` hangs no first ack can be waited for.
    wait = () if kind == "starting" else ("--wait",)
    done = cluster.run("submit", str(cluster.home / FILE.name), *wait, "--", kind)
    assert done.returncode == 0, done.stderr
    return time.monotonic()


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


def names_the_slow_one(cluster: Dev) -> bool:
    rows = sick_rows(cluster, "slow")
    slow = [each for each in rows if re.fullmatch(r"[34]\d\dms", each["EXEC p99"])]
    return len(rows) == 2 and [int(each["BUSY"].rstrip("%")) >= 30 for each in slow] == [True]


def names_the_leaking_one(cluster: Dev) -> bool:
    rows = sick_rows(cluster, "leaking")
    return sorted(int(each["GREW"].rstrip("M") or 0) >= 10 for each in rows) == [False, True]


def names_the_raising_one(cluster: Dev) -> bool:
    shown = cluster.run("errors", "sick-raising").stdout
    return bool(re.search(r"sick\[\d\].*no rate for key-5", shown, re.S))


def names_the_hung_one(cluster: Dev) -> bool:
    shown = cluster.run("status", "sick-hung").stdout
    told = r"sick\[\d\] has been in one call of execute\(\) for .* s, at sick_bolts.py:\d+, in execute, with <Tuple "
    return bool(re.search(told, shown))


def names_those_without_a_tuple(cluster: Dev) -> bool:
    shown = cluster.run("status", "sick-starting").stdout
    start = r"sick\[\d\] has been in one call of prepare\(\) for .* s, at sick_bolts.py:\d+, in prepare"
    tick = r"ticking\[\d\] has been in one call of tick\(\) for .* s, at sick_bolts.py:\d+, in look_up"
    return bool(re.search(start, shown) and re.search(tick, shown))


def reports_each_hung_call(cluster: Dev) -> bool:
    shown = cluster.run("errors", "sick-starting").stdout + cluster.run("errors", "sick-hung").stdout
    told = (r"sick\[\d\] .*: prepare", r"ticking\[\d\] .*: tick", r"sick\[\d\] .*: execute")
    return all(re.search(rf"{each}\(\) has not returned for 5 s", shown) for each in told)


#: What names each sick bolt.
NAMED: Mapping[str, Callable[[Dev], bool]] = {
    "raising": names_the_raising_one,
    "leaking": names_the_leaking_one,
    "slow": names_the_slow_one,
    "starting": names_those_without_a_tuple,
    "hung": names_the_hung_one,
}


@pytest.mark.slow
def test_one_command_names_each_sick_bolt_with_its_task_in_time(tmp_path: Path) -> None:
    shutil.copy(FILE, tmp_path)
    with dev(tmp_path, "--slots", str(len(NAMED))) as cluster:
        with ThreadPoolExecutor(len(NAMED)) as pool:
            began = dict(zip(NAMED, pool.map(lambda kind: submit(cluster, kind), NAMED), strict=True))
        for kind, named in NAMED.items():
            eventually(lambda: named(cluster), every=0.5)  # noqa: B023
            took = time.monotonic() - began[kind]
            assert took <= allowed("sick bolt named"), f"{kind} took {took:.1f} s"
        eventually(
            lambda: reports_each_hung_call(cluster), every=0.5
        )  # a report comes with the next heartbeat
        cluster.process.signal(signal.SIGINT)
        cluster.process.wait_for("Ctrl-C: ending")
        cluster.process.signal(signal.SIGINT)
        assert cluster.process.end() == 0
