"""`squall explain FILE`: what a topology guarantees between each spout and each sink, and what would make it exactly once.

Nothing is started. Must not know: the rules (`topology_api.guarantees` decides), how topologies are found.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import IO, Any, Final

import click

from squall.settings import merged
from squall_cli.cluster.cluster_client import config_option
from squall_cli.commands.completion import settings_option
from squall_cli.options.kinds import files
from squall_cli.options.site import read_layers
from squall_cli.packing.loading import load_topology
from squall_cli.terminal.lines import Piece, write, write_json, write_lines
from squall_cli.terminal.tables import TableColumn, show, table_of
from squall_cli.terminal.user_output import keep_stdout
from topology_api.epoch_rules import REQUIRE, STATE_PATH, is_auto, keepers
from topology_api.guarantees import EXACTLY_ONCE, NOTES, Guarantees, PairGuarantee, guarantees
from topology_api.topology import Topology
from topology_api.wording import listed

#: The levels, the best first, with their styles.
STYLES: Final = {EXACTLY_ONCE: "good", "at-least-once": "warn", "at-most-once": "bad"}
LEVELS: Final = tuple(STYLES)


def level_of(pair: PairGuarantee) -> Piece:
    """Return the level as people write it, with its style."""
    return pair.level.replace("-", " "), STYLES[pair.level]


COLUMNS: Final = (
    TableColumn[PairGuarantee]("SPOUT", lambda pair: pair.spout),
    TableColumn[PairGuarantee]("THROUGH", lambda pair: ", ".join(pair.through) or "-", elastic=True, rank=1),
    TableColumn[PairGuarantee]("SINK", lambda pair: pair.sink),
    TableColumn[PairGuarantee]("WRITTEN OUTSIDE", level_of),
    TableColumn[PairGuarantee](
        "COUNTED IN STATE",
        lambda pair: "; ".join(dict.fromkeys(state.short for state in pair.states)) or "-",
        elastic=True,
        rank=2,
    ),
)


@click.command()
@click.argument("source", metavar="FILE[:NAME]", shell_complete=files)
@click.argument("arguments", metavar="[-- ARGS]...", nargs=-1, type=click.UNPROCESSED, shell_complete=files)
@settings_option
@config_option
@click.option("--json", "json_wanted", is_flag=True, help="Print the answer as JSON.")
def explain(
    source: str, arguments: tuple[str, ...], settings: tuple[str, ...], config: str | None, json_wanted: bool
) -> None:
    """Show what a topology guarantees: how often a tuple counts in state, and in what is written outside.

    FILE is loaded as by `squall run`; nothing is started. The answer is about a topology on a cluster: `squall run` and tests
    keep state in memory unless `topology.state.path` names a place. For each spout and each sink (a bolt that no other reads)
    that it reaches, the answer names what holds, and what keeps it from exactly once.

    \b
    Examples:
      squall explain count_words.py
      squall explain count_words.py -o topology.state.path=file:///var/state
      squall explain count_words.py -o topology.require=exactly-once --json

    Exit status: 0 done; 1 if the topology does not have what `topology.require` asks for, or does not start with its
    `topology.state.path`; 2 wrong usage.
    """
    layers = read_layers(config, os.environ, settings)
    out = keep_stdout() if json_wanted else sys.stdout  # before the user's file runs: it may print
    topology = load_topology(source, arguments)
    conf, _ = merged(topology, layers.files, layers.environment, layers.overrides, judged=False)
    found, notes = guarantees(topology, conf), notes_on(topology, conf)
    missed = conf[REQUIRE] is not None and any(pair.level != EXACTLY_ONCE for pair in found.pairs)
    if json_wanted:
        write_json(out, as_json(found, conf[REQUIRE], notes))
    else:
        print_guarantees(found, out, notes)
    if found.refused:
        write(sys.stderr, "squall explain: the topology is refused, since " + "; ".join(found.refused))
    elif missed:
        write(sys.stderr, f"squall explain: {REQUIRE} is {conf[REQUIRE]}, and the topology gives less")
    sys.exit(1 if found.refused or missed else 0)


def notes_on(topology: Topology, conf: Mapping[str, object]) -> tuple[str, ...]:
    """Return what is true of a topology, and easily forgotten."""
    keeping = keepers(topology)
    if not (is_auto(conf) and keeping):
        return NOTES
    return (
        f"{STATE_PATH} is auto, and the topology keeps state ({listed(keeping)}): on a cluster of one host in a folder of its "
        f"supervisor. On a cluster of several hosts, `squall submit` wants -o {STATE_PATH}=hdfs://host:port/folder, or "
        "file:///folder of a file system that all hosts have, or null, for memory. `squall run` keeps it in memory.",
        *NOTES,
    )


def as_json(found: Guarantees, required: object, notes: Sequence[str]) -> dict[str, Any]:
    """Return the answer for machines. Each obstacle has its sentence, too."""
    pairs = []
    for pair in found.pairs:
        obstacles = [{**asdict(each), "text": each.text} for each in pair.obstacles]
        pairs.append({**asdict(pair), "obstacles": obstacles})
    return {
        "topology": found.topology,
        "require": required,
        "refused": list(found.refused),
        "pairs": pairs,
        "notes": list(notes),
    }


def print_guarantees(found: Guarantees, out: IO[str], notes: Sequence[str]) -> None:
    """Print a table with a row for each pair, and below it the sentences."""
    if not found.pairs:
        write(
            out, f"{found.topology}: no spout reaches a bolt, so nothing is written and nothing is counted."
        )
        return
    lowest = max(found.pairs, key=lambda pair: LEVELS.index(pair.level))
    number = len(found.pairs)
    of_all = f" is the lowest level of {number} pairs of a spout and a sink" if number > 1 else ""
    write_lines(out, [((f"{found.topology}: ", "head"), level_of(lowest), (of_all, "")), ()])
    show(table_of(COLUMNS, found.pairs), out)
    for pair in found.pairs:
        write(out, "")
        write_lines(out, [((f"{pair.spout} -> {pair.sink}: ", "head"), level_of(pair))])
        for line in sentences(pair):
            write(out, f"  {line}")
    if found.obstacles:
        write(out, "\nFor exactly once:")
        for obstacle in found.obstacles:
            write(out, f"  - {obstacle.text}")
    write(out, "\nNote:")
    for note in notes:
        write(out, f"  - {note}")


def sentences(pair: PairGuarantee) -> Iterator[str]:
    """Yield what holds for a pair, one sentence a line."""
    yield f"{pair.outside}."
    for condition in pair.conditions:
        yield f"  if {condition}"
    for state in pair.states:
        yield f"{state.text}."
    if pair.obstacles:
        lowered = dict.fromkeys(each.subject for each in pair.obstacles)
        yield f"Lowered by {', '.join(lowered)}."
