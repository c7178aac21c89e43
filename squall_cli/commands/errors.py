"""`squall errors`: the reports of errors in a topology's own code, the newest last."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click

from squall_cli import cluster_client, completion
from squall_cli.figures import moment
from squall_cli.said import own_paths
from squall_cli.screen import painted, styles_of
from squall_cli.tables import harmless

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
    from squall.http_client import at

    with cluster_client.about(client, name):
        answer = client.get(at("topologies", name, "errors"), component=component)
        components = client.get(at("topologies", name))["components"]
    if as_json:
        click.echo(json.dumps(answer, indent=2))
        return
    found = sorted(answer["errors"], key=lambda report: float(report["time"]))
    if not found:
        whose = name if component is None else f"{component} of {name}"
        click.echo(f"{whose} has reported no errors.", err=True)
        return
    styles = styles_of(sys.stdout)
    for number, report in enumerate(found):
        first, *rest = harmless(own_paths(str(report["text"]))).splitlines()
        when = moment(float(report["time"]))
        lines = [painted(((when, "dim"), (" ", ""), (first, "bad")), styles), *rest]
        click.echo(("\n" if number else "") + "\n".join(lines))
    for line in earlier(found, components):
        click.echo(line, err=True)


def earlier(found: Sequence[Mapping[str, Any]], components: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """For each component that had more errors than are shown, how many there were."""
    shown: Counter[str] = Counter()
    for report in found:
        shown[str(report["component"])] += int(report["times"])
    for component, count in shown.items():
        total = int(components[component]["errors"]) if component in components else 0
        if total > count:
            yield f"{harmless(component)}: the latest {count:,} of {total:,} errors; those before are not kept"
