"""`squall history`: the versions of a topology that are kept, and how each of them ended."""

from __future__ import annotations

import json
import sys
from typing import Final

import click

from squall.api.versions import HistoryAnswer, VersionEntry
from squall_cli.cluster.cluster_client import ClusterOptions, cluster_options
from squall_cli.cluster.events import own_paths
from squall_cli.commands import completion
from squall_cli.terminal.formats import cropped_inside, known_moment
from squall_cli.terminal.tables import TableColumn, show, table_of

_STYLES: Final = {"running": "good", "on trial": "warn", "rolled back": "bad"}
#: What is said besides the state of a version.
_ADDED: Final = {"on trial": ", on trial"}
#: How many digits of a SHA-256 are shown.
_DIGITS: Final = 12
#: The width to which STATE is cut, also in a pipe: the reason for a rollback may be long. `--json` has all of it.
_WIDEST_STATE: Final = 80
COLUMNS: Final[tuple[TableColumn[VersionEntry], ...]] = (
    TableColumn("VERSION", lambda each: each.id, elastic=True),
    TableColumn("SUBMITTED", lambda each: known_moment(each.submitted), rank=1),
    TableColumn("BY", lambda each: each.by or "-", elastic=True, rank=4),
    TableColumn("CODE", lambda each: (each.code or "-")[:_DIGITS], rank=3),
    TableColumn(
        "STATE",
        lambda each: (cropped_inside(state_of(each), _WIDEST_STATE), _STYLES.get(each.how, "")),
        elastic=True,
    ),
    TableColumn("OPTIONS", lambda each: options_of(each) or "-", elastic=True, rank=2),
)


@click.command()
@completion.name_argument
@cluster_options
def history(cluster: ClusterOptions, name: str) -> None:
    """Show the versions of a topology: when and by whom each was submitted, how it ended, and what -o and rebalance set.

    The newest version comes first. The last versions that were replaced or rolled back are kept (nimbus.versions.keep), until
    the topology is killed.

    \b
    Examples:
      squall history word-count
      squall history word-count --json | jq -r '.versions[] | [.id, .how] | @tsv'
    """
    with cluster.asked(name) as client:
        answer, shown = client.read_json(HistoryAnswer, "topologies", name, "history")
    if cluster.answer_list(shown, answer.versions, ""):
        show(table_of(COLUMNS, answer.versions), sys.stdout)


def state_of(version: VersionEntry) -> str:
    """Return the state of the present version, or how a version ended."""
    said = version.how if version.state is None else version.state
    said += _ADDED.get(version.how, "")
    if version.repeats:
        said = f"{said}, again {version.repeats}"
    return said if version.error is None else f"{said}: {own_paths(version.error)}"


def options_of(version: VersionEntry) -> str:
    """Return what operators set, as it is typed."""
    return " ".join(f"{key}={json.dumps(value)}" for key, value in version.options.items())
