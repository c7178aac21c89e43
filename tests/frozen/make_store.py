"""A store to freeze: of a cluster in the middle of everything, with its secrets, bundles, counters and presence nodes.

Must not know: how it is read.
"""

from __future__ import annotations

import base64
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from tests.frozen import current_code
from tests.frozen.frozen_data import DATA, as_text
from tests.frozen.make_records import ODD, SOUND
from tests.frozen.mutations import tabulate
from tests.frozen.old_code import old
from tests.frozen.plain_values import plain

#: The secret halves of the daemons' key pairs.
SECRETS: Final = {name: bytes([number] * 32) for number, name in enumerate(("n1", "s1", "s2"), 1)}
ID: Final = "words-3-1700000000"
MARK: Final = "1b4e28ba-2fa1-11d2-883f-0016d3cca427/66306:1234567"
#: Names that are quoted in paths.
NAMES: Final = (
    "words", "a b", "a/b", "%2F", ".", "..", "...", "a.b", "ä", "日本", "🙂", "", "a\nb", "~-_.", "A+B&C=D?#", ODD,
)  # fmt: skip
TOPOLOGY_IDS: Final = ("words-3-1700000000", "a-b-12-0", "words", "-1-2", "a-x-2", "a-٣-2", "", "--")
COUNTERS: Final = (
    b"7", b" 7\n", b"007", b"0", b"-7", b"+7", b"7.0", b"x", b"7 7", b"\xff", "٣".encode(), b"999999999999999999",
    b"1000000000000000000", b"1_000", b"0x7", b"2", b"null",
)  # fmt: skip
HEADERS: Final = (
    "Squall-Daemon s1:abc", "squall-daemon s1:abc", "Squall-Daemon a%2Fb:abc", "Squall-Daemon a:b:c", "Bearer abc",
    "Squall-Daemon", "Squall-Daemon :abc", "Squall-Daemon s1:", "Squall-Daemon  s1:abc ", "",
)  # fmt: skip


def frozen_store() -> dict[str, Any]:
    """All values of the store, and the results of reading them."""
    with small_chunks():
        store = old("squall.cluster.memory").InMemoryStore()
        _fill(store)
    values = {path: data for path, (data, _) in sorted(store._tree.values.items())}
    read = {
        name: plain(each(current_code.store_of(values))) for name, each in current_code.READ_STORE.items()
    }
    _write_sqlite(values)
    return {"values": {path: as_text(data) for path, data in values.items()}, "read": read}


@contextmanager
def small_chunks() -> Iterator[None]:
    """Blobs are cut into small chunks."""
    blobs = old("squall.cluster.blobs")
    before = blobs.CHUNK_BYTES
    blobs.CHUNK_BYTES = 400
    try:
        yield
    finally:
        blobs.CHUNK_BYTES = before


def topology(name: str = "words") -> Any:
    """A spout and two bolts, whose pickles cannot be loaded."""
    module = old("topology_api.topology")
    spec, stream, grouping = module.ComponentSpec, module.StreamSpec, module.GroupingSpec
    outputs = {
        "default": stream(("line", "at")),
        "straight": stream(("x",), direct=True),
        "signal": stream(()),
    }
    reads = module.Subscription
    return module.Topology(
        name,
        {"topology.workers": 2, "mine": [1, {"a": None}], ODD: ODD},
        (
            spec("lines", "spout", 2, {"topology.max.spout.pending": 10}, outputs),
            spec(
                "count", "bolt", 3, {}, {"default": stream(("word", "count"))},
                (
                    reads("lines", "default", grouping("fields", ("line",))),
                    reads("lines", "straight", grouping("direct")),
                    reads("lines", "signal", grouping("custom", (), b"\x80\x04a grouping's pickle")),
                ),
            ),
            spec("sum_ü", "bolt", 1, {}, {}, (reads("count", "default", grouping("global")),)),
        ),
        {"lines": b"no pickle", "count": bytes(range(256)) * 4, "sum_ü": b"\x80\x05."},
    )  # fmt: skip


