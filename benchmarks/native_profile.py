"""Which code each nanosecond of a word goes to with the compiled core: the word count in one process and over two workers.

The runs are those of `word_count.py` (`topology`, `two_workers`), sampled by Linux's perf (see `perf`), which sees compiled
functions, libraries and the kernel, as `worker_profile` does not. Only the streaming counts, from when the spout is open (with
two workers, from when both begin) until it is closed: imports and the making of sentences are over by then. A group has the
time inside its own code, without the functions it calls: "the interpreter" has the user's code, Squall's plain modules
(sockets, links, the codec), and the core's use of Python: objects, dictionaries, calls. In one process, the threads of Nimbus
and supervisor are counted too. The total is the CPU that the kernel charged; "not sampled" is the part that perf missed: thread
switches, and all kernel time that perf may not observe. Of 10,000 samples, a group of 1 % has a hundred, and so a relative
standard deviation of a tenth. The sampling itself costs some percent. Linux only.

    python -m benchmarks native_profile [--sentences 300000] [--rounds 3]
"""

from __future__ import annotations

import argparse
import os
import sys
import sysconfig
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import perf, stateful_count, topology, two_workers
from benchmarks.child import answer, ask, machine
from benchmarks.notes import Usage, find, leave
from benchmarks.perf import KERNEL, PERIOD, Sample
from topology_api import Context
from topology_api.core_choice import CHOICE, HOT, SHARED, source_path

RUNS = {"one": "one process", "two": "two workers", "state": "workers, state"}
SYMBOLS = 25
SENTENCES_A_SECOND = 50_000
"""With state a run takes a fixed time: a second for this many sentences."""
CANNOT = 2
"""Exit status: there is nothing to measure, or nothing to measure it with."""

OWN = (*HOT, SHARED)
EXTENSIONS = {
    os.path.realpath(source_path(module, str(sysconfig.get_config_var("EXT_SUFFIX")))): module
    for module in OWN
}
INTERPRETER = "user code and the interpreter"
LIBRARIES = {
    "pickle and zlib": ("_pickle.", "zlib.", "libz."),
    "libc": ("libc.", "libc-", "libm.", "libpthread", "ld-", "[vdso]"),
    "ZeroMQ's library": ("libzmq", "_zmq."),
    "libsodium": ("libsodium",),
}
"""Groups, and how the names of their files begin."""
OTHER_MODULES = "Python's other C modules"
OTHERS = "other libraries"
IO_THREADS = "ZMQbg/IO"
IN_IO_THREADS = {
    KERNEL: "ZeroMQ's IO threads: kernel",
    "libsodium": "ZeroMQ's IO threads: libsodium",
    "": "ZeroMQ's IO threads: ZeroMQ and libc",
}
"""What ZeroMQ's own threads run is apart."""
ORDER = (INTERPRETER, *OWN, *LIBRARIES, OTHER_MODULES, OTHERS, "kernel", *IN_IO_THREADS.values())


def group_of(sample: Sample) -> str:
    """Return the group to which the code of a sample belongs."""
    name = Path(sample.file).name
    begun = [group for group, starts in LIBRARIES.items() if name.startswith(starts)]
    if sample.thread.startswith(IO_THREADS):
        place = KERNEL if sample.file == KERNEL else begun[0] if begun else ""
        return IN_IO_THREADS.get(place, IN_IO_THREADS[""])
    if sample.file == KERNEL:
        return "kernel"
    if sample.file in EXTENSIONS:
        return EXTENSIONS[sample.file]
    if name.startswith(("libpython", "python")):
        return INTERPRETER
    if begun:
        return begun[0]
    return OTHER_MODULES if "lib-dynload" in sample.file else OTHERS


class Profile:
    """The samples of this process, and its CPU in the same time: a note with a file beside it."""

    def __init__(self, folder: str, index: int) -> None:
        self.folder = folder
        self.index = index
        self.out = Path(folder, f"perf-{index}.data")
        self.recorder = perf.Recorder(self.out)

    def begin(self) -> None:
        """The streaming begins."""
        self.usage = Usage()
        self.recorder.begin()

    def end(self) -> None:
        """The streaming has ended."""
        used = self.usage.read()
        self.recorder.end()
        leave(self.folder, "profile", self.index, **used, out=str(self.out))


@dataclass(frozen=True)
class Job(topology.Job):
    """The component has a folder for notes."""

    folder: str = ""


class Here(topology.Sentences):
    """Has its process sampled while it is open."""

    job: Job

    def open(self, context: Context) -> None:
        profile = Profile(self.job.folder, context.index)
        super().open(context)
        self.profile = profile
        profile.begin()

    def close(self) -> None:
        self.profile.end()
        super().close()


class InWorkers(two_workers.Sentences):
    """Has its worker sampled from the first sentence to the last."""

    def open(self, context: Context) -> None:
        self.profile = Profile(self.job.folder, context.index)
        super().open(context)  # the base class says that this spout is ready

    def begin(self) -> float:
        wait = super().begin()
        if self.begun:
            self.profile.begin()
        return wait

    def close(self) -> None:
        self.profile.end()
        super().close()


