"""Where each microsecond of a worker process with the plain core goes: the word count over two workers, sampled.

The compiled core's functions have no lines of Python: for that see `native_profile`.

Every few milliseconds of CPU (at the kernel's timer resolution) a signal records the line of Python that the loop is in; calls
of C functions count for the line that makes them. Python handles a signal only at the next call or at the end of a loop's body,
so lines are approximate, and functions are right except for their last few instructions. Ticks while the loop sleeps are left
out: another thread caused them. The CPU of each thread comes from the kernel; the samples divide that of the loop's thread. The
sampling itself costs some percent. Linux only. It must not know how a worker is built: only which part of it a file belongs to.

    python -m benchmarks worker_profile [--sentences 300000] [--rounds 3] [--supervisors 2]
"""

from __future__ import annotations

import argparse
import gc
import linecache
import os
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from types import FrameType
from typing import Any

from benchmarks import two_workers
from benchmarks.child import ROOT, answer, ask, machine
from benchmarks.notes import find, leave

TICK = 0.001
"""Seconds of CPU between two samples, if the kernel's timer is so fine."""
SLEEPS = ("squall/transport/carriers/sockets.py", "wait")
"""The function in which the loop sleeps."""

PARTS = {
    "benchmarks/two_workers.py": "user: the spout",
    "benchmarks/topology.py": "user: Split and Count",
    "worker/tasks/emitter.py": "emit: checks, grouping, edges, outboxes",
    "worker/routing/router.py": "emit: checks, grouping, edges, outboxes",
    "worker/routing/outbox.py": "emit: checks, grouping, edges, outboxes",
    "worker/tracking/ids.py": "emit: checks, grouping, edges, outboxes",
    "worker/routing/key_hash.py": "emit: checks, grouping, edges, outboxes",
    "worker/routing/text_hash.py": "emit: checks, grouping, edges, outboxes",
    "topology_api/components.py": "emit: checks, grouping, edges, outboxes",
    "worker/tasks/bolt.py": "executor: Tuples, calls, XORs",
    "worker/process/call_watch.py": "executor: Tuples, calls, XORs",
    "worker/tasks/work_time.py": "executor: Tuples, calls, XORs",
    "topology_api/tuples.py": "executor: Tuples, calls, XORs",
    "worker/tasks/holding.py": "emit: checks, grouping, edges, outboxes",
    "worker/tasks/epoch_emitter.py": "emit: checks, grouping, edges, outboxes",
    "worker/tasks/stateful_bolt.py": "executor: Tuples, calls, XORs",
    "topology_api/state_guard.py": "states of stateful bolts",
    "worker/state/table.py": "states of stateful bolts",
    "worker/state/values.py": "states of stateful bolts",
    "worker/state/plain_values.py": "states of stateful bolts",
    "worker/state/lists.py": "states of stateful bolts",
    "worker/state/maps.py": "states of stateful bolts",
    "worker/state/expiry.py": "states of stateful bolts",
    "worker/state/codecs.py": "states of stateful bolts",
    "worker/tasks/spout.py": "spout task: calls, replay values, latencies",
    "worker/tasks/spout_wait.py": "spout task: calls, replay values, latencies",
    "worker/tracking/replay_policy.py": "spout task: calls, replay values, latencies",
    "squall/reports/histogram.py": "spout task: calls, replay values, latencies",
    "worker/tracking/tracker.py": "trees: tracker, XORs on their way",
    "worker/tracking/timing_wheel.py": "trees: tracker, XORs on their way",
    "worker/tracking/ack_batch.py": "trees: tracker, XORs on their way",
    "worker/loop/ack_router.py": "trees: tracker, XORs on their way",
    "squall/transport/frames.py": "batches: rows and ids in columns",
    "squall/transport/row_columns.py": "batches: rows and ids in columns",
    "squall/transport/id_columns.py": "batches: rows and ids in columns",
    "squall/transport/columns.py": "values to bytes and back",
    "squall/transport/control.py": "frames to bytes and back",
    "squall/transport/wire.py": "frames to bytes and back",
    "squall/transport/carriers/sockets.py": "ZeroMQ's calls: send, receive",
    "sugar/socket.py": "ZeroMQ's calls: send, receive",
    "squall/transport/exchange.py": "links: numbers, windows, repeats",
    "squall/transport/link.py": "links: numbers, windows, repeats",
    "squall/transport/credit.py": "links: numbers, windows, repeats",
    "squall/transport/carrier.py": "links: numbers, windows, repeats",
    "worker/loop/links.py": "links: numbers, windows, repeats",
    "worker/loop/peers.py": "links: numbers, windows, repeats",
    "worker/loop/worker.py": "the loop",
    "worker/loop/task_table.py": "the loop",
    "worker/process/daemon.py": "the loop",
    "worker/tasks/task.py": "the loop",
    "worker/process/lease.py": "the loop",
    "worker/loop/timers.py": "the loop",
    "worker/loop/completion.py": "the loop",
    "worker/loop/snapshot.py": "the loop",
    "squall/clock.py": "the loop",
    "squall/worker_files.py": "the loop",
}


