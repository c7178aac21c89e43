"""Hosts with a file system of their own, and hosts that share one: each supervisor's HTTP server has its own mounts, by the
kernel. `test_shared_folders_over_http.py` needs no root.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from nimbus.daemon import NimbusDaemon
from squall.cluster.memory import InMemoryStore
from squall.http.client import Client, Refused
from tests.nimbus_http.nimbuses import PlayedSupervisor, submission, words

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
#: Run on each host: the server of a supervisor, which tells its port, and ends with its standard input.
SERVER = """
import sys
from pathlib import Path
from supervisor.directories import Directories
from supervisor.folder_probes import FolderProbes
from supervisor.log_server import LogServer

folders, probes = Directories(Path(sys.argv[1])), FolderProbes()
server = LogServer("127.0.0.1", 0, folders, lambda _: None, lambda _: True, probes=probes)
server.start()
print(server.port, flush=True)
sys.stdin.read()
server.stop()
"""
UNSHARED = ["unshare", "--mount", "--propagation", "private"]


@pytest.fixture(autouse=True)
def own_mounts(tmp_path: Path) -> None:
    """Processes here may have mounts of their own."""
    if shutil.which("unshare") is None or os.geteuid() != 0:
        pytest.skip("needs root and unshare")
    command = [*UNSHARED, "mount", "-t", "tmpfs", "none", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode:
        why = f"this machine allows no mounts of one's own: {done.stderr.decode().strip()}"
        pytest.fail(why) if os.environ.get("CI") == "true" else pytest.skip(why)


@contextmanager
def host(
    name: str, mount: list[str], folder: Path, store: InMemoryStore, leader: NimbusDaemon
) -> Iterator[None]:
    """A host with a mount that no other process sees."""
    in_it = f'mount "$@" && exec "{sys.executable}" -c "$SERVER" "{folder / name}"'
    server = subprocess.Popen(
        [*UNSHARED, "sh", "-c", in_it, "sh", *mount],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "SERVER": SERVER, "PYTHONPATH": str(ROOT)},
    )
    with server:
        assert server.stdin and server.stdout
        try:
            port = int(server.stdout.readline())
            PlayedSupervisor(store, leader, name, url=f"http://127.0.0.1:{port}")
            yield
        finally:
            server.stdin.close()


def test_hosts_that_share_a_mount_run_the_topology_and_one_with_a_mount_of_its_own_refuses_it(
    tmp_path: Path, store: InMemoryStore, leader: NimbusDaemon, client: Client
) -> None:
    (shared := tmp_path / "server").mkdir()
    (mounted := tmp_path / "mounted").mkdir()
    body = submission(words(conf={"topology.workers": 2, "topology.state.path": f"file://{mounted}/state"}))
    same, own = ["--bind", str(shared), str(mounted)], ["-t", "tmpfs", "none", str(mounted)]
    with ExitStack() as hosts:
        for name in ("s1", "s2"):
            hosts.enter_context(host(name, same, tmp_path, store, leader))
        client.post("checks", body)
        hosts.enter_context(host("s3", own, tmp_path, store, leader))
        with pytest.raises(Refused, match=r"is seen on host.* host-s1.*, and not on host host-s3") as refused:
            client.post("checks", body)
        assert refused.value.status == 422
    assert [*shared.iterdir()] == [*mounted.iterdir()] == [], "no probe is left"
