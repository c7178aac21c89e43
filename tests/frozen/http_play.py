"""A cluster that gets all requests over HTTP, in the same order each time: its answers, and its refusals of mistakes.

A current Nimbus over a store in memory, with a simulated supervisor; Python's own client makes the requests.
Must not know: the earlier answers.
"""

from __future__ import annotations

import hashlib
import http.client
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from tests.frozen.current_http import Cluster, Daemon, Supervisor, new_store, put_garbage, submission
from tests.frozen.frozen_data import DATA
from tests.frozen.http_requests import REFUSED, REPORTED

#: An archive with a module in it, as packed by `squall submit`.
CODE: Final = DATA / "code.tar.gz"
Answer = dict[str, Any]


class Play:
    """One cluster, and the answers so far by name."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = new_store()
        self.cluster = Cluster(self.store, folder)
        self.nimbus: Daemon = self.cluster.start_leader()
        self.supervisor = Supervisor(self.store, self.nimbus, resources={"cpus": 2, "memory_bytes": 1.5})
        self.answers: dict[str, Answer] = {}

    def ask(
        self, name: str, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> Any:
        """Make a request and keep the answer; return its body. `headers` None: the operators' token."""
        shown = {"Authorization": f"Bearer {self.nimbus.token}"} if headers is None else dict(headers)
        data = body if isinstance(body, (bytes, type(None))) else json.dumps(body).encode()
        answer = asked_of(self.nimbus.url, method, path, data, shown)
        assert name not in self.answers, name
        self.answers[name] = {**answer, "asked": (method, path.partition("?")[0])}
        return answer["body"]

    def get_all(self, when: str, name: str = "words") -> None:
        """All read requests for a topology, and for the cluster."""
        for what in (
            "",
            "/workers",
            "/errors",
            "/configuration",
            "/counters",
            "/components/lines",
            "/components/count",
        ):
            self.ask(f"{when}: topology{what}", "GET", f"/api/v1/topologies/{name}{what}")
        self.ask(f"{when}: topologies", "GET", "/api/v1/topologies")
        self.ask(f"{when}: supervisors", "GET", "/api/v1/supervisors")


def asked_of(url: str, method: str, path: str, data: bytes | None, headers: Mapping[str, str]) -> Answer:
    """One request, and its answer as values."""
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=30)
    try:
        connection.request(method, path, data, dict(headers))
        response = connection.getresponse()
        body = response.read()
        kind = response.getheader("content-type", "")
        told: Any = body.decode("utf-8", "replace")
        if kind == "application/json" and body:
            told = json.loads(body)
        elif kind == "application/octet-stream":
            told = {"sha256": hashlib.sha256(body).hexdigest()}
        kept = {
            name: response.getheader(name, "")
            for name in KEPT_HEADERS
            if response.getheader(name) is not None
        }
        return {"status": response.status, "headers": {"content-type": kind, **kept}, "body": told}
    finally:
        connection.close()


KEPT_HEADERS: Final = ("www-authenticate", "allow", "location", "retry-after")


def played(folder: Path) -> dict[str, Answer]:
    """All answers of one play, unchanged."""
    play = Play(folder)
    try:
        for part in PARTS:
            part(play)
        names = {play.nimbus.url: "<url>", **play.cluster.names()}
        return {name: {**answer, "names": names} for name, answer in play.answers.items()}
    finally:
        play.cluster.stop()


def nothing_runs(play: Play) -> None:
    """A cluster without topologies."""
    for path in ("cluster", "supervisors", "configuration", "topologies"):
        play.ask(f"at first: {path}", "GET", f"/api/v1/{path}")
    play.ask("at first: health", "GET", "/health", headers={})
    play.ask("at first: metrics", "GET", "/metrics")
    play.ask("openapi", "GET", "/api/v1/openapi.json", headers={})


def files(play: Play) -> None:
    """A file of a topology."""
    data = CODE.read_bytes()
    name = hashlib.sha256(data).hexdigest()
    path = f"/api/v1/files/{name}"
    play.ask("a file that is not there", "HEAD", path)
    play.ask("a file is sent", "PUT", path, data)
    play.ask("a file is sent again", "PUT", path, data)
    play.ask("a file that is there", "HEAD", path)
    play.ask("a file", "GET", path)
    play.ask("another file", "PUT", path[:-1] + ("0" if path[-1] != "0" else "1"), data)