def _fill(store: Any) -> None:
    records, registry = old("squall.cluster.records"), old("squall.cluster.registry").Registry(store)
    old("squall.cluster.identity").establish(store, lambda: "0123456789abcdef" * 2)
    store.put("/leadership/leader", b"n1")
    store.put("/leadership/epoch", b"n1")
    store.put("/presence/s1", f"{MARK} 4711-0a1b2c3d".encode())
    versions = {"squall": "0.1.0", "python": "3.11.7", "cloudpickle": "3.1.1"}
    keys = {name: old("squall.sealing").KeyPair(secret).public for name, secret in SECRETS.items()}
    registry.save_nimbus(records.NimbusRecord("n1", "http://h1:6627", "h1", keys["n1"], versions, 1.5))
    registry.save_supervisor(
        records.SupervisorRecord("s1", "h1", 4, True, "", keys["s1"], versions, {"cpus": 2})
    )
    registry.save_supervisor(records.SupervisorRecord("s2 ü/%", "h2", 2))
    registry.save_drained("s2 ü/%")
    store.put("/supervisors/s3", b"damaged")
    words = records.TopologyRecord(
        ID, "words", "REPLACING", "ACTIVE", dict(SOUND), {"lines": dict(SOUND)},
        ((1, "lines", 0), (2, "lines", 1), (3, "count", 0)), 5, 12.5, None, 1_700_000_000.0, highest_task=7,
        notes=(records.Note("w2 died", 1_700_000_009.0, "w2"),), submission="key", files={"code": "ab" * 32},
    )  # fmt: skip
    registry.create_topology(words)
    registry.create_replacement(replace(words, id="words-4-1700000100", state="ACTIVE", version=0))
    registry.save_replaced(replace(words, id="words-2-1600000000", state="INACTIVE", replaces="words-1-15"))
    odd = replace(words, id=f"{ODD}-6-1700000001", name=ODD, state="FAILED", error="boom", submitted=1.0)
    registry.create_topology(odd)
    store.put("/topologies/damaged", b'{"kind":"TopologyRecord","format":5,"id":"damaged-9-17"}')
    place = records.Placement
    registry.save_assignment(
        records.Assignment(
            ID, 5, (place("w1", "s1", 0, (5, 0), (1, 3)), place("w2", "s2 ü/%", 1, (4, 0), (2,)))
        )
    )
    registry.save_leaving(records.Assignment(ID, 3, (place("w0", "s1", 2, (3, 0), (7,)),)))
    registry.save_former(records.Assignment(odd.id, 2, (place("w9", "gone", 0, (2, 0), (1, 2, 3)),)))
    registry.save_report(ID, records.WorkerReport("w1", (5, 2), True, False, False, False, None, ("a", "b")))
    registry.save_report(
        ID, records.WorkerReport("w2 ü/", (4, 0), False, False, False, True, "boom", note="died")
    )
    seal_texts = old("squall.sealing").seal_texts
    for recipient in ("n1", "s1"):
        texts = {"public": "p" * 40, "secret": "s" * 40}
        registry.save_sealed_keys(ID, recipient, seal_texts(keys[recipient], ID, texts))
    registry.save_sealed_keys("operator", "n1", seal_texts(keys["n1"], "operator", {"token": "the token"}))
    old("squall.cluster.blobs").put_bundle(store, ID, topology())
    for counter, last in (("submissions", 6), ("assignments", 3)):  # the second one was set back on purpose
        store.put(f"/counters/{counter}", str(last).encode())


