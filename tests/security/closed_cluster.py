"""A cluster of daemons with all protections: HTTPS, TLS to ZooKeeper, its credentials, a token; and all of its secrets by name.

Must not know: which secret is searched where.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from traceback import format_exception

from click.testing import CliRunner
from kazoo.client import KazooClient

from squall.http.client import Client
from squall.security import zookeeper_tls
from squall.security.private_files import write_private
from squall_cli.main import squall
from tests.certificates import make_certificates
from tests.cluster_faults.daemon_processes import Daemons
from tests.zookeeper_servers import PATIENCE_SECS, ZooKeeperServer, client_files

USER = "squall"
TOPOLOGY = Path(__file__).with_name("guarded_topology.py")


class ClosedCluster(Daemons):
    """Two Nimbuses and two supervisors. `secrets`: values that must not be visible, by their meaning."""

    def __init__(self, folder: Path, zookeeper: ZooKeeperServer) -> None:
        made = {name: f"c4n4ry-{secrets.token_hex(8)}" for name in ("zookeeper", "token", "conf")}
        private = folder / "private"
        self.files = {name: private / name for name in made}
        for name, secret in made.items():
            write_private(self.files[name], f"{USER}:{secret}" if name == "zookeeper" else secret)
        tls = make_certificates(folder / "tls")
        self.files_of_zookeeper = client_files(zookeeper)
        keys = {"tls": tls.key, "tls to zookeeper": self.files_of_zookeeper.key}
        self.secrets = {**made, **{name: Path(key).read_text().splitlines()[1] for name, key in keys.items()}}
        site = {
            "squall.zookeeper.credentials.file": str(self.files["zookeeper"]),
            "squall.token.file": str(self.files["token"]),
            "squall.tls.certificate": tls.certificate,
            "squall.tls.key": tls.key,
            "squall.tls.ca": tls.ca,
            zookeeper_tls.CA: self.files_of_zookeeper.ca,
            zookeeper_tls.CERTIFICATE: self.files_of_zookeeper.certificate,
            zookeeper_tls.KEY: self.files_of_zookeeper.key,
        }
        super().__init__(folder, zookeeper.servers, nimbuses=2, supervisors=2, site=site)
        self.zookeeper = zookeeper.servers
        self.urls = [url.replace("http://", "https://") for url in self.urls]
        self.client = Client(self.urls, self._authorization, tls.ca, timeout=20.0)
        self.ca = tls.ca

    def __enter__(self) -> ClosedCluster:
        super().__enter__()
        return self

    def end(self) -> None:
        """End all daemons, workers and connections."""
        super().end()
        self.client.close()

    def run_topology(self) -> None:
        """Submit the topology and wait until its workers have made errors."""
        done = self.command("submit", str(TOPOLOGY), "--wait", "--", str(self.files["conf"]))
        assert done[0] == 0, done
        self.wait_for(lambda: self.client.get("topologies/guarded/errors")["errors"], "errors")
        for number, keys in enumerate(sorted(self.folder.rglob("keys.json"))):
            self.secrets[f"link key {number}"] = json.loads(keys.read_text())["secret"]
        for key in sorted(self.folder.rglob("key")):
            self.secrets[f"key of {key.parent.name}"] = key.read_text().strip()

    def command(self, *arguments: str) -> tuple[int, str]:
        """The exit status of a command, and all its output."""
        name, *rest = arguments
        done = self.squall(name, "--config", str(self.site_file), *rest)
        return done.returncode, done.stdout + done.stderr

    def command_here(self, *arguments: str) -> tuple[int, str]:
        """The same by a command in this process, which saves its start; with the traceback of an unexpected error."""
        name, *rest = arguments
        others: dict[str, str | None] = {key: None for key in os.environ if key.startswith("SQUALL_")}
        variables = {**others, **self.environment, "SQUALL_NIMBUS": ",".join(self.urls)}
        done = CliRunner().invoke(squall, [name, "--config", str(self.site_file), *rest], env=variables)
        if done.exception is None or isinstance(done.exception, SystemExit):
            return done.exit_code, done.output
        return done.exit_code, done.output + "".join(format_exception(done.exception))

    @contextmanager
    def in_zookeeper(self, password: str | None) -> Iterator[KazooClient]:
        """A client of ZooKeeper with a daemon's certificate, and with this password, or with none."""
        auth = [] if password is None else [("digest", f"{USER}:{password}")]
        ours = self.files_of_zookeeper
        tls = {"use_ssl": True, "ca": ours.ca, "certfile": ours.certificate, "keyfile": ours.key}
        client = KazooClient(self.zookeeper, auth_data=auth, **tls)
        client.start(PATIENCE_SECS)
        try:
            yield client
        finally:
            client.stop()
            client.close()

    def nodes(self, client: KazooClient) -> list[str]:
        """The paths of all nodes of this cluster."""
        found, left = [], [self.root]
        while left:
            path = left.pop()
            found.append(path)
            left += [f"{path}/{child}" for child in client.get_children(path)]
        return found
