"""Hashes of transcripts: bad links and random topologies from seeds, to see that a change has changed nothing.

    SQUALL_PURE=1 python -m tests.frozen.transcript_hashes --jobs 2                # compare all frozen seeds: minutes
    SQUALL_PURE=1 python -m tests.frozen.transcript_hashes --seeds 0-299 --jobs 2  # compare some of them
    python -m tests.frozen.transcript_hashes --kinds links --tell 17               # one transcript, to compare with another
    SQUALL_PURE=1 python -m tests.frozen.transcript_hashes --seeds 0-2999 --write  # freeze what is not frozen yet

`data/6407a8e/transcripts.json` has the hashes of 6,000 seeds: 3,000 of links, 3,000 of stories, made by the code of commit
6407a8e. To print a transcript of then, check out that commit elsewhere, copy the modules that are imported here, and give
`current_wire.py` the names of then. Transcripts of whole clusters are not frozen any more: since then, tasks are placed evenly
over workers, which changes most of them. `tests/simulation` checks the promises of clusters.

They are compared with the plain core (`SQUALL_PURE=1`), which made them. The two cores pickle some values in different lengths,
and faults draw the byte that they change by the length of a message: so their transcripts may differ (seed 121 of links does).

A transcript lists the actions of machines: writes to the store, orders, heartbeats, messages, acks, failures, counts, each with
its time. It has no sentences and no names of classes. A difference is found by its block of 100 seeds, then by its seed, then
by its first line. Must not know: the contents of a transcript.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from multiprocessing import get_context
from typing import Any, Final

from tests.frozen import transcripts_of_links, transcripts_of_stories
from tests.frozen.frozen_data import DATA, load, save
from tests.simulation.run import quiet
from topology_api.core_choice import CHOICE

KINDS: Final[Mapping[str, Callable[[int], list[str]]]] = {
    "links": transcripts_of_links.transcript,
    "stories": transcripts_of_stories.transcript,
}
BLOCK: Final = 100
#: Seeds from 0 on whose hashes are stored individually.
SINGLE: Final = 100
NAME: Final = "transcripts"


def hash_of(kind: str, seed: int) -> str:
    """The hash of one transcript."""
    hashed = hashlib.sha256()
    with quiet():
        for line in KINDS[kind](seed):
            hashed.update(line.encode() + b"\n")
    return hashed.hexdigest()[:16]


def block_of(row: tuple[str, int]) -> tuple[str, int, list[str]]:
    """The hashes of a block of seeds of a kind."""
    kind, first = row
    return kind, first, [hash_of(kind, seed) for seed in range(first, first + BLOCK)]


def combined(hashes: list[str]) -> str:
    """One hash for many."""
    return hashlib.sha256(" ".join(hashes).encode()).hexdigest()[:16]


def rows_of(kinds: list[str], seeds: range, most: Mapping[str, int]) -> list[tuple[str, int]]:
    """The blocks to run, of all kinds in turn. `most`: limit of seeds of a kind."""
    return [
        (kind, first)
        for first in range(seeds.start, seeds.stop, BLOCK)
        for kind in kinds
        if first < most.get(kind, seeds.stop)
    ]


def frozen_rows(kinds: list[str], most: Mapping[str, int]) -> list[tuple[str, int]]:
    """The frozen blocks."""
    frozen = load(NAME)
    seeds = range(max(frozen[kind]["seeds"] for kind in kinds))
    return [
        (kind, first) for kind, first in rows_of(kinds, seeds, most) if str(first) in frozen[kind]["blocks"]
    ]


def tell_all(rows: list[tuple[str, int]], jobs: int) -> Iterator[tuple[str, int, list[str]]]:
    """The hashes of these blocks, as they come."""
    began = time.monotonic()
    with get_context("fork").Pool(jobs, maxtasksperchild=5) as pool:
        for done, (kind, first, hashes) in enumerate(pool.imap_unordered(block_of, rows), 1):
            secs = time.monotonic() - began
            block = f"{kind} {first}-{first + BLOCK - 1}"
            print(f"{block}: {combined(hashes)} ({done} of {len(rows)}, {secs:.0f} s)", flush=True)
            yield kind, first, hashes


def with_block(found: dict[str, Any], kind: str, first: int, hashes: list[str]) -> None:
    """Add a block to the results, and update the hash of all blocks."""
    each = found.setdefault(kind, {"all": "", "seeds": 0, "blocks": {}, "first": []})
    each["blocks"][str(first)] = combined(hashes)
    each["blocks"] = dict(sorted(each["blocks"].items(), key=lambda block: int(block[0])))
    each["all"], each["seeds"] = combined(list(each["blocks"].values())), BLOCK * len(each["blocks"])
    if first < SINGLE:
        each["first"] = hashes[:SINGLE]


def differences(found: Mapping[str, Any], frozen: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Blocks whose hash differs from the frozen one, and those without a frozen one."""
    others: list[str] = []
    unknown: list[str] = []
    for kind, each in found.items():
        for first, hashed in each["blocks"].items():
            then = frozen.get(kind, {}).get("blocks", {}).get(first)
            if then != hashed:
                (unknown if then is None else others).append(f"{kind} {first}-{int(first) + BLOCK - 1}")
    return others, unknown


