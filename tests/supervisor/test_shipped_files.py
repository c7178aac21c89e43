"""The files of a topology reach its workers: its code first on their path, its packages in their Python;
failures are reported.
"""

from __future__ import annotations

import http.client
import json
from pathlib import Path

import pytest

from supervisor.daemon import SupervisorDaemon
from supervisor.environments import LOG
from tests.supervisor.programs import runs
from tests.supervisor.supervisor_daemons import Cluster
from tests.supervisor.wheels import archive, make_wheel, sha256


def brings(cluster: Cluster, data: bytes) -> str:
    """Put a file where Nimbus keeps its files."""
    cluster.nimbus.files[sha256(data)] = data
    return sha256(data)


def environ_of(pid: int) -> dict[str, str]:
    entries = Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")
    return dict(entry.split("=", 1) for entry in entries if "=" in entry)


def build_log(cluster: Cluster, daemon: SupervisorDaemon, topology_id: str) -> tuple[int, str]:
    """The build log, as Nimbus requests it."""
    connection = http.client.HTTPConnection(daemon.url.partition("//")[2], timeout=30)
    try:
        header = {"Authorization": cluster.nimbus.header_for(daemon.id)}
        connection.request("GET", f"/logs/{topology_id}/w1?file=build&offset=-20000", headers=header)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read()).get("text", "")
    finally:
        connection.close()


def test_code_comes_first_on_the_path_of_workers_and_is_removed_with_the_last_topology(
    cluster: Cluster, tmp_path: Path
) -> None:
    cluster.start()
    code = brings(cluster, archive(tmp_path, {"mine.py": b"x = 1\n"}))
    cluster.submit("words", workers=1, files={"code": code})
    cluster.until(lambda: cluster.opened("w1"))
    (pid,) = cluster.pids().values()
    folder = cluster.tmp / "s1" / "code" / code
    assert environ_of(pid)["PYTHONPATH"].split(":")[0] == str(folder)
    assert (folder / "mine.py").exists()
    cluster.submit("more", workers=1, files={"code": code})
    cluster.until(lambda: cluster.opened("w1", name="more"))
    cluster.kill("words")
    cluster.until(lambda: not runs(pid))
    cluster.until(lambda: cluster.registry.topologies.get("words") is None)
    assert folder.exists()
    cluster.kill("more")
    cluster.until(lambda: not folder.exists())


def test_code_that_nimbus_does_not_have_is_reported_and_waited_for(cluster: Cluster, tmp_path: Path) -> None:
    cluster.start()
    data = archive(tmp_path, {"mine.py": b"x = 1\n"})
    cluster.submit(workers=1, files={"code": sha256(data)})
    cluster.until(lambda: any("its code cannot be fetched" in note for note in cluster.nimbus.notes()))
    brings(cluster, data)
    cluster.until(lambda: cluster.opened("w1"))


@pytest.mark.slow
def test_workers_run_on_the_python_of_their_environment(cluster: Cluster, tmp_path: Path) -> None:
    daemon = cluster.start()
    wheels = brings(cluster, archive(tmp_path, {(w := make_wheel(tmp_path, "tiny_words")).name: w}))
    files = {"requirements": brings(cluster, b"tiny_words\n"), "wheels": wheels}
    record = cluster.submit(workers=1, files=files)
    cluster.until(lambda: cluster.opened("w1"))
    (pid,) = cluster.pids().values()
    python = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0].decode()
    assert python.startswith(str(cluster.tmp / "s1" / "environments"))
    assert environ_of(pid)["PYTHONPATH"] == ""
    status, log = build_log(cluster, daemon, record.id)
    assert status == 200 and "tiny_words" in log
    cluster.kill()
    cluster.until(lambda: not list((cluster.tmp / "s1" / "environments").iterdir()))


@pytest.mark.slow
def test_an_environment_that_cannot_be_built_is_reported_with_its_log_and_delays_no_other_topology(
    cluster: Cluster, tmp_path: Path
) -> None:
    daemon = cluster.start()
    wheels = brings(cluster, archive(tmp_path, {(w := make_wheel(tmp_path, "tiny_words")).name: w}))
    files = {"requirements": brings(cluster, b"tiny_words==9\n"), "wheels": wheels}
    record = cluster.submit(workers=1, files=files)
    cluster.submit("others", workers=1)
    cluster.until(lambda: cluster.opened("w1", name="others"))
    cluster.until(lambda: any("waits" not in note for note in cluster.nimbus.notes()))
    note = next(note for note in cluster.nimbus.notes() if "waits" not in note)
    sentence, *output = note.splitlines()
    assert sentence.startswith(
        "worker w1 of topology 'words' cannot be started: its environment cannot be built"
    )
    assert sentence.endswith("; it is tried again in 1 s") and output
    assert "tiny_words==9" in note
    status, log = build_log(cluster, daemon, record.id)
    assert status == 200 and "tiny_words==9" in log
    cluster.kill("words")
    cluster.until(lambda: cluster.registry.topologies.get("words") is None)
    directory = cluster.tmp / "s1" / "environments"
    cluster.until(lambda: not list(directory.rglob(LOG)), "nothing is left of it")
    assert cluster.opened("w1", name="others")
