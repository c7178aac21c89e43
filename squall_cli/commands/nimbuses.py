"""`squall nimbuses`: the masters of a cluster, their keys, and who has a copy of the operators' token."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Final

import click

from squall.api.cluster_answers import NimbusesAnswer, NimbusMember
from squall_cli.cluster.cluster_client import ClusterOptions, cluster_options
from squall_cli.terminal.formats import known_moment, plural
from squall_cli.terminal.lines import echo
from squall_cli.terminal.tables import TableColumn, show, table_of

NOTHING: Final = "There are no Nimbuses; `squall nimbus` starts one."
_STYLES: Final = {"leading": "good", "standby": "dim", "away": "warn"}
COLUMNS: Final[tuple[TableColumn[NimbusMember], ...]] = (
    TableColumn("ID", lambda each: each.id, elastic=True),
    TableColumn("STATE", lambda each: (each.state, _STYLES[each.state])),
    TableColumn("SINCE", lambda each: known_moment(each.since), rank=3),
    TableColumn("ADDRESS", lambda each: each.url or "-", elastic=True, rank=1),
    TableColumn("TOKEN", lambda each: "yes" if each.has_token else "no", rank=2),
    TableColumn("SQUALL", lambda each: each.versions.get("squall", "-"), rank=4),
    TableColumn("KEY", lambda each: each.key),
)


@click.command()
@cluster_options
def nimbuses(cluster: ClusterOptions) -> None:
    """List the Nimbuses of a cluster, with the fingerprints of their keys.

    TOKEN says whether the operators' token is sealed to this key, so that its owner can open it. A Nimbus that is away is not
    registered, but has a copy of the token. Each Nimbus logs its own key when it starts: compare them if you do not know an
    entry.

    \b
    Examples:
      squall nimbuses
      squall nimbuses --json | jq -r '.nimbuses[] | [.id, .key] | @tsv'
    """

    with cluster.asked() as client:
        answer, shown = client.read_json(NimbusesAnswer, "nimbuses")
    if not cluster.answer_list(shown, answer.nimbuses, NOTHING):
        return
    show(table_of(COLUMNS, sorted(answer.nimbuses, key=lambda each: each.id)), sys.stdout)
    if sys.stdout.isatty():
        echo(f"\n{summary(answer.nimbuses, answer.why)}")
    else:
        echo(summary(answer.nimbuses, answer.why), err=True)  # stdout has only the table, for pipes


def summary(there: Sequence[NimbusMember], why: str | None = None) -> str:
    """Return the number of Nimbuses, who leads, and how many others can open the token. `why`: why none leads."""
    up = [each for each in there if each.state != "away"]
    leader = next((each.id for each in up if each.state == "leading"), None)
    leads = "none leads" if leader is None else f"{leader} leads"
    away = len(there) - len(up)
    absent = f"; {plural(away, 'other')} can open the operators' token" if away else ""
    reason = "" if why is None else f". {why}"
    return f"{plural(len(up), 'Nimbus', 'Nimbuses')}; {leads}{absent}{reason}"
