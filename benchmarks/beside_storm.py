"""The word count by Squall and by Apache Storm, in turn, each over two workers on this machine.

Storm runs as a real cluster: ZooKeeper, Nimbus, one supervisor and two worker JVMs, which communicate by Netty over the
loopback. The topology is that of `two_workers.py` in Java (`benchmarks/storm`): the same sentences, two spouts with message
ids, two Splits (local or shuffle), two Counts by key, one acker in each worker. The figures are the same: words a second from
when the spouts begin to the last ack, and the CPU of the two workers in that time. Counts, acks and the placement of tasks are
checked.

Concessions to Storm:
- Before the clock starts, its workers count `--warm-up` sentences. Their rate, with cold JVMs, has a column of its own; so does
  the rate in the last two thirds of the measured time. Squall's workers are measured from their first sentence on.
- Besides Storm's defaults (except for `--pending`) it is measured with settings for a machine with few cores (`TUNED`). Bigger
  batches between threads (`topology.producer.batch.size`) do not work: tuples from another worker then wait in a batch that is
  never flushed, and with a limit of pending trees the topology stops (2.8.3).
- Its bolts anchor and ack themselves, which is cheaper than BaseBasicBolt. Its workers do not encrypt unless the line says TLS;
  Squall's always use CURVE.

What remains unfair to Storm: few cores. A tuple passes through seven threads of a JVM, which has some forty in all, compilers
and collectors included; a Squall worker works in one. Unfair to Squall: Java runs Split and Count themselves faster than Python
does. The daemons' CPU is shown separately. All this is a word count on one machine, no more.

    python -m benchmarks beside_storm [--rounds 3] [--sentences 300000] [--warm-up 300000]

Needs Linux, Java 17 and Maven, which fetches Storm into `build/storm`.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import cores
from benchmarks.child import machine, spread
from benchmarks.sentences import sentences
from benchmarks.storm_cluster import StormCluster, built, cpu_seconds, peak_rss_of, tls_settings
from benchmarks.word_count import rate

NAME = "word-count"
PATIENCE = 300.0
"""Seconds after which a phase of Storm is given up."""
REST = 1.0
"""Seconds between the warm-up and the clock's start: compilers of the JVMs finish what they are at."""


class Way(NamedTuple):
    """A configuration of Storm: spouts (and Splits), the grouping of Split, topology settings, TLS between workers."""

    spouts: int
    grouping: str
    options: dict[str, Any]
    tls: bool = False


CHILD = "topology.worker.childopts"
TUNED = {
    # Idle bolts sleep sooner: by default each polls its queue a thousand times first, and takes a core from the busy ones.
    "topology.bolt.wait.progressive.level2.count": 10,
    "topology.stats.sample.rate": 0.001,
    CHILD: "-XX:+UseParallelGC",
}
NO_NAMES = "-Dorg.apache.storm.shade.io.netty.handler.ssl.defaultEndpointVerificationAlgorithm=NONE"
"""Without it no TLS: Storm 2.8.3 does not tell its Netty whom it connects to, which refuses then. Certificates are checked."""
STORM = {
    "Storm, its defaults": Way(2, "local", {}),
    "Storm, tuned": Way(2, "local", TUNED),
    "Storm, tuned, TLS": Way(2, "local", {**TUNED, CHILD: f"{TUNED[CHILD]} {NO_NAMES}"}, tls=True),
}
SQUALL = cores.Variant("squall-workers", "compiled", 2)
SQUALL_NAME = "Squall, compiled, CURVE"

Run = dict[str, Any]
Rounds = list[dict[str, Run]]


