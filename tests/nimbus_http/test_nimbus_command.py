"""`squall nimbus` as processes over a real ZooKeeper: one leads, another one after it, and each ends when it is asked to."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from squall.http.client import Client, Refused, Unreachable
from squall.security.private_files import write_private
from squall.security.tokens import bearer, kept_token
from tests.nimbus_http.nimbuses import CAP_SECS, submission, until
from tests.zookeeper_servers import ZooKeeperServer

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
CREDENTIALS = "SQUALL_SQUALL_ZOOKEEPER_CREDENTIALS_FILE"


class Processes:
    """`squall nimbus` processes of one user, each with its log."""

    def __init__(self, folder: Path, servers: str, root: str, session_secs: int = 4) -> None:
        self.folder = folder
        self.servers = servers
        self.environ = {
            **{name: value for name, value in os.environ.items() if not name.startswith("SQUALL")},
            "PYTHONPATH": str(ROOT),
            "HOME": str(folder),
            "XDG_STATE_HOME": str(folder / "xdg"),
            "SQUALL_SQUALL_ZOOKEEPER_ROOT": root,
            "SQUALL_SQUALL_ZOOKEEPER_SESSION_TIMEOUT_SECS": str(session_secs),
        }
        self.environ[CREDENTIALS] = str(folder / "credentials")
        write_private(folder / "credentials", "squall:secret")
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self.starts: Counter[str] = Counter()

    def start(self, name: str, *options: str) -> subprocess.Popen[bytes]:
        with self.log_file(name).open("ab") as log:
            process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "squall_cli", "nimbus", "--listen", "127.0.0.1:0"),
                    *("--zookeeper", self.servers, "--state", str(self.folder / name), *options),
                ],
                cwd=self.folder,
                env=self.environ,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self.running[name] = process
        self.starts[name] += 1
        return process

    def log_file(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def log(self, name: str) -> str:
        return self.log_file(name).read_text()

    def url(self, name: str) -> str:
        """The address at which it answers, from its log."""

        def found() -> str | None:
            urls = re.findall(r"answers at (http://\S+);", self.log(name))
            return str(urls[-1]) if len(urls) == self.starts[name] else None

        return str(until(found, f"the address of {name}"))

    def client(self, name: str) -> Client:
        """An operator's client, whose token is found as the command finds it."""
        url = self.url(name)
        token = until(lambda: kept_token(url, self.environ), "the token")
        return Client([url], lambda _: bearer(token))

    def leads(self, client: Client) -> bool:
        return bool(self.health(client).get("leading"))

    def is_ok(self, client: Client) -> bool:
        return self.health(client).get("status") == "ok"

    def health(self, client: Client) -> dict[str, Any]:
        """What a Nimbus says of itself; nothing while it starts."""
        try:
            found: dict[str, Any] = client.get("/health")
            return found
        except (Refused, Unreachable):
            return {}

    def end(self) -> None:
        for process in self.running.values():
            if process.poll() is None:
                process.kill()
            process.wait(CAP_SECS)


@pytest.fixture
def processes(tmp_path: Path, zookeeper: ZooKeeperServer, zookeeper_root: str) -> Iterator[Processes]:
    found = Processes(tmp_path, zookeeper.servers, zookeeper_root)
    yield found
    found.end()


def test_the_leader_is_killed_and_the_standby_goes_on(processes: Processes) -> None:
    processes.start("first")
    first = processes.client("first")
    until(lambda: processes.leads(first), "the first lead")
    processes.start("second")
    second = processes.client("second")
    until(lambda: processes.is_ok(second), "the standby")
    body = submission()
    submitted = second.post("topologies", body)  # redirected
    assert first.get("cluster")["store"] == {"kind": "zookeeper", "connected": True}
    assert [each["name"] for each in second.get("topologies")["topologies"]] == ["words"]
    killed = processes.running["first"]
    killed.kill()
    killed.wait(CAP_SECS)
    until(lambda: processes.leads(second), "the second lead")
    assert second.post("topologies", body) == submitted, "repeated, it is the same"
    # The first one comes back as a standby.
    processes.start("first")
    again = processes.client("first")
    until(lambda: processes.is_ok(again), "the first one again")
    assert not processes.leads(again)
    assert again.delete("topologies/words", wait_secs=0)["state"] == "KILLED"
    until(lambda: second.get("topologies") == {"topologies": []}, "the end of the topology")
    for client in (first, second, again):
        client.close()


