"""The OpenAPI document describes the answers of a Nimbus: each one is fetched over HTTP and compared with it."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

from nimbus.daemon import NimbusDaemon
from nimbus.http.openapi import document
from nimbus.http.table import API, TABLE
from scripts.http_api_page import as_markdown
from squall.cluster.blobs import put_bundle
from squall.cluster.counters import ComponentCounters, WorkerCounters
from squall.cluster.memory import InMemoryStore
from squall.cluster.records import EndedVersion, Placement, VersionRecord, WorkerReport, encode
from squall.cluster.registry import Registry
from squall.packages.archives import pack
from squall.reports.error_reports import ErrorReport
from squall.reports.live_state import LiveRow, TaskState, WorkerState
from squall.reports.stacks import CallStack, StackFrame, WorkerStacks
from squall.values import Incarnation
from squall.worker_files import LIVE_STATE, STACKS, read_state_question, write
from supervisor.directories import Directories
from supervisor.host_letters import HostLetters
from supervisor.log_server import LogServer
from tests.flaky_store import FlakyStore
from tests.letter_samples import kept_letter
from tests.nimbus_http.nimbuses import Cluster, PlayedSupervisor, counters_of, submission, words
from tests.nimbus_http.test_reads_over_http import raw
from topology_api.options import defaults

BOOM = ErrorReport(
    "words", "count", 2, "execute", "ValueError: boom", "words.py:7", ("line",), "a tuple", 1.0
)
SHAPED = {
    (endpoint.method, endpoint.path, status)
    for endpoint in TABLE
    for status, answer in endpoint.answers.items()
    if not isinstance(answer, str)
}

#: What is asked of an empty cluster.
AT_FIRST = ("cluster", "nimbuses", "supervisors", "configuration", "topologies", "openapi.json", "/health")

KINDS: dict[str, tuple[type, ...]] = {
    "string": (str,), "integer": (int,), "number": (int, float), "boolean": (bool,), "array": (list,), "object": (dict,),
    "null": (type(None),),
}  # fmt: skip


def misfits(schema: Mapping[str, Any], value: Any, place: str = "") -> Iterator[str]:
    """The places where a value does not match a schema; a field that the schema does not name is a mismatch too."""
    if "$ref" in schema:
        schema = document()["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    if "anyOf" in schema:
        if all(list(misfits(each, value)) for each in schema["anyOf"]):
            yield f"{place} is {value!r:.80}"
        return
    wanted = KINDS.get(schema.get("type", ""), (object,))
    if not isinstance(value, wanted) or (isinstance(value, bool) and not {bool, object} & {*wanted}):
        yield f"{place} is {value!r:.80}, no {schema['type']}"
    elif "enum" in schema and value not in schema["enum"]:
        yield f"{place} is {value!r:.80}"
    elif isinstance(value, dict) and "properties" in schema:
        for name in value.keys() - schema["properties"].keys():
            yield f"{place}.{name} is not in the document"
        for name in set(schema["required"]) - value.keys():
            yield f"{place}.{name} is not in the answer"
        for name in schema["properties"].keys() & value.keys():
            yield from misfits(schema["properties"][name], value[name], f"{place}.{name}")
    elif isinstance(value, dict):
        for name, each in value.items():
            yield from misfits(schema.get("additionalProperties", {}), each, f"{place}.{name}")
    elif isinstance(value, list) and "prefixItems" in schema:
        if len(value) != schema["minItems"] or len(value) != schema["maxItems"]:
            yield f"{place} has {len(value)} parts"
        for each, inner in zip(schema["prefixItems"], value):
            yield from misfits(each, inner, f"{place}[]")
    elif isinstance(value, list):
        for inner in value:
            yield from misfits(schema.get("items", {}), inner, f"{place}[]")


class Asked:
    """Asks a Nimbus, and compares each answer with the document."""

    def __init__(self, nimbus: NimbusDaemon) -> None:
        self.nimbus = nimbus
        self.document = document()
        self.compared: set[tuple[str, str, int]] = set()

    def __call__(
        self, method: str, row: str, body: Any = None, authorization: str = "", query: str = "", **names: str
    ) -> Any:
        path = row if row.startswith("/") else f"{API}/{row}"
        shown = authorization or f"Bearer {self.nimbus.token}"
        data = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
        status, headers, answer = raw(
            self.nimbus, method, path.format(**names) + query, data, Authorization=shown
        )
        response = self.document["paths"][path][method.lower()]["responses"][str(status)]
        schema = response["content"][headers["content-type"]]["schema"]
        assert list(misfits(schema, answer)) == [], f"{method} {path}: {answer}"
        self.compared.add((method, path, status))
        return answer


def answer_a_question(directory: Path) -> None:
    """What a worker does that is asked for its state."""
    end = time.monotonic() + 30
    while (question := read_state_question(directory)) is None and time.monotonic() < end:
        time.sleep(0.02)
    if question is not None:
        row = LiveRow("times", "ValueState", question.key, "7", 1.5, 2.5)
        write(directory, LIVE_STATE, WorkerState(question.number, (TaskState(2, 0, 17, (row,)),), ("times",)))


@contextmanager
def logs_of(folder: Path, topology_id: str) -> Iterator[str]:
    """The URL of a supervisor that has a log of worker "w1", and two dead letters."""
    directories = Directories(folder)
    directory = directories.make_worker(topology_id, "w1")
    (directory / "worker.log").write_text("one\ntwo\n")
    stack = CallStack("MainThread", "count", 2, 7.5, "", (StackFrame("count.py", 12, "execute", "wait()"),))
    write(
        directory, STACKS, WorkerStacks(time.time_ns() + 10**12, 4711, (stack,))
    )  # answers later questions, too
    dead_letters = HostLetters(directories.letters).folder("words")
    dead_letters.add([kept_letter(1), kept_letter(2, ({"a set"},), expires_at=1e10)], 0.0)
    server = LogServer("127.0.0.1", 0, directories, lambda topology: None, lambda header: True)
    server.start()
    try:
        yield f"http://127.0.0.1:{server.port}"
    finally:
        server.stop()


def ask_for_state(ask: Asked, directory: Path) -> None:
    """Ask a worker that answers."""
    worker = Thread(target=answer_a_question, args=[directory])
    worker.start()
    asked = {"component": "count", "key": '"a"'}
    state = ask("POST", "topologies/{name}/workers/{worker}/state", asked, name="words", worker="w1")
    assert state["tasks"][0]["rows"][0]["value"] == "7"
    worker.join()


def roll_back(ask: Asked, store: InMemoryStore, supervisor: PlayedSupervisor) -> None:
    """Let an earlier version of a topology "again" return, repeat the request, and end the trial of that version."""
    ask("POST", "topologies", submission(words("again")))
    earlier = VersionRecord("again-0-0", "again", "replaced", None, 1.0, 2.0, defaults(), {}, {}, "")
    Registry(store).versions.put(earlier)
    put_bundle(store, earlier.id, words("again"))
    for _ in range(2):
        ask("POST", "topologies/{name}/rollback", {"submission": "a key"}, name="again")
    supervisor.say("again", drained=True)
    supervisor.say("again", stopped=True)
    ask("POST", "topologies/{name}/rollback", {"submission": "another key"}, name="again")


def restore_as_another(ask: Asked, topology_id: str) -> None:
    """Restore a topology "words" under another name, and repeat the request."""
    parts = {"name": "words", "id": topology_id}
    found = [ask("GET", f"topologies/{{name}}/{part}", **parts) for part in ("backup", "bundles/{id}")]
    backup, bundle = (
        json.dumps(each).replace('"words"', '"back"').replace(topology_id, "back-1-1") for each in found
    )
    digest = hashlib.sha256(bundle.encode()).hexdigest()
    ask("PUT", "files/{sha256}", bundle.encode(), sha256=digest)
    body = {"submission": "its key", "backup": json.loads(backup), "bundles": {"back-1-1": digest}}
    for place in ("restore-checks", "restores", "restores"):
        assert ask("POST", place, body)["id"] == "back-1-1"


def test_every_described_answer_matches_the_document(
    cluster: Cluster, store: InMemoryStore, tmp_path: Path
) -> None:
    flaky = FlakyStore(store.session())
    ask = Asked(cluster.start_leader("nimbus", flaky))
    supervisor = PlayedSupervisor(store, ask.nimbus)
    of_supervisor = supervisor.client().authorization(ask.nimbus.url)
    for path in AT_FIRST:
        ask("GET", path)
    code = tmp_path / "code.tar.gz"
    digest = pack({"my_words.py": b"x = 1"}, code)
    for _ in range(2):
        ask("PUT", "files/{sha256}", code.read_bytes(), sha256=digest)
    body = submission(words(conf={"db.password": "swordfish"}), files={"code": digest})
    topology_id = ask("POST", "topologies", body)["id"]
    ask("POST", "topologies", body)
    supervisor.assignment()
    for path in ("topologies/{name}", "topologies/{name}/workers"):
        ask("GET", path, name="words")  # while it starts
    supervisor.say()
    supervisor.send(counters=counters_of(supervisor, 7, (BOOM,)))
    stray = WorkerReport("w99", Incarnation(1, 0), True, False, False, False, None)
    said = {"reports": [{"topology": "words", "report": json.loads(encode(stray))}], "counters": []}
    refused = ask("POST", "supervisors/{id}/reports", said, authorization=str(of_supervisor), id="s1")
    assert len(refused["refused"]) == 1
    for path in ("cluster", "supervisors", "topologies"):
        assert ask("GET", path)
    for part in ("", "/errors", "/workers", "/configuration", "/counters", "/history"):
        assert ask("GET", f"topologies/{{name}}{part}", name="words")
    for component in ("lines", "count"):
        ask("GET", "topologies/{name}/components/{component}", name="words", component=component)
    with logs_of(tmp_path / "supervisor", topology_id) as url:
        supervisor = PlayedSupervisor(store, ask.nimbus, url=url)  # the same one at an address
        ask("GET", "topologies/{name}/workers/{worker}/log", name="words", worker="w1")
        ask("GET", "topologies/{name}/workers/{worker}/stacks", name="words", worker="w1")
        ask_for_state(ask, Directories(tmp_path / "supervisor").worker(topology_id, "w1"))
        names = {"name": "words", "supervisor": "s1"}
        letters = "topologies/{name}/dead-letters"
        assert ask("GET", letters, name="words")["hosts"]
        assert len(ask("GET", f"{letters}/{{supervisor}}", **names)["letters"]) == 2
        two = {"ids": ["000000000001", "00000000ffff"]}
        assert len(ask("POST", f"{letters}/{{supervisor}}/resend", two, **names)["unsent"]) == 2
        assert ask("POST", f"{letters}/{{supervisor}}/drop", two, **names)["dropped"] == ["000000000001"]
    roll_back(ask, store, supervisor)
    restore_as_another(ask, topology_id)
    ask("POST", "checks", submission(words("another")))
    for change in ("deactivate", "activate", "rebalance"):
        ask("POST", f"topologies/{{name}}/{change}", {}, name="words")
    ask("DELETE", "topologies/{name}", name="words", query="?wait_secs=0")
    counters = WorkerCounters({"count": ComponentCounters(executed=7)}, (BOOM,)).to_bytes().decode()
    former = Placement("w1", "s1", 0, Incarnation(1, 0), (1, 2))
    ended = EndedVersion("words-0-0", "words", "rolled back", "it failed", 1.0, 2.0, (former,), counters)
    Registry(store).ended.put(ended)
    ask("GET", "topologies/{name}/previous", name="words")
    for change in ("drain", "undrain"):
        ask("POST", f"supervisors/{{id}}/{change}", id="s1")
    flaky.connected = False  # type: ignore[attr-defined]
    ask("GET", "/health")
    assert ask.compared == SHAPED


def test_the_comparison_finds_mismatches() -> None:
    schema = document()["paths"][f"{API}/topologies"]["get"]["responses"]["200"]["content"][
        "application/json"
    ]["schema"]
    right: dict[str, Any] = {"topologies": []}
    assert list(misfits(schema, right)) == []
    wrongs: list[Any] = [[], {}, {"topologies": None}, {"topologies": [{"name": 1}]}, {**right, "more": 1}]
    for wrong in wrongs:
        assert list(misfits(schema, wrong)), wrong


def every_reference(value: Any) -> Iterator[str]:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    if isinstance(value, dict) and isinstance(value.get("$ref"), str):
        yield value["$ref"]
    for each in inner:
        yield from every_reference(each)


def test_the_document_is_valid_openapi() -> None:
    whole = document()
    assert json.dumps(json.loads(json.dumps(whole))) == json.dumps(whole)
    assert whole["openapi"] == "3.1.0" and {"title", "version"} <= set(whole["info"])
    operations = [each for path in whole["paths"].values() for each in path.values()]
    ids = [operation["operationId"] for operation in operations]
    assert len(set(ids)) == len(ids) == len(TABLE) and all(name.isidentifier() for name in ids)
    for operation in operations:
        named = [(each["in"], each["name"]) for each in operation["parameters"]]
        assert len(set(named)) == len(named)
        assert all(each["required"] for each in operation["parameters"] if each["in"] == "path")
        assert operation["responses"] and all(each["description"] for each in operation["responses"].values())
        schemes = {name for either in operation["security"] for name in either}
        assert schemes <= set(whole["components"]["securitySchemes"])
    schemas = whole["components"]["schemas"]
    assert {f"#/components/schemas/{name}" for name in schemas} >= set(every_reference(whole))
    for schema in schemas.values():
        assert schema["description"] and set(schema.get("required", ())) <= set(schema.get("properties", ()))


def test_choices_are_listed_for_machines_and_for_people() -> None:
    schemas = document()["components"]["schemas"]
    assert schemas["HealthAnswer"]["properties"]["status"] == {"enum": ["ok", "unavailable"]}
    assert '{"status": "ok" or "unavailable", "leading", ' in as_markdown()