def main() -> None:
    """Run everything in turn, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sentences", type=int, default=300_000)
    parser.add_argument("--warm-up", type=int, default=300_000, help="sentences that Storm counts beforehand")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--pending", type=int, default=1_000, help="sentences a spout may have pending")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))
    version = built()
    print(machine())
    print(
        f"Storm {version}; {options.sentences:,} sentences (seed {options.seed}), {options.warm_up:,} more before them to warm "
        f"Storm up, {options.pending:,} pending a spout, {options.rounds} rounds in turn;\n"
        "median (least to greatest); counts equal those of a plain loop, each sentence acked once\n",
        flush=True,
    )
    rounds = [one_round(options) for _ in range(options.rounds)]
    print_table(rounds)


def one_round(options: argparse.Namespace) -> dict[str, Run]:
    """Run each variant once."""
    taken = {SQUALL_NAME: cores.run(SQUALL, options)}
    for name, way in STORM.items():
        taken[name] = storm(way, options)
    return taken


def print_table(rounds: Rounds) -> None:
    """A line per variant, then the ratios."""
    heads = ("words/s", "of the last two thirds", "cold", "CPU s/million words", "MB")
    print(f"{'':<26}{heads[0]:>32}{heads[1]:>32}{heads[2]:>32}{heads[3]:>24}{heads[4]:>7}")
    for name in rounds[0]:
        runs = [each[name] for each in rounds]
        warm = "later" in runs[0]
        columns = [
            spread([rate(run) for run in runs]),
            spread([run["later"] for run in runs]) if warm else "-",
            spread([run["cold"] for run in runs]) if warm else "-",
        ]
        cpu, memory = spread([cost(run) for run in runs], ".2f"), max(run["peak_rss"] for run in runs)
        print(f"{name:<26}{''.join(f'{text:>32}' for text in columns)}{cpu:>24}{memory:>7.0f}")
    print("\nMB: peak memory of the larger worker\n")
    for name in STORM:
        pairs = [(each[SQUALL_NAME], each[name]) for each in rounds]
        whole = spread([rate(squall) / rate(other) for squall, other in pairs], ".2f")
        later = spread([rate(squall) / other["later"] for squall, other in pairs], ".2f")
        cpu = spread([cost(other) / cost(squall) for squall, other in pairs], ".2f")
        print(f"Squall : {name}: {whole} by time, {later} by time of the last two thirds, {cpu} by CPU")
    control = spread([each[name]["control_cpu_seconds"] for each in rounds for name in STORM], ".2f")
    print(f"CPU s of Storm's daemons while the clock ran, in no figure above: {control}")


def cost(run: Run) -> float:
    """CPU seconds per million words."""
    return float(run["cpu_seconds"] / run["words"] * 1e6)


def storm(way: Way, options: argparse.Namespace) -> Run:
    """Return one run of Storm, in a cluster of its own."""
    with tempfile.TemporaryDirectory(prefix="squall-benchmark-") as folder:
        notes = Path(folder, "notes")
        notes.mkdir()
        lines = sentences(options.sentences, options.seed)
        (notes / "sentences.txt").write_text("".join(f"{line}\n" for line in lines))
        phases = (options.warm_up, options.sentences)
        home = Path(folder, "storm")
        with StormCluster(home, tls_settings(Path(folder)) if way.tls else {}) as cluster:
            settings = {"topology.max.spout.pending": options.pending, **way.options}
            cluster.submit("wordcount.Main", notes, NAME, way.spouts, way.grouping, *phases, options=settings)
            return conduct(cluster, notes, way.spouts, lines, phases)


def conduct(
    cluster: StormCluster, notes: Path, spouts: int, lines: list[str], phases: tuple[int, int]
) -> Run:
    """Let the topology warm up and then count; return the figures, if the counts are right."""

    def found(kind: str, count: int) -> list[dict[str, Any]]:
        return wait_for(notes, kind, count, cluster)

    workers = check_places(found("sentences", spouts), found("split", spouts), found("count", 2))
    (notes / "go-0").touch()
    cold = found("done-0", spouts)
    time.sleep(REST)
    cpu, control = cpu_seconds(workers), cpu_seconds(cluster.daemons())
    (notes / "go-1").touch()
    done = found("done-1", spouts)
    cpu, control = cpu_seconds(workers) - cpu, cpu_seconds(cluster.daemons()) - control
    peak = max(map(peak_rss_of, workers))
    (notes / "go-2").touch()
    check_counts([note["counts"] for note in found("counted", 2)], lines, phases, spouts)
    if wrong := [path.name for kind in ("failed", "twice") for path in notes.glob(f"{kind}-*.json")]:
        raise AssertionError(f"trees failed or were acked twice: {wrong}")
    words = words_of(lines, phases[1], spouts)
    return {
        "words": words,
        "seconds": ended(done) - min(note["begun"] for note in done),
        "later": later_rate([note["stamps"] for note in done], words),
        "cold": words_of(lines, phases[0], spouts) / (ended(cold) - min(note["begun"] for note in cold)),
        "cpu_seconds": cpu,
        "control_cpu_seconds": control,
        "peak_rss": peak,
    }


def wait_for(notes: Path, kind: str, count: int, cluster: StormCluster) -> list[dict[str, Any]]:
    """This many notes of a kind, once they exist."""
    deadline = time.monotonic() + PATIENCE
    while len(paths := sorted(notes.glob(f"{kind}-????.json"))) < count:
        cluster.check()
        if time.monotonic() > deadline or list(notes.glob("failed-*.json")):
            there = sorted(path.name for path in notes.iterdir())
            raise RuntimeError(
                f"no {count} notes of {kind}, or a tree failed; there: {there}\n{cluster.logs()}"
            )
        time.sleep(0.02)
    return [json.loads(path.read_text()) for path in paths]


def ended(notes: list[dict[str, Any]]) -> float:
    """Return the time at which the last sentence was acked."""
    return float(max(note["stamps"][-1] for note in notes))


def later_rate(stamps: list[list[float]], words: int) -> float:
    """Words a second after the first third. Each spout notes when each n-th part of its acks had arrived, with the same n for
    all.
    """
    moments = sorted(moment for each in stamps for moment in each)
    first = len(moments) // 3
    return words * (1 - first / len(moments)) / (moments[-1] - moments[first - 1])


def emitted(lines: list[str], count: int, spouts: int) -> Iterator[tuple[str, int]]:
    """Sentences, and how often each is emitted in a phase of `count`: each spout repeats its own sentences."""
    for index in range(spouts):
        own = lines[index::spouts]
        whole, rest = divmod(len(range(index, count, spouts)), len(own))
        for position, line in enumerate(own):
            yield line, whole + (position < rest)


def words_of(lines: list[str], count: int, spouts: int) -> int:
    """Words of a phase."""
    return sum(len(line.split()) * times for line, times in emitted(lines, count, spouts))


def check_places(*kinds: list[dict[str, Any]]) -> list[int]:
    """Return the process ids of the two workers; checks that each kind of task is spread over both."""
    workers = {note["pid"] for notes in kinds for note in notes}
    places = [len({note["pid"] for note in notes}) for notes in kinds]
    if len(workers) != 2 or places != [min(2, len(notes)) for notes in kinds]:
        raise AssertionError(f"tasks were to be spread over two workers: {kinds}")
    return sorted(workers)


def check_counts(parts: list[dict[str, int]], lines: list[str], phases: tuple[int, ...], spouts: int) -> None:
    """Compare with a plain loop's counts."""
    expected: Counter[str] = Counter()
    for count in phases:
        for line, times in emitted(lines, count, spouts):
            for word in line.split():
                expected[word] += times
    counted = Counter(parts[0])
    counted.update(parts[1])
    if len(counted) != len(parts[0]) + len(parts[1]):
        raise AssertionError("a word was counted by two tasks")
    if counted != expected:
        raise AssertionError(
            f"Storm counted {sum(counted.values()):,} words, a plain loop {sum(expected.values()):,}"
        )
