"""`squall config`: the settings in force where it is run, and where each comes from; checks them on the way.

What a topology and its components say is not in it: that is known only when the topology is built.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import click

from squall_cli.site import Layers, read_layers, well_formed
from topology_api.options import OPTIONS, defaults


@dataclass(frozen=True)
class Setting:
    name: str
    value: object
    unit: str
    source: str


def settings_in_force(layers: Layers) -> list[Setting]:
    """Every option, then the user's own keys, then what -o says for single components."""
    sources: list[tuple[str, Mapping[str, object]]] = [
        ("default", defaults("daemon")),
        ("site file", layers.site),
        ("environment", layers.environment),
        ("-o", layers.overrides.topology),
    ]
    found: dict[str, Setting] = {}
    for source, conf in sources:
        for name, value in conf.items():
            found[name] = Setting(name, value, OPTIONS[name].unit if name in OPTIONS else "", source)
    for component, conf in layers.overrides.components.items():
        for name, value in conf.items():
            unit = OPTIONS[name].unit if name in OPTIONS else ""
            found[f"{component}:{name}"] = Setting(f"{component}:{name}", value, unit, "-o")
    return list(found.values())


def table(settings: list[Setting]) -> Iterator[tuple[str, bool]]:
    """(line, whether somebody set it) for the head and each setting."""
    rows = [(s.name, json.dumps(s.value), s.unit, s.source) for s in settings]
    head = ("OPTION", "VALUE", "UNIT", "FROM")
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(3)]
    for row in (head, *rows):
        padded = (cell.ljust(width) for cell, width in zip(row, widths))
        yield "  ".join((*padded, row[3])), row[3] not in ("default", "FROM")


@click.command(
    help="Show the settings in force and where each comes from.\n\n"
    "Defaults, then the site's file, the environment (SQUALL_TOPOLOGY_WORKERS=2) and -o, each beating the"
    " one before. A topology's own settings come between the environment and -o. Wrong settings are all"
    " named, and the exit status is 1."
)
@click.option(
    "--config", "site", metavar="FILE", help="The site's file.  [default: conf/squall.yaml, if there]"
)
@click.option(
    "-o",
    "settings",
    metavar="KEY=VALUE",
    multiple=True,
    callback=well_formed,
    help="A setting, or COMPONENT:KEY=VALUE; beats all others.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def config(site: str | None, settings: tuple[str, ...], as_json: bool) -> None:
    layers = read_layers(site, os.environ, settings)
    found = settings_in_force(layers)
    if as_json:
        click.echo(json.dumps({s.name: {"value": s.value, "from": s.source} for s in found}, indent=2))
        return
    for line, is_set in table(found):
        click.secho(line, bold=is_set)
    click.echo(f"\nsite file: {layers.site_file or 'none'}")