def _write_sqlite(values: dict[str, bytes]) -> None:
    """The same as a file of `squall dev --state`, without ephemeral values."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "store.db"
        store = old("squall.cluster.sqlite").SqliteStore(path)
        for name, data in values.items():
            store.create(name, data, ephemeral=name in ("/leadership/leader", "/presence/s1"))
        store._file.close()  # as left by a killed process
        shutil.copy(path, DATA / "store.db")


def frozen_values() -> dict[str, Any]:
    """Single values: of counters, presence nodes, names, seals, tokens; with the result of reading each."""
    values = {path: data for path, data in _of_store().items() if path.startswith("/assignments/")}
    return {
        "counters": {
            as_text(data): current_code.read_number("assignments", data, values) for data in COUNTERS
        },
        "presence": {
            text: current_code.stands_already(text.encode(), MARK)
            for text in (f"{MARK} 4711-0a1b2c3d", f"{MARK} ", MARK, f"{MARK}8 4711-0a1b2c3d", "x", f" {MARK} 1-2")
        },
        "quoted": {name: current_code.quoted(name) for name in NAMES},
        "ids": {
            each: [current_code.name_of_topology(each), current_code.number_of_topology(each)]
            for each in TOPOLOGY_IDS
        },
        "headers": {text: plain(current_code.read_daemon_header(text)) for text in HEADERS},
        "header": {name: current_code.daemon_header(name, "abc") for name in NAMES},
        "public": {name: current_code.public_key(secret) for name, secret in SECRETS.items()},
        "tokens": {
            f"{one} {other} {context}": current_code.token_between(
                SECRETS[one], current_code.public_key(SECRETS[other]), context
            )
            for one in SECRETS
            for other in SECRETS
            for context in ("supervisor-to-nimbus", "nimbus-to-supervisor", "nimbus-to-nimbus")
        },
    }  # fmt: skip


def _of_store() -> dict[str, bytes]:
    store = old("squall.cluster.memory").InMemoryStore()
    _fill(store)
    return {path: data for path, (data, _) in store._tree.values.items()}


CHUNKS: Final = {0: b"one and ", 1: b"two"}


def mutated_values() -> dict[str, Any]:
    """The outcomes of an invalid cluster id and blob manifest."""
    store = old("squall.cluster.memory").InMemoryStore()
    with small_chunks():
        old("squall.cluster.blobs").CHUNK_BYTES = 8
        old("squall.cluster.blobs").put_blob(store, "/blob", b"".join(CHUNKS.values()))
    cluster = b'{"id": "0123456789abcdef", "format": 5}'
    return {
        "cluster": tabulate(current_code.read_cluster, cluster, ("4", "5", "5.0", "6")),
        "manifest": tabulate(
            lambda data: current_code.read_blob(data, CHUNKS), store.get("/blob")[0], ("11", "11.0")
        ),
    }


def frozen_seals() -> dict[str, Any]:
    """Seals for n1: valid and invalid; each with a copy in base64."""
    sealing = old("squall.sealing")
    public = current_code.public_key(SECRETS["n1"])
    sound = sealing.seal_texts(public, ID, {"public": "p", "secret": "s", ODD: ODD})
    tried = {
        "sound": sound,
        "empty": sealing.seal_texts(public, ID, {}),
        "for another": sealing.seal_texts(current_code.public_key(SECRETS["s1"]), ID, {"a": "b"}),
        "for another purpose": sealing.seal_texts(public, "operator", {"a": "b"}),
        "no JSON": sealing.seal(public, b"no JSON"),
        "no texts": sealing.seal(public, b'{"purpose": "%s", "texts": {"a": 1}}' % ID.encode()),
        "a list": sealing.seal(public, b"[]"),
        "more beside": sealing.seal(public, b'{"purpose": "%s", "texts": {}, "more": 1}' % ID.encode()),
        "cut": sound[:-1],
        "changed": sound[:-1] + bytes([sound[-1] ^ 1]),
        "its beginning": sound[:20],
        "another format": sound.replace(b"seal-1", b"seal-2"),
        "nothing": b"",
    }
    return {name: [base64.b64encode(data).decode(), opened(data)] for name, data in tried.items()}


def opened(data: bytes) -> Any:
    """The content that n1 finds in a seal, or the name of the error."""
    try:
        return current_code.open_sealed(SECRETS["n1"], data, ID)
    except Exception as error:
        return type(error).__name__
