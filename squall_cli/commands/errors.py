"""`squall errors`: the error reports of a topology, the newest last."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import click

from squall.api.answers import ErrorEntry, ErrorsAnswer
from squall.status import ComponentStatus
from squall_cli.cluster import cluster_client
from squall_cli.cluster.cluster_client import ClusterOptions
from squall_cli.cluster.events import own_paths
from squall_cli.commands import completion
from squall_cli.terminal.formats import moment
from squall_cli.terminal.lines import Line, harmless, write_lines


@click.command()
@completion.name_argument
@click.option(
    "--component", metavar="ID", shell_complete=completion.components, help="Only errors of this component."
)
@cluster_client.options
def errors(cluster: ClusterOptions, name: str, component: str | None) -> None:
    """Show the errors that a topology's components reported, the newest last.

    Only the latest errors of each component are kept. Times are by the clocks of the hosts where the errors happened.

    \b
    Examples:
      squall errors word-count
      squall errors word-count --component split
    """

    with cluster.asked(name) as client:
        answer, shown = client.read_json(ErrorsAnswer, "topologies", name, "errors", component=component)
        components = client.topology(name).components
    whose = name if component is None else f"{component} of {name}"
    if not cluster.answer_list(shown, answer.errors, f"{whose} has reported no errors."):
        return
    found = sorted(answer.errors, key=lambda report: report.time)
    lines: list[Line] = []
    for report in found:
        first, *rest = harmless(own_paths(report.text)).splitlines()
        lines += [(), ((moment(report.time), "dim"), (" ", ""), (first, "bad"))]
        lines += [((line, ""),) for line in rest]
    write_lines(sys.stdout, lines[1:])
    for line in earlier(found, components):
        click.echo(line, err=True)


def earlier(found: Sequence[ErrorEntry], components: Mapping[str, ComponentStatus]) -> Iterator[str]:
    """Yield a line for each component that had more errors than are shown, with the total."""
    shown: Counter[str] = Counter()
    for report in found:
        shown[report.component] += report.times
    for component, count in shown.items():
        total = components[component].errors if component in components else 0
        if total > count:
            yield f"{harmless(component)}: the latest {count:,} of {total:,} errors; earlier ones are not kept"