class Sampler:
    """Samples where this process's main thread is, from now on."""

    def __init__(self) -> None:
        self.lines: Counter[tuple[str, str, int]] = Counter()
        self.whole: Counter[str] = Counter()  # samples in a function or in functions that it calls
        self.asleep = 0
        self.collecting = 0.0
        self.began = 0.0
        self.threads = thread_seconds()
        gc.callbacks.append(self.on_collection)
        signal.signal(signal.SIGPROF, self.on_tick)
        signal.setitimer(signal.ITIMER_PROF, TICK, TICK)

    def on_tick(self, number: int, frame: FrameType | None) -> None:
        """A sample."""
        if frame is None:
            return
        place = (frame.f_code.co_filename, name_of(frame), frame.f_lineno or 0)
        seen = set()
        above: FrameType | None = frame
        while above is not None:
            if above.f_code.co_name == SLEEPS[1] and above.f_code.co_filename.endswith(SLEEPS[0]):
                self.asleep += 1
                return
            seen.add(f"{above.f_code.co_filename}:{name_of(above)}")
            above = above.f_back
        self.lines[place] += 1
        self.whole.update(seen)

    def on_collection(self, phase: str, info: dict[str, int]) -> None:
        """The garbage collector's own time."""
        if phase == "start":
            self.began = time.perf_counter()
        else:
            self.collecting += time.perf_counter() - self.began

    def stop(self) -> dict[str, Any]:
        """Return the samples so far."""
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        gc.callbacks.remove(self.on_collection)
        now = thread_seconds()
        taken = {name: seconds - self.threads.get(name, 0.0) for name, seconds in now.items()}
        return {
            "lines": [[*place, count] for place, count in self.lines.items()],
            "whole": dict(self.whole),
            "asleep": self.asleep,
            "collecting": self.collecting,
            "threads": taken,
        }


def name_of(frame: FrameType) -> str:
    """Return the name of the function, with its class where Python provides it (3.11)."""
    return str(getattr(frame.f_code, "co_qualname", frame.f_code.co_name))


def thread_seconds() -> dict[str, float]:
    """CPU seconds of this process's threads by their purpose."""
    taken: dict[str, float] = {}
    for folder in Path("/proc/self/task").iterdir():
        name = (folder / "comm").read_text().strip()
        kind = "loop" if folder.name == str(os.getpid()) else "ZeroMQ" if name.startswith("ZMQ") else "others"
        seconds = int((folder / "schedstat").read_text().split()[0]) / 1e9
        taken[kind] = taken.get(kind, 0.0) + seconds
    return taken


class Sampled(two_workers.Sentences):
    """Samples its worker from the first sentence to the last."""

    def begin(self) -> float:
        wait = super().begin()
        if self.begun:
            self.sampler = Sampler()
        return wait

    def close(self) -> None:
        leave(self.job.folder, "profile", self.index, **self.sampler.stop())
        super().close()


