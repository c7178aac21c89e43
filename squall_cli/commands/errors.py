"""`squall errors`: the reports of errors in a topology's own code, the newest last."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import click

from squall_cli.cluster import cluster_client
from squall_cli.cluster.events import own_paths
from squall_cli.commands import completion
from squall_cli.terminal.formats import moment
from squall_cli.terminal.screen import painted, styles_of
from squall_cli.terminal.tables import harmless

if TYPE_CHECKING:
    from squall.api.answers import ErrorEntry
    from squall.status import ComponentStatus

HELP = """Show the errors that a topology's components reported, the newest last.

The latest ones of each component are kept. Times are those of the hosts where they happened.

\b
Examples:
  squall errors word-count
  squall errors word-count --component split
"""


@click.command(help=HELP)
@completion.name_argument
@click.option(
    "--component", metavar="ID", shell_complete=completion.components, help="Only this component's."
)
@cluster_client.options
def errors(name: str, component: str | None, nimbus: str | None, config: str | None, as_json: bool) -> None:
    client = cluster_client.connect(nimbus, config)
    from squall.api.answers import ErrorsAnswer, TopologyAnswer
    from squall.http.client import at

    with cluster_client.about(client, name):
        answer, shown = client.read_json(ErrorsAnswer, at("topologies", name, "errors"), component=component)
        components = client.read(TopologyAnswer, at("topologies", name)).components
    if as_json:
        click.echo(json.dumps(shown, indent=2))
        return
    found = sorted(answer.errors, key=lambda report: report.time)
    if not found:
        whose = name if component is None else f"{component} of {name}"
        click.echo(f"{whose} has reported no errors.", err=True)
        return
    styles = styles_of(sys.stdout)
    for number, report in enumerate(found):
        first, *rest = harmless(own_paths(report.text)).splitlines()
        when = moment(report.time)
        lines = [painted(((when, "dim"), (" ", ""), (first, "bad")), styles), *rest]
        click.echo(("\n" if number else "") + "\n".join(lines))
    for line in earlier(found, components):
        click.echo(line, err=True)


def earlier(found: Sequence[ErrorEntry], components: Mapping[str, ComponentStatus]) -> Iterator[str]:
    """For each component that had more errors than are shown, how many there were."""
    shown: Counter[str] = Counter()
    for report in found:
        shown[report.component] += report.times
    for component, count in shown.items():
        total = components[component].errors if component in components else 0
        if total > count:
            yield f"{harmless(component)}: the latest {count:,} of {total:,} errors; those before are not kept"
