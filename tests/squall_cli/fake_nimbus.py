"""A Nimbus whose answers a test chooses, over real HTTP: enough of the API for the commands that ask a cluster.

It records requests in `asked`. `changes` are called one at a time, each before one more GET is answered: so a test
says "it drains, then it is gone" without a clock.
"""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec
from click.testing import Result

from squall.api import answers, cluster_answers
from squall.reports.event_text import sentence
from squall.reports.events import Event
from squall.status import ComponentStatus
from squall.values import Incarnation, TaskRow
from squall_cli.cluster.events import events_of

#: A command line to run against it, in words.
Squall = Callable[..., Result]


def happened(*events: Event) -> dict[str, Any]:
    """The texts of events in a status."""
    return {
        "events": msgspec.to_builtins(events),
        "notes": [sentence(event) for event in events],
        "note_times": [event.time for event in events],
    }


def outline(component: str, task: int, call: str, text: str) -> dict[str, Any]:
    """An error report as a status lists it."""
    return as_json(answers.ErrorOutline(component, task, call, text, "", 0.0, 1))


def reported(component: str, text: str, time: float, times: int) -> dict[str, Any]:
    """An error report as `errors` answers it."""
    return as_json(answers.ErrorEntry("word_count", component, 1, "execute", text, "", [], None, time, times))


def as_json(answer: object) -> dict[str, Any]:
    """An answer as JSON that tests may change."""
    return dict(msgspec.to_builtins(answer))


def component(kind: str = "bolt", **values: Any) -> dict[str, Any]:
    nothing = dict.fromkeys(("emitted", "executed", "acked", "failed", "replayed", "pending", "errors"), 0)
    return as_json(ComponentStatus(**{"kind": kind, "tasks": 1, **nothing, **values}))


def worker(name: str, host: str = "host-1", slot: int = 0, **values: Any) -> dict[str, Any]:
    tasks = [TaskRow(1, "words", 0), TaskRow(2, "count", 0)]
    entry = answers.WorkerEntry(name, f"id-of-{host}", host, slot, Incarnation(1, 0), tasks, True, "RUNNING")
    return {**as_json(entry), **values}


def topology(name: str, state: str = "ACTIVE", **values: Any) -> dict[str, Any]:
    workers = [worker(f"{name}-w1"), worker(f"{name}-w2", "host-2", tasks=[[3, "count", 1]])]
    components = {
        "words": component("spout", emitted=120_000, acked=119_000, pending=30, p50=0.002, p99=0.04),
        "count": component("bolt", tasks=2, executed=119_500, acked=119_400),
    }
    status = answers.TopologyAnswer(
        name=name, state=state, workers=[], uptime_secs=754.0, components={}, errors=[], error=None, notes=[],
        note_times=[], events=(), state_secs=754.0, error_reports=[], id=f"{name}-1", workers_wanted=2, stands_by=None,
        submitted=1_700_000_000.0, files={},
    )  # fmt: skip
    return {**as_json(status), "workers": workers, "components": components, **values}


def status_of(values: dict[str, Any]) -> answers.TopologyAnswer:
    """The status that a command reads."""
    return msgspec.convert({**values, "events": events_of(values)}, answers.TopologyAnswer)


def supervisor(host: str, **values: Any) -> dict[str, Any]:
    slot = cluster_answers.SlotEntry("word_count", "word_count-w1", 0, 2)
    versions, resources = {"squall": "0.1.0", "python": "3.11.7"}, {"cpus": 8, "memory_bytes": 16 * 2**30}
    entry = cluster_answers.SupervisorEntry(
        f"id-of-{host}", host, 4, 1, False, True, versions, resources, [slot]
    )
    return {**as_json(entry), **values}


class Refusal(Exception):
    """Its answer instead: an HTTP status, a kind, a message."""

    def __init__(self, status: int, kind: str, message: str) -> None:
        super().__init__(status, kind, message)
        self.status, self.kind, self.message = status, kind, message


