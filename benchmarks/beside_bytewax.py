"""The word count by Squall, by Bytewax and by hand, in turn on the same sentences, with a plot.

Bytewax runs in an environment of its own (`.venv-bytewax`, created from the package index if it is missing), in one process and
in two (see `bytewax_count.py` for its two ways to count). Without recovery, the counts of a process that dies are lost; with
recovery, states are written to disk each second, and after a death both processes resume from there. Squall tracks and acks
every word, and encrypts between workers; it has no snapshots of states. So each of the two keeps promises that the other does
not make. All counts are compared with those of a plain loop.

    python -m benchmarks beside_bytewax [--rounds 3] [--sentences 300000] [--plot benchmarks/word_count.png]
"""

from __future__ import annotations

import argparse
import json
import socket
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks import cores
from benchmarks.child import ROOT, machine, spread
from benchmarks.sentences import sentences
from benchmarks.word_count import rate

BYTEWAX = "bytewax==0.21.1"
ENVIRONMENT = ROOT / ".venv-bytewax"
SCRIPT = Path(__file__).with_name("bytewax_count.py")
PLOT = Path(__file__).with_name("word_count.png")
PATIENCE = 300
"""Seconds after which a run of Bytewax is given up."""
SNAPSHOT_SECONDS = 1.0
#: Bytewax's variants: how it counts, in how many processes, with or without recovery.
WAYS = {
    f"Bytewax {way}, {'two processes' if processes == 2 else 'one process'}{', snapshots' if snapshots else ''}": (
        {"count_final": "final", "fold_final": "fold"}[way],
        processes,
        snapshots,
    )
    for way, snapshots in (("count_final", False), ("fold_final", False), ("fold_final", True))
    for processes in (1, 2)
}
COLOURS = {"Bytewax": "#d08a2c", "Squall": "#2c6fb0", "by hand": "#8a8a8a"}

Rounds = list[dict[str, dict[str, Any]]]


