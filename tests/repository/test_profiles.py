"""The profiles of a worker classify every part of the core, and their sums are those of the samples."""

from __future__ import annotations

import time
import zlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks import native_profile, perf, worker_profile
from benchmarks.native_profile import EXTENSIONS, INTERPRETER, Sum, group_of, table
from benchmarks.perf import KERNEL, PERIOD, Sample, parse
from topology_api.core_choice import HOT, SHARED

ROOT = Path(__file__).resolve().parents[2]
LIBRARY = "/env/pyzmq.libs/libzmq-2f02442c.so.5.2.5"
IO = "ZMQbg/IO/0"


def test_every_hot_module_has_a_part_in_the_profile_of_the_plain_core() -> None:
    assert {module.replace(".", "/") + ".py" for module in HOT} <= worker_profile.PARTS.keys()


def test_the_profile_of_the_plain_core_names_no_missing_file() -> None:
    ours = [file for file in worker_profile.PARTS if not file.startswith("sugar/")]  # which is pyzmq's
    assert [file for file in ours if not (ROOT / file).exists()] == []


def test_samples_are_parsed_from_the_output_of_perf() -> None:
    text = f"""
      python3.11     {PERIOD}      7f354a4fb543 _PyEval_EvalFrameDefault (/usr/lib/libpython3.11.so.1.0)
      python3.11     {PERIOD}      7f354a4fb54a _PyEval_EvalFrameDefault (/usr/lib/libpython3.11.so.1.0)
        Thread 1     {PERIOD}      7f354a9c6db6 zmq::msg_t::size() const ({LIBRARY})
      {IO}     {PERIOD}  ffffffff813a2413 finish_task_switch.isra.0 ([kernel.kallsyms])
      {IO}     {PERIOD}  ffffffffc0102413 nft_do_chain ([nf_tables])
      {IO}     {PERIOD}  ffffffff81000010 [unknown] ([unknown])
      python3.11     {PERIOD}      7f354a9c6e52 [unknown] ([unknown])
      python3.11     {PERIOD}      7f354a58a79a old (/tmp/a b.so (deleted))
    """
    assert parse(text.splitlines()) == {
        Sample("python3.11", "/usr/lib/libpython3.11.so.1.0", "_PyEval_EvalFrameDefault"): 2,
        Sample("Thread 1", LIBRARY, "zmq::msg_t::size() const"): 1,
        Sample(IO, KERNEL, "finish_task_switch.isra.0"): 1,
        Sample(IO, KERNEL, "nft_do_chain"): 1,
        Sample(IO, KERNEL, "[unknown]"): 1,
        Sample("python3.11", "[unknown]", "[unknown]"): 1,
        Sample("python3.11", "/tmp/a b.so (deleted)", "old"): 1,
    }


@pytest.mark.parametrize("line", ["python3 1 7f354a4fb543 f (/lib/x.so)", "Warning: lost 12 events", "("])
def test_lines_that_are_no_samples_are_refused(line: str) -> None:
    with pytest.raises(ValueError, match="no sample"):
        parse([line])


@pytest.mark.parametrize(
    ("thread", "file", "group"),
    [
        ("python3", "/usr/bin/python3.11", INTERPRETER),
        ("python3", "/usr/lib/libpython3.11.so.1.0", INTERPRETER),
        ("python3", "/usr/lib/python3.11/lib-dynload/_pickle.cpython-311-x86_64-linux-gnu.so", "pickle and zlib"),
        ("python3", "/usr/lib/python3.11/lib-dynload/_json.cpython-311-x86_64-linux-gnu.so", "Python's other C modules"),
        ("python3", "/usr/lib/x86_64-linux-gnu/libc.so.6", "libc"),
        ("python3", "[vdso]", "libc"),
        ("python3", LIBRARY, "ZeroMQ's library"),
        ("python3", "/env/zmq/backend/cython/_zmq.cpython-311-x86_64-linux-gnu.so", "ZeroMQ's library"),
        ("python3", "/env/msgpack/_cmsgpack.cpython-311-x86_64-linux-gnu.so", "other libraries"),
        ("python3", "[unknown]", "other libraries"),
        ("python3", KERNEL, "kernel"),
        (IO, KERNEL, "ZeroMQ's IO threads: kernel"),
        (IO, "/env/pyzmq.libs/libsodium-6c8f8377.so.26", "ZeroMQ's IO threads: libsodium"),
        (IO, LIBRARY, "ZeroMQ's IO threads: ZeroMQ and libc"),
        (IO, "/usr/lib/x86_64-linux-gnu/libc.so.6", "ZeroMQ's IO threads: ZeroMQ and libc"),
    ],
)  # fmt: skip
def test_a_sample_belongs_to_a_group_by_its_thread_and_its_file(thread: str, file: str, group: str) -> None:
    assert group_of(Sample(thread, file, "f")) == group


def test_each_extension_is_a_group_of_its_own() -> None:
    assert [group_of(Sample("python3", file, "f")) for file in EXTENSIONS] == [*HOT, SHARED]


def test_the_rows_of_the_table_add_up_to_the_cpu() -> None:
    files = [
        *EXTENSIONS,
        "/usr/bin/python3",
        "/lib/libc.so.6",
        LIBRARY,
        KERNEL,
        "[unknown]",
        "/lib/libsodium.so.1",
    ]
    threads = ("python3", IO)
    seen = Counter({Sample(each, file, "f"): 3 for file in files for each in threads})
    few = Counter({Sample("python3", "/usr/bin/python3", "f"): 1})
    *rows, (name, cpu) = table([Sum(1_000, 0.5, seen), Sum(2_000, 0.001, few)])
    assert name == "CPU"
    assert cpu == pytest.approx([500_000, 500])
    assert [sum(column) for column in zip(*(values for _, values in rows))] == pytest.approx(cpu)
    assert dict(rows)[INTERPRETER] == pytest.approx([3 * PERIOD / 1_000, PERIOD / 2_000])


def test_rounds_are_added_up() -> None:
    place = ["python3", KERNEL, "f"]
    run = {"words": 10, "cpu_seconds": 0.5, "samples": [[*place, 2]]}
    assert native_profile.add([run, run]) == Sum(20, 1.0, Counter({Sample("python3", KERNEL, "f"): 4}))


@pytest.mark.slow
def test_only_code_from_begin_to_end_is_sampled(tmp_path: Path) -> None:
    if why := perf.trouble():
        pytest.skip(f"{why}; in CI too: it is nothing that a CI machine must have")
    recorder = perf.Recorder(tmp_path / "data")
    data = bytes(1_000_000)
    use_cpu(lambda: zlib.crc32(data))
    recorder.begin()
    use_cpu(lambda: None)
    recorder.end()
    use_cpu(lambda: zlib.crc32(data))
    samples = perf.read(tmp_path / "data")
    assert INTERPRETER in {group_of(sample) for sample in samples}
    assert not [sample for sample in samples if "crc32" in sample.function or "libz." in sample.file]


def use_cpu(work: Callable[[], object], seconds: float = 0.1) -> None:
    """Work for this long."""
    until = time.process_time() + seconds
    while time.process_time() < until:
        work()