class FakeNimbus:
    """Its state, which tests set freely."""

    def __init__(self) -> None:
        self.url = ""
        self.topologies: dict[str, dict[str, Any]] = {}
        self.supervisors = [supervisor("host-1"), supervisor("host-2")]
        self.errors: list[dict[str, Any]] = []
        self.logs: dict[tuple[str, str], bytes] = {}
        self.asked: list[tuple[str, str, dict[str, str], Any]] = []
        self.headers: list[dict[str, str]] = []
        self.changes: deque[Callable[[], object]] = deque()
        self.refusal: Refusal | None = None
        #: The refusals of the next commands, in order.
        self.refused_changes: list[Refusal] = []
        #: The answers to a GET of these paths, or a question about the state of a task, instead; or refusals.
        self.answers: dict[str, Any] = {}

    def put(self, *topologies: dict[str, Any]) -> None:
        self.topologies.update((each["name"], each) for each in topologies)

    def commands(self) -> list[tuple[str, str, dict[str, str], Any]]:
        """The changes that it was asked to make."""
        return [each for each in self.asked if each[0] != "GET"]

    def answer(self, method: str, path: str, query: dict[str, str], body: Any) -> Any:
        self.asked.append((method, path, query, body))
        if method == "GET" and self.changes:
            self.changes.popleft()()
        if self.refusal is not None:
            raise self.refusal
        if method != "GET" and self.refused_changes:
            raise self.refused_changes.pop(0)
        if path in self.answers and (method == "GET" or path.endswith("/state")):
            if isinstance(self.answers[path], Refusal):
                raise self.answers[path]
            return self.answers[path]
        first, *rest = path.split("/")
        names = [unquote(each) for each in rest]
        if first == "cluster":
            return self.cluster()
        if first == "supervisors":
            return self.of_supervisors(names)
        if first == "topologies" and not names:
            return {"topologies": [self.listed(each) for each in self.topologies.values()]}
        if first == "topologies":
            return self.of_topology(method, names, query)
        raise Refusal(404, "NotFound", f"there is nothing at {path}")

    def cluster(self) -> dict[str, Any]:
        nimbus = cluster_answers.NimbusEntry("n1", self.url, "host-0", True, {"squall": "0.1.0"})
        found = cluster_answers.ClusterAnswer(
            id="c1", python="3.11.7", cloudpickle="3.1", version="0.1.0", leader=cluster_answers.LeaderEntry("n1", self.url),
            nimbuses=[nimbus], supervisors=len(self.supervisors), slots=cluster_answers.SlotCounts(8, 2, 6),
            topologies=len(self.topologies), tasks=3, uptime_secs=5.0, store=cluster_answers.StoreState("memory", True),
        )  # fmt: skip
        return as_json(found)

    def of_supervisors(self, names: list[str]) -> Any:
        if not names:
            return {"supervisors": self.supervisors}
        for each in self.supervisors:
            if each["id"] == names[0]:
                each["drained"] = names[1] == "drain"
                return as_json(cluster_answers.DrainAnswer(names[0], each["drained"]))
        raise Refusal(404, "NoSuchSupervisor", f"there is no supervisor {names[0]!r}")

    def listed(self, status: dict[str, Any]) -> dict[str, Any]:
        components = status["components"].values()
        counts = ("tasks", "emitted", "acked", "failed", "pending", "errors")
        totals = {key: sum(each[key] for each in components) for key in counts}
        sizes = {"workers": len(status["workers"]), "components": len(components)}
        found = {**status, **totals, **sizes, "held_up": status.get("held_up")}
        return as_json(msgspec.convert(found, answers.TopologySummary))

    def of_topology(self, method: str, names: list[str], query: dict[str, str]) -> Any:
        name, what = names[0], names[1:]
        status = self.topologies.get(name)
        if status is None:
            raise Refusal(404, "NoSuchTopology", f"there is no topology named {name!r}")
        states = {"activate": "ACTIVE", "deactivate": "INACTIVE", "rebalance": "REBALANCING"}
        if method == "DELETE" or (what and what[0] in states):
            status["state"] = "KILLED" if method == "DELETE" else states[what[0]]
            return as_json(answers.StateAnswer(name, status["state"]))
        if not what:
            return status
        if what == ["workers"]:
            return {"workers": status["workers"]}
        if what == ["errors"]:
            wanted = query.get("component")
            return {"errors": [each for each in self.errors if wanted in (None, each["component"])]}
        if what[0] == "workers" and what[1] not in {each["worker"] for each in status["workers"]}:
            raise Refusal(404, "NotFound", f"topology {name!r} has no worker {what[1]!r}")
        if what[0] == "workers" and what[2] == "log":
            return self.log(what[1], query)
        raise Refusal(404, "NotFound", f"there is nothing at {'/'.join(names)}")

    def log(self, of: str, query: dict[str, str]) -> dict[str, Any]:
        data = self.logs.get((of, query["file"]))
        if data is None:
            raise Refusal(404, "NoSuchLog", f"{of} has written no such log yet")
        offset, limit = int(query["offset"]), int(query["limit"])
        start = max(0, len(data) + offset) if offset < 0 else offset
        piece = data[start : start + limit]
        incarnation = next(
            each["incarnation"]
            for status in self.topologies.values()
            for each in status["workers"]
            if each["worker"] == of
        )
        end = start + len(piece)
        return as_json(
            answers.LogAnswer(of, Incarnation(*incarnation), start, end, len(data), piece.decode())
        )


class Handler(BaseHTTPRequestHandler):
    """HTTP around it."""

    protocol_version = "HTTP/1.1"
    nimbus: FakeNimbus

    def answer(self) -> None:
        parts = urlsplit(self.path)
        size = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(size)) if size else None
        self.nimbus.headers.append(dict(self.headers))
        try:
            path = parts.path.removeprefix("/api/v1/")
            self.send(200, self.nimbus.answer(self.command, path, dict(parse_qsl(parts.query)), body))
        except Refusal as refusal:
            error = {"kind": refusal.kind, "message": refusal.message, "problems": []}
            self.send(refusal.status, {"error": error})

    do_GET = do_POST = do_DELETE = answer

    def send(self, status: int, value: Any) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *arguments: Any) -> None:
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True


@contextmanager
def fake_nimbus() -> Iterator[FakeNimbus]:
    """A server on a free port."""
    nimbus = FakeNimbus()
    handler = type("HandlerOfOne", (Handler,), {"nimbus": nimbus})
    server = Server(("127.0.0.1", 0), handler)
    nimbus.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield nimbus
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