def seeds_of(text: str) -> range:
    """The seeds of a text such as `0-9999`: whole blocks."""
    first, _, last = text.partition("-")
    seeds = range(int(first), int(last or first) + 1)
    if seeds.start % BLOCK or len(seeds) % BLOCK:
        raise argparse.ArgumentTypeError(f"give whole blocks of {BLOCK} seeds, such as 0-{BLOCK - 1}")
    return seeds


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.frozen.transcript_hashes", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument(
        "--seeds", type=seeds_of, help="which seeds, such as 0-999; by default, all frozen ones"
    )
    parser.add_argument(
        "--kinds", nargs="+", choices=list(KINDS), default=list(KINDS), help="which kinds of runs"
    )
    parser.add_argument("--most", nargs="*", default=[], metavar="KIND=SEEDS", help="fewer seeds of a kind")
    parser.add_argument("--jobs", type=int, default=1, help="in how many processes at a time")
    parser.add_argument("--write", action="store_true", help="freeze what is found")
    parser.add_argument("--tell", type=int, metavar="SEED", help="print the transcripts of one seed")
    options = parser.parse_args()
    if options.tell is not None:
        for kind in options.kinds:
            print(
                f"# {kind} {options.tell}: {hash_of(kind, options.tell)}",
                *KINDS[kind](options.tell),
                sep="\n",
            )
        return 0
    if CHOICE.compiled:
        parser.error("the frozen hashes are those of the plain core: set SQUALL_PURE=1")
    most = {kind: int(count) for kind, count in (each.split("=") for each in options.most)}
    rows = rows_of(options.kinds, options.seeds, most) if options.seeds else frozen_rows(options.kinds, most)
    return freeze(rows, options.jobs) if options.write else compare(rows, options.jobs)


def freeze(rows: list[tuple[str, int]], jobs: int) -> int:
    """Write the hashes of these blocks; existing ones stay."""
    found: dict[str, Any] = load(NAME) if (DATA / f"{NAME}.json").exists() else {}
    left = [(kind, first) for kind, first in rows if str(first) not in found.get(kind, {}).get("blocks", {})]
    for kind, first, hashes in tell_all(left, jobs):
        with_block(found, kind, first, hashes)
        save(NAME, found)
    return 0


def compare(rows: list[tuple[str, int]], jobs: int) -> int:
    """Compare these blocks with the frozen ones."""
    found: dict[str, Any] = {}
    for kind, first, hashes in tell_all(rows, jobs):
        with_block(found, kind, first, hashes)
    for kind, each in found.items():
        print(f"{kind}: {each['all']} of {each['seeds']} seeds")
    others, unknown = differences(found, load(NAME))
    for text, blocks in (("differ from what was frozen", others), ("were never frozen", unknown)):
        print(f"{len(blocks)} blocks {text}", *blocks[:100], sep="\n")
    return int(bool(others))


if __name__ == "__main__":
    sys.exit(main())