@pytest.fixture(scope="module")
def lasting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    """A ZooKeeper whose sessions may last longer than any wait here."""
    folder = tmp_path_factory.mktemp("lasting")
    with ZooKeeperServer(folder, settings={"maxSessionTimeout": "300000"}) as server:
        yield server


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_in_order_and_another_leads_at_once(
    tmp_path: Path, sent: signal.Signals, lasting: ZooKeeperServer, zookeeper_root: str
) -> None:
    # The next leader has not waited for the end of a session.
    processes = Processes(tmp_path, lasting.servers, zookeeper_root, session_secs=300)
    try:
        processes.start("first")
        first = processes.client("first")
        until(lambda: processes.leads(first), "the lead")
        processes.start("second")
        second = processes.client("second")
        until(lambda: processes.is_ok(second), "the standby")
        process = processes.running["first"]
        process.send_signal(sent)
        assert process.wait(CAP_SECS) == 0
        until(lambda: processes.leads(second), "the next lead")
        first.close()
        second.close()
    finally:
        processes.end()
    assert "Traceback" not in processes.log("first")
    lines = processes.log("first").splitlines()
    assert all(re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} [A-Z]+ ", line) for line in lines)


def test_a_second_one_on_the_same_state_directory_ends_with_one_sentence(processes: Processes) -> None:
    processes.start("first")
    processes.url("first")
    (processes.folder / "again").symlink_to(processes.folder / "first")
    assert processes.start("again").wait(CAP_SECS) == 1
    [line] = [line for line in processes.log("again").splitlines() if line.startswith("squall nimbus")]
    assert "give this Nimbus its own with --state" in line and "Traceback" not in processes.log("again")


def test_a_bind_to_other_machines_without_a_certificate_is_refused(processes: Processes) -> None:
    assert processes.start("first", "--listen", "0.0.0.0:0").wait(CAP_SECS) == 1
    assert "squall.tls.certificate" in processes.log("first")
    assert "Traceback" not in processes.log("first")


def test_a_nimbus_started_before_zookeeper_leads_later_or_ends_with_the_reason(tmp_path: Path) -> None:
    server = ZooKeeperServer(tmp_path / "zookeeper")
    processes = Processes(tmp_path, server.servers, "/squall")
    try:
        file = processes.environ.pop(CREDENTIALS)
        processes.start("first", "--insecure-zookeeper")
        until(lambda: "Waiting for it" in processes.log("first"), "the word that it waits")
        assert f"no ZooKeeper answered at {server.servers}" in processes.log("first")
        stranger = Client([processes.url("first")])
        with pytest.raises(Refused) as error:
            stranger.get("/health")
        assert error.value.status == 503
        server.start()
        until(lambda: processes.leads(stranger), "the lead")
        stranger.close()
        assert "Traceback" not in processes.log("first")
        # Its records are open to all; the next Nimbus has credentials, and is refused once ZooKeeper is back.
        server.kill()
        processes.end()
        processes.environ[CREDENTIALS] = file
        late = processes.start("late")
        until(lambda: "Waiting for it" in processes.log("late"), "the word that it waits")
        server.start()
        assert late.wait(CAP_SECS) == 1
        assert "is open to everybody" in processes.log("late").splitlines()[-1]
        assert "Traceback" not in processes.log("late")
    finally:
        processes.end()
        server.kill()


def test_a_nimbus_that_waits_for_zookeeper_ends_when_asked_to(processes: Processes) -> None:
    processes.servers = "127.0.0.1:1"
    started = processes.start("first")
    until(lambda: "Waiting for it" in processes.log("first"), "the word that it waits")
    started.terminate()
    assert started.wait(CAP_SECS) == 0
    assert "Traceback" not in processes.log("first")


def test_a_frozen_zookeeper_makes_submit_unavailable_in_time(
    tmp_path: Path, lasting: ZooKeeperServer, zookeeper_root: str
) -> None:
    processes = Processes(tmp_path, lasting.servers, zookeeper_root)
    try:
        processes.start("first")
        client = processes.client("first")
        until(lambda: processes.leads(client), "the lead")
        body = submission()
        lasting.freeze()
        began = time.monotonic()
        with pytest.raises((Refused, Unreachable)) as error:
            client.post("topologies", body)
        assert isinstance(error.value, Refused) and error.value.status == 503
        assert time.monotonic() - began < 5, "within the promised time, which is tested here"
        lasting.thaw()

        def accepted() -> Any:
            """The answer to the submission, sent again as `squall submit` does; None while it is unavailable."""
            try:
                return client.post("topologies", body, repeatable=True)
            except Unreachable:
                return None
            except Refused as refused:
                assert refused.status == 503, refused
                return None

        # Whether it leads is no event to wait for: it may lead for another moment, until it notices that its session
        # has expired. ZooKeeper may also carry out the first attempt after the thaw; repeated, it is the same.
        assert until(accepted, "the accepted submission")["state"] == "ACTIVE"
        assert [each["name"] for each in client.get("topologies")["topologies"]] == ["words"]
        until(lambda: processes.leads(client), "the lead again")
        client.close()
    finally:
        lasting.thaw()
        processes.end()
