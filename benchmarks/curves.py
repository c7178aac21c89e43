"""The cost of a tuple by the number of tuples and by the number of tasks: both curves should be flat.

A line per point: words, tasks, microseconds per word (wall and CPU, without the cluster's own start), the cluster's start, and
peak memory. A few different sentences are emitted repeatedly, so that the input's memory does not grow.

    python -m benchmarks curves [--seconds 10] [--most-words 10000000]
"""

from __future__ import annotations

import argparse
from typing import Any

from benchmarks.child import answer, ask, machine, peak_rss

WORDS = 9
"""The average number of words in a sentence."""
DIFFERENT = 10_000
"""Different sentences."""
BAR = 24
"""Characters of the longest bar."""


def main() -> None:
    """Print both curves, or measure one point in a child process."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--seconds", type=float, default=10.0, help="end a point of the second curve earlier")
    parser.add_argument("--most-words", type=int, default=10_000_000)
    parser.add_argument("--point", type=int, nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.point:
        words, splits, counters = options.point
        answer(measure(words, splits, counters, options.seconds))
        return
    print(machine())
    sizes = [10**power for power in range(4, 8) if 10**power <= options.most_words]
    print_curve("More tuples", [(words, 1, 2) for words in sizes], 600.0)
    few = min(500_000, options.most_words)
    tasks = (1, 10, 100, 1000)
    print_curve("More tasks that count", [(few, 1, count) for count in tasks], options.seconds)
    halves = [(few, max(1, count // 2), max(1, count // 2)) for count in tasks]
    print_curve("More tasks that split and more that count", halves, options.seconds)


def print_curve(title: str, points: list[tuple[int, int, int]], seconds: float) -> None:
    """Measure the points and print a line and a bar for each."""
    print(f"\n{title}")
    head = (
        ("words", 12),
        ("split", 7),
        ("count", 7),
        ("start s", 9),
        ("us/word", 9),
        ("CPU us", 8),
        ("MB", 7),
    )
    print("".join(f"{name:>{width}}" for name, width in head))
    rows = [(point, ask(__name__, "--seconds", seconds, "--point", *point)) for point in points]
    longest = max(got["streaming"] / got["words"] for _, got in rows)
    for (_, splits, counters), got in rows:
        words, streaming = got["words"], got["streaming"]
        start, cost, cpu = (
            got["seconds"] - streaming,
            streaming / words * 1e6,
            got["cpu_seconds"] / words * 1e6,
        )
        print(
            f"{words:>12,}{splits:>7,}{counters:>7,}{start:>9.3f}{cost:>9.2f}{cpu:>8.2f}{got['peak_rss']:>7.0f}"
            f"  {'#' * max(1, round(BAR * streaming / words / longest))}",
            flush=True,
        )


def measure(words: int, splits: int, counters: int, seconds: float) -> dict[str, Any]:
    """Return one point, in this process."""
    from benchmarks import topology

    job = topology.Job(words // WORDS, DIFFERENT, 1, splits, counters, seconds)
    return {**topology.run(job, topology.Endless).as_dict(), "peak_rss": peak_rss()}