class WithState(stateful_count.RewindableSentences):
    """Has its worker sampled from the first sentence to the last."""

    def open(self, context: Context) -> None:
        self.profile = Profile(self.job.folder, context.index)
        super().open(context)

    def begin(self) -> float:
        wait = super().begin()
        if self.begun:
            self.profile.begin()
        return wait

    def close(self) -> None:
        self.profile.end()
        super().close()


def measure(run: str, count: int, seed: int) -> dict[str, Any]:
    """Return one run: its words, its CPU, and its samples by thread, file and function."""
    with tempfile.TemporaryDirectory(prefix="squall-benchmark-") as folder:
        if run == "one":
            words = topology.run(Job(count, count, seed, folder=folder), Here).words
        elif run == "state":
            job = stateful_count.Job(folder, count / SENTENCES_A_SECOND, seed=seed)
            words = stateful_count.run(job, WithState).words
        else:
            words = two_workers.run_in(two_workers.Job(folder, count, seed), 1, InWorkers).words
        notes = find(folder, "profile")
        samples: Counter[Sample] = Counter()
        for note in notes:
            samples.update(perf.read(Path(note["out"])))
    cpu = sum(note["cpu_seconds"] for note in notes)
    return {
        "words": words,
        "cpu_seconds": cpu,
        "samples": [[*place, times] for place, times in samples.items()],
    }


@dataclass(frozen=True)
class Sum:
    """The totals of several rounds of a run."""

    words: int
    cpu_seconds: float
    samples: Counter[Sample]

    def nanoseconds(self, samples: int) -> float:
        """Nanoseconds per word of this many samples."""
        return samples * PERIOD / self.words

    def groups(self) -> Counter[str]:
        """Samples by group."""
        counted: Counter[str] = Counter()
        for sample, times in self.samples.items():
            counted[group_of(sample)] += times
        return counted


def add(rounds: list[dict[str, Any]]) -> Sum:
    """Return the rounds of a run, added up."""
    samples: Counter[Sample] = Counter()
    for each in rounds:
        for *place, times in each["samples"]:
            samples[Sample(*place)] += times
    words = sum(each["words"] for each in rounds)
    return Sum(words, sum(each["cpu_seconds"] for each in rounds), samples)


def table(sums: list[Sum]) -> list[tuple[str, list[float]]]:
    """Rows of nanoseconds per word, a column for each run: the groups, the part that perf missed, and last the CPU, which is
    their sum.
    """
    columns = [each.groups() for each in sums]
    rows = [
        (group, [each.nanoseconds(groups[group]) for each, groups in zip(sums, columns)])
        for group in ORDER
        if any(groups[group] for groups in columns)
    ]
    cpu = [each.cpu_seconds / each.words * 1e9 for each in sums]
    seen = [each.nanoseconds(each.samples.total()) for each in sums]
    rows.append(("not sampled", [whole - part for whole, part in zip(cpu, seen)]))
    rows.append(("CPU", cpu))
    return rows


def print_table(sums: list[Sum]) -> None:
    """The groups of all runs side by side."""
    rows = table(sums)
    _, whole = rows[-1]
    own = [sum(values[run] for group, values in rows if group in OWN) for run in range(len(sums))]
    print(f"\n{'ns a word, and of the CPU':<38}" + "".join(f"{name:>18}" for name in RUNS.values()))
    for group, values in [*rows, ("of it in the compiled core", own)]:
        texts = (f"{value:>10,.1f}{value / all_of:>8.1%}" for value, all_of in zip(values, whole))
        print(f"{group:<38}" + "".join(texts))


def print_symbols(name: str, run: Sum) -> None:
    """The functions with the most samples."""
    functions: Counter[tuple[str, str]] = Counter()
    for sample, times in run.samples.items():
        functions[group_of(sample), sample.function] += times
    print(f"\nBy function, {name}\n{'ns/word':>8}{'share':>8}")
    for (group, function), times in functions.most_common(SYMBOLS):
        value = run.nanoseconds(times)
        print(f"{value:>8.1f}{value * run.words / run.cpu_seconds / 1e9:>8.1%}  {group}: {function}")


def main() -> None:
    """Print where the time goes, or sample one run in a child process."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--sentences", type=int, default=300_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--once", choices=RUNS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.once:
        answer(measure(options.once, options.sentences, options.seed))
        return
    why = perf.trouble() if CHOICE.compiled else f"the core that runs is {CHOICE}: see worker_profile.py"
    if why:
        print(why, file=sys.stderr)
        sys.exit(CANNOT)
    print(machine())
    arguments = ("--sentences", options.sentences, "--seed", options.seed)
    taken: dict[str, list[dict[str, Any]]] = {run: [] for run in RUNS}
    for _ in range(options.rounds):
        for run, rounds in taken.items():
            rounds.append(ask(__name__, *arguments, "--once", run))
    sums = [add(rounds) for rounds in taken.values()]
    print(f"{options.sentences:,} sentences (seed {options.seed}), {options.rounds} rounds in turn")
    for name, each in zip(RUNS.values(), sums):
        print(f"{name}: {each.words:,} words, {each.samples.total():,} samples")
    print_table(sums)
    for name, each in zip(RUNS.values(), sums):
        print_symbols(name, each)
