"""`squall config`: the current settings, and where each setting comes from. The command also checks the settings.

Without a name or --nimbus the command shows the settings of this machine. Settings that a topology and its components make in
code are not among them, since these are known only when the topology is built. For a topology on a cluster, and for a Nimbus,
the command asks the cluster, which has merged all settings. Secrets are hidden, so the output can be shared.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Final

import click
import msgspec

from squall.api.answers import ConfigurationsAnswer
from squall.api.cluster_answers import ConfigurationAnswer
from squall.security.redaction import redacted
from squall_cli.cluster.cluster_client import ClusterOptions, cluster_options, echo_json
from squall_cli.commands.completion import not_empty, settings_option, topologies
from squall_cli.options.site import FOLDER_FILE, Layers, read_layers
from squall_cli.terminal.lines import echo, plain
from squall_cli.terminal.tables import TableColumn, lines_of, table
from topology_api.options import OPTIONS, defaults

COLUMNS: Final = [TableColumn[object](head) for head in ("OPTION", "VALUE", "UNIT", "FROM")]


class Setting(msgspec.Struct, frozen=True):
    """One current setting. If it applies to only one component, its name begins with the component's name."""

    name: str
    value: object
    source: str

    @property
    def unit(self) -> str:
        option = OPTIONS.get(self.name.rpartition(":")[2])
        return option.unit if option else ""


def settings_in_force(layers: Layers) -> list[Setting]:
    """Return every option, then the user's own keys, then the settings of single components from -o."""
    sources: list[tuple[str, Mapping[str, object]]] = [
        ("default", defaults("daemon")),
        ("site file", layers.site),
        (str(FOLDER_FILE), layers.folder),
        ("environment", layers.environment),
        ("-o", layers.overrides.topology),
    ]
    found = {
        name: Setting(name, value, source)
        for source, conf in sources
        for name, value in redacted(conf).items()
    }
    return [*found.values()] + [
        Setting(f"{component}:{name}", value, "-o")
        for component, conf in layers.overrides.components.items()
        for name, value in redacted(conf).items()
    ]


def settings_of_topology(answer: ConfigurationsAnswer) -> list[Setting]:
    """Return the settings of a topology, and the settings in which its components differ from it."""
    return settings_of(answer.conf) + [
        Setting(f"{component}:{name}", value, "component")
        for component, own in answer.component_confs.items()
        for name, value in own.items()
        if name not in answer.conf or answer.conf[name] != value
    ]


def settings_of(conf: Mapping[str, object]) -> list[Setting]:
    """Return the settings of a Nimbus or of a topology. Their sources are not known."""
    usual = defaults("daemon")
    return [
        Setting(name, value, "default" if name in OPTIONS and usual[name] == value else "set")
        for name, value in conf.items()
    ]


@click.command()
@click.argument("name", metavar="[NAME]", required=False, callback=not_empty, shell_complete=topologies)
@settings_option
@cluster_options
def config(cluster: ClusterOptions, name: str | None, settings: tuple[str, ...]) -> None:
    """Show the current settings, and where each setting comes from.

    Settings come from the defaults, the site's file, the environment (SQUALL_TOPOLOGY_WORKERS=2) and -o; each of these
    overrides the previous ones. A topology's own settings come between the environment and -o. If settings are wrong, the
    command names all wrong settings and exits with 1, or with 2 if all wrong settings are from -o.

    With the NAME of a topology, the command shows the topology's settings on its cluster; with --nimbus but no NAME, the
    settings of that Nimbus. Secrets are always hidden.

    \b
    Examples:
      squall config
      squall config -o topology.workers=4 --config site.yaml
      squall config word-count
      squall config --nimbus http://nimbus-1:6627
    """
    if name is not None or cluster.nimbus is not None:
        if settings:
            raise click.UsageError("-o applies only to settings of this machine, not to those of a cluster")
        show(settings_there(cluster, name), cluster.as_json)
        return
    layers = read_layers(cluster.config, os.environ, settings)
    show(settings_in_force(layers), cluster.as_json)
    if not cluster.as_json:
        echo(f"\nsite file: {layers.site_file or 'none'}")
        if layers.folder_file is not None:
            echo(f"working folder: {layers.folder_file}")


def settings_there(cluster: ClusterOptions, name: str | None) -> list[Setting]:
    """Return the settings of a topology on its cluster, or of a Nimbus."""

    with cluster.asked(name) as client:
        if name is None:
            return settings_of(client.read(ConfigurationAnswer, "configuration").conf)
        return settings_of_topology(client.read(ConfigurationsAnswer, "topologies", name, "configuration"))


def show(found: list[Setting], as_json: bool) -> None:
    """Print settings. Settings that are not defaults are highlighted."""
    if as_json:
        echo_json({s.name: {"value": s.value, "from": s.source} for s in found})
        return
    drawn = lines_of(table(COLUMNS, [(s.name, json.dumps(s.value), s.unit, s.source) for s in found]))
    echo(plain(drawn[0]))
    for line, setting in zip(drawn[1:], found):
        click.secho(plain(line), bold=setting.source != "default")