def runs(play: Play) -> None:
    """A topology that runs, counts, and fails now and then."""
    conf = {"db.password": "swordfish", "greeting": "hello", "topology.workers": 1}
    body = submission(conf=conf, submission="the first")
    play.ask("submitted", "POST", "/api/v1/topologies", body)
    play.ask("submitted again", "POST", "/api/v1/topologies", body)
    play.supervisor.assignment()
    play.get_all("placed")
    play.supervisor.say(note="it prepares", waits=True)
    play.ask("waiting: topologies", "GET", "/api/v1/topologies")
    play.supervisor.say(note="it died")
    play.supervisor.say()
    play.supervisor.count()
    play.get_all("running")
    play.ask("running: configuration", "GET", "/api/v1/topologies/words/configuration")
    play.ask("running: cluster", "GET", "/api/v1/cluster")
    play.ask("running: errors of a component", "GET", "/api/v1/topologies/words/errors?component=lines")
    play.ask("running: metrics", "GET", "/metrics")
    play.ask("running: log", "GET", "/api/v1/topologies/words/workers/w1/log")


def refusals(play: Play) -> None:
    """Mistakes, while a topology runs."""
    for name, (method, path, body, headers) in REFUSED.items():
        play.ask(f"refused: {name}", method, path, body, headers)


def reports(play: Play) -> None:
    """The reports of a supervisor, valid and invalid."""
    header = play.supervisor.header()
    for name, body in REPORTED.items():
        play.ask(f"reported: {name}", "POST", "/api/v1/supervisors/s1/reports", body, header)
    play.ask("reported: of another one", "POST", "/api/v1/supervisors/s2/reports", {"reports": []}, header)
    play.ask("reported: and asked", "GET", "/api/v1/topologies", None, header)


def changes(play: Play) -> None:
    """Commands that change a topology."""
    path = "/api/v1/topologies/words"
    play.ask("deactivated", "POST", f"{path}/deactivate")
    play.ask("deactivated: topology", "GET", path)
    play.ask("activated", "POST", f"{path}/activate", {})
    play.ask("drained", "POST", "/api/v1/supervisors/s1/drain")
    play.ask("drained: supervisors", "GET", "/api/v1/supervisors")
    play.ask("undrained", "POST", "/api/v1/supervisors/s1/undrain")
    body = {"parallelism": {"count": 3}, "workers": 2, "wait_secs": 600}
    play.ask("rebalanced", "POST", f"{path}/rebalance", body)
    play.get_all("rebalancing")
    play.supervisor.say(drained=True)
    play.supervisor.wait_for("words", "ACTIVE")
    play.supervisor.say()
    play.get_all("after the rebalance")


def replaced(play: Play) -> None:
    """A version that takes over a name."""
    code = hashlib.sha256(CODE.read_bytes()).hexdigest()
    body = submission(submission="the second", replace=True, wait_secs=600, files={"code": code})
    body["reset_options"] = True  # then, a new version kept nothing of what operators had set
    play.ask("replaced", "POST", "/api/v1/topologies", body)
    play.get_all("replacing")
    play.supervisor.say(drained=True)
    play.supervisor.say(stopped=True)
    play.supervisor.wait_for("words", "ACTIVE")
    play.get_all("on trial")
    play.ask("on trial: rebalance", "POST", "/api/v1/topologies/words/rebalance", {})


def damaged(play: Play) -> None:
    """An unreadable record."""
    put_garbage(play.store, "broken")
    play.ask("damaged: topologies", "GET", "/api/v1/topologies")
    play.ask("damaged: topology", "GET", "/api/v1/topologies/broken")
    play.ask("damaged: activate", "POST", "/api/v1/topologies/broken/activate")
    play.ask("damaged: kill", "DELETE", "/api/v1/topologies/broken")


def failed(play: Play) -> None:
    """A topology that fails."""
    play.supervisor.say(crash="boom")
    play.supervisor.wait_for("words", "FAILED")
    play.get_all("failed")
    play.ask("failed: activate", "POST", "/api/v1/topologies/words/activate")
    play.ask("killed", "DELETE", "/api/v1/topologies/words?wait_secs=0")


def standby(play: Play) -> None:
    """A Nimbus that does not lead."""
    leader = play.nimbus
    play.nimbus = play.cluster.start_standby()
    play.ask("standby: health", "GET", "/health", headers={})
    play.ask("standby: topologies", "GET", "/api/v1/topologies")
    play.ask("standby: activate", "POST", "/api/v1/topologies/words/activate?x=%2F")
    play.ask("standby: metrics", "GET", "/metrics")
    play.nimbus = leader


PARTS: Final[tuple[Callable[[Play], None], ...]] = (
    nothing_runs, files, runs, refusals, reports, changes, replaced, damaged, failed, standby,
)  # fmt: skip
