"""Several threads read their first records at once: msgspec must have its descriptions of types by then."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
#: Eight threads read their first record at the same moment; without `build_type_info` most such processes crash.
READ_AT_ONCE = """
import sys, threading
from squall.cluster.records import TopologyRecord, decode, encode
from tests.squall.cluster.small_records import WORDS

sys.setswitchinterval(1e-6)
data = encode(WORDS)
barrier = threading.Barrier(8)
read = []

def first_read():
    barrier.wait()
    read.append(decode(TopologyRecord, data))

threads = [threading.Thread(target=first_read) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(len(read))
"""
MODULES = ("squall", "nimbus", "supervisor", "worker", "squall_io", "local_cluster", "squall_cli")


def test_threads_may_read_their_first_records_at_once() -> None:
    for _ in range(10):
        done = subprocess.run(
            [sys.executable, "-c", READ_AT_ONCE], cwd=ROOT, capture_output=True, text=True, timeout=60
        )
        assert (done.returncode, done.stdout) == (0, "8\n"), done.stderr


def test_each_module_with_structs_has_their_descriptions_built() -> None:
    """The structs of the HTTP API are built by `nimbus/http/table.py`: the command line has one thread, and starts faster
    without. Those of `effects.py` are never decoded. Those of two modules of epochs are parts of a snapshot.
    """
    without = [
        str(path.relative_to(ROOT))
        for package in MODULES
        for path in sorted((ROOT / package).rglob("*.py"))
        if "Struct, frozen" in (text := path.read_text(encoding="utf-8")) or "msgspec.Struct)" in text
        if "build_type_info(" not in text and "Decoder(_" not in text
    ]
    api = [
        f"squall/api/{name}.py"
        for name in ("answers", "backups", "errors", "folder_probes", "letters", "requests", "versions")
    ]
    parts = ["worker/epochs/after_commit.py", "worker/epochs/parking.py"]
    assert without == [*api, "squall/transport/effects.py", *parts]