def main() -> None:
    """Print where the time goes, or take one profile in a child process."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--sentences", type=int, default=300_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--supervisors", type=int, choices=(1, 2), default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--once", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.once:
        answer(profile(options.sentences, options.seed, options.supervisors))
        return
    print(machine())
    arguments = (
        "--sentences",
        options.sentences,
        "--seed",
        options.seed,
        "--supervisors",
        options.supervisors,
    )
    print_profile([ask(__name__, *arguments, "--once", of="plain") for _ in range(options.rounds)])


def profile(count: int, seed: int, supervisors: int) -> dict[str, Any]:
    """Return one run: the samples of both workers."""
    with tempfile.TemporaryDirectory(prefix="squall-benchmark-") as folder:
        job = two_workers.Job(folder, count, seed)
        measured = two_workers.run_in(job, supervisors, Sampled)
        return {**vars(measured), "workers": find(folder, "profile")}


def print_profile(runs: list[dict[str, Any]]) -> None:
    """Threads, parts, functions and lines."""
    words = sum(run["words"] for run in runs)
    workers = [worker for run in runs for worker in run["workers"]]
    threads: Counter[str] = Counter()
    lines: Counter[tuple[str, str, int]] = Counter()
    whole: Counter[str] = Counter()
    for worker in workers:
        threads.update(worker["threads"])
        lines.update({(short(file), name, line): count for file, name, line, count in worker["lines"]})
        whole.update({short(place): count for place, count in worker["whole"].items()})
    asleep = sum(worker["asleep"] for worker in workers)
    samples = sum(lines.values())
    a_sample = threads["loop"] / words * 1e6 / samples
    collecting = sum(worker["collecting"] for worker in workers) / words * 1e6
    print(f"{words:,} words in {len(runs)} runs, {samples:,} samples ({asleep:,} more while the loop slept)")
    print(f"CPU of both workers: {sum(threads.values()) / words * 1e6:.3f} us a word")
    for kind, name in (("loop", "the loop"), ("ZeroMQ", "ZeroMQ's own threads"), ("others", "other threads")):
        print(f"  {name:<24}{threads[kind] / words * 1e6:>8.3f}")
    print(f"Nimbus and supervisors:   {sum(run['control_cpu_seconds'] for run in runs) / words * 1e6:>8.3f}")
    print(f"in the loop's: the garbage collector {collecting:.3f}")
    parts: Counter[str] = Counter()
    functions: Counter[str] = Counter()
    for (file, name, _), count in lines.items():
        parts[PARTS.get(file, f"other: {file}")] += count
        functions[f"{file}:{name}"] += count
    print_table("By part", parts.most_common(), a_sample, samples)
    texts = [
        (f"{place}  (with what it calls: {whole[place] * a_sample:.3f})", count)
        for place, count in functions.most_common(25)
    ]
    print_table("By function, without what it calls", texts, a_sample, samples)
    spots = [
        (f"{file}:{line}  {source(file, line)}", count) for (file, _, line), count in lines.most_common(20)
    ]
    print_table("By line", spots, a_sample, samples)


def print_table(title: str, rows: Iterable[tuple[str, int]], a_sample: float, samples: int) -> None:
    """Microseconds per word and the share of the loop's CPU; less than half a percent is left out."""
    print(f"\n{title}\n{'us/word':>8}{'share':>8}")
    for name, count in rows:
        if count >= samples / 200:
            print(f"{count * a_sample:>8.3f}{count / samples:>8.1%}  {name}")


def short(place: str) -> str:
    """Return a path in the repository relative to its root; the last parts of any other path."""
    root = f"{ROOT}{os.sep}"
    if place.startswith(root):
        return place[len(root) :]
    return os.sep.join(place.split(os.sep)[-2:])


def source(file: str, line: int) -> str:
    """Return a line of the repository."""
    return linecache.getline(str(ROOT / file), line).strip()[:80]