def main() -> None:
    """Run everything in turn, print a table, draw the plot."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sentences", type=int, default=300_000, help="Squall in one process: a third of it")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--pending", type=int, default=1_000, help="sentences a worker of Squall may have pending"
    )
    parser.add_argument("--plot", type=Path, default=PLOT)
    options = parser.parse_args()
    python = bytewax_python()
    where = machine()
    print(where)
    print(
        f"{BYTEWAX}; {options.sentences:,} sentences (seed {options.seed}), {options.rounds} rounds in turn; "
        f"median (least to greatest); counts equal those of a plain loop\n",
        flush=True,
    )
    expected = Counter(word for line in sentences(options.sentences, options.seed) for word in line.split())
    rounds = [one_round(python, expected, options) for _ in range(options.rounds)]
    print(f"{'':<44}{'words/s':>36}{'CPU s/million words':>24}{'MB':>8}")
    for name in rounds[0]:
        runs = [each[name] for each in rounds]
        rates, cpu = spread([rate(run) for run in runs]), spread([cpu_of(run) for run in runs], ".2f")
        print(f"{name:<44}{rates:>36}{cpu:>24}{max(run['peak_rss'] for run in runs):>8.0f}")
    draw(rounds, where, options)
    print(f"\nplot: {options.plot}")


def cpu_of(run: dict[str, Any]) -> float:
    """CPU seconds per million words."""
    return float(run["cpu_seconds"] / run["words"] * 1e6)


def one_round(python: Path, expected: Counter[str], options: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """Run each variant once."""
    taken = {name: bytewax(python, *way, expected, options) for name, way in WAYS.items()}
    for variant in cores.variants():
        if variant.name != "squall-untracked":
            name = f"Squall {variant.text}, acked" if variant.name.startswith("squall") else variant.text
            taken[name] = cores.run(variant, options)
    return taken


def bytewax_python() -> Path:
    """Return the interpreter of Bytewax's environment, which is created if it is missing."""
    python = ENVIRONMENT / "bin" / "python"
    there = (
        f"from importlib.metadata import version; assert version('bytewax') == '{BYTEWAX.partition('==')[2]}'"
    )
    found = (
        python.exists() and not subprocess.run([python, "-c", there], stderr=subprocess.DEVNULL).returncode
    )
    if not found:
        print(f"making {ENVIRONMENT} with {BYTEWAX} ...", flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", ENVIRONMENT], check=True)
        subprocess.run(
            [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", BYTEWAX], check=True
        )
    return python


def bytewax(
    python: Path,
    way: str,
    processes: int,
    snapshots: bool,
    expected: Counter[str],
    options: argparse.Namespace,
) -> dict[str, Any]:
    """Return one run and its figures; its counts are checked."""
    with tempfile.TemporaryDirectory(prefix="squall-benchmark-") as folder:
        arguments = ["--way", way, "--sentences", str(options.sentences), "--seed", str(options.seed)]
        if processes > 1:
            arguments += ["--addresses", *(f"127.0.0.1:{port}" for port in free_ports(processes))]
        if snapshots:
            arguments += ["--recovery", recovery_folder(python, folder, processes)]
            arguments += ["--snapshots", str(SNAPSHOT_SECONDS)]
        outs = [Path(folder, f"{index}.json") for index in range(processes)]
        children = [
            subprocess.Popen(
                [python, SCRIPT, *arguments, "--process", str(index), "--out", out],
                cwd=ROOT,
                stderr=subprocess.PIPE,
                text=True,
            )
            for index, out in enumerate(outs)
        ]
        try:
            for child in children:
                _, errors = child.communicate(timeout=PATIENCE)
                if child.returncode:
                    raise RuntimeError(f"Bytewax ended with status {child.returncode}: {errors[-2000:]}")
        finally:
            for child in children:
                child.kill()
        return checked([json.loads(out.read_text()) for out in outs], expected)


def recovery_folder(python: Path, folder: str, processes: int) -> str:
    """Return a folder for snapshots, created before the processes look for it."""
    recovery = Path(folder, "recovery")
    recovery.mkdir()
    subprocess.run([python, "-m", "bytewax.recovery", recovery, str(processes)], check=True)
    return str(recovery)


def checked(ends: list[dict[str, Any]], expected: Counter[str]) -> dict[str, Any]:
    """Return the figures of a run, if its counts are those of a plain loop."""
    counted: dict[str, int] = {}
    for end in ends:
        if counted.keys() & end["counts"].keys():
            raise AssertionError("a word was counted by two processes")
        counted.update(end["counts"])
    if counted != expected:
        raise AssertionError(
            f"Bytewax counted {sum(counted.values()):,} words, a plain loop {sum(expected.values()):,}"
        )
    return {
        "words": sum(counted.values()),
        "seconds": max(end["finished"] for end in ends) - min(end["begun"] for end in ends),
        "cpu_seconds": sum(end["cpu_seconds"] for end in ends),
        "peak_rss": max(end["peak_rss"] for end in ends),
    }


def free_ports(count: int) -> list[int]:
    """Free ports."""
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in held]
    for each in held:
        each.close()
    return ports


def draw(rounds: Rounds, where: str, options: argparse.Namespace) -> None:
    """Draw bars of the median words/s; the thin lines reach from the least to the greatest value."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    names = list(rounds[0])
    rates = [sorted(rate(each[name]) / 1e6 for each in rounds) for name in names]
    medians = [values[len(values) // 2] for values in rates]
    errors = [
        [median - values[0] for median, values in zip(medians, rates)],
        [values[-1] - median for median, values in zip(medians, rates)],
    ]
    colours = [next(colour for start, colour in COLOURS.items() if name.startswith(start)) for name in names]
    figure, axes = pyplot.subplots(figsize=(11, 6.5))
    bars = axes.barh(names, medians, xerr=errors, color=colours, ecolor="#333333", capsize=2)
    axes.bar_label(bars, [f"{median:.2f}" for median in medians], padding=6)
    axes.invert_yaxis()
    axes.set_xlabel("million words a second")
    axes.set_title("Word count: the same sentences, counts checked")
    axes.margins(x=0.12)
    axes.spines[["top", "right"]].set_visible(False)
    figure.text(
        0.01,
        0.01,
        "Squall: every word tracked, every sentence acked (at least once); workers speak CURVE; no snapshots of state.\n"
        f"{BYTEWAX.replace('==', ' ')}: no acks. Without snapshots a death loses the counts; with them (each "
        f"{SNAPSHOT_SECONDS:g} s) it resumes from the last.\n"
        "count_final adds up a batch's equal words before they are sent; fold_final and Squall send each word to where it is "
        f"counted.\nBy hand: plain Python, every sentence acked, no timeouts, replays or recovery.   {where}",
        fontsize=7.5,
        va="bottom",
    )
    figure.tight_layout(rect=(0, 0.1, 1, 1))
    figure.savefig(options.plot, dpi=120)
