"""Finds the site's file, and reads the settings from outside of a topology: site file, environment, -o.

All commands use this module, so all commands read the same places. Must not know: the purpose of the settings.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import click

from squall.settings import Overrides, environment_conf, load_site, parse_override, parse_overrides
from topology_api.errors import InvalidConfig
from topology_api.options import problems_of

SITE_FILE = Path("conf/squall.yaml")


def well_formed(ctx: click.Context, option: click.Parameter, settings: tuple[str, ...]) -> tuple[str, ...]:
    """Check, before anything is loaded, that each value of `-o` has the form KEY=VALUE. A callback of click."""
    for text in settings:
        try:
            parse_override(text)
        except InvalidConfig as error:
            raise click.BadParameter("; ".join(error.problems)) from None
    return settings


@dataclass(frozen=True)
class Layers:
    """The settings from outside of a topology, each layer validated."""

    site_file: Path | None
    site: Mapping[str, object]
    environment: Mapping[str, object]
    overrides: Overrides


def site_file(given: str | Path | None) -> Path | None:
    """Return the file of --config; without --config, return conf/squall.yaml in the working directory if it exists."""
    if given is not None:
        return Path(given)
    return SITE_FILE if SITE_FILE.is_file() else None


def named(file: Path, problem: str) -> str:
    """Return a problem of the site's file, with the file's name added unless the problem names the file already."""
    return problem if str(file) in problem else f"{file}: {problem}"


def read_layers(given: str | Path | None, environ: Mapping[str, str], settings: Iterable[str]) -> Layers:
    """Read all three layers. Raises InvalidConfig with the problems of all layers, or UsageError if only settings of -o are
    wrong."""
    problems: list[str] = []
    file = site_file(given)
    site: Mapping[str, object] = {}
    environment: Mapping[str, object] = {}
    if file is not None:
        try:
            site = load_site(file)
        except InvalidConfig as error:
            problems += [named(file, problem) for problem in error.problems]
    try:
        environment = environment_conf(environ)
    except InvalidConfig as error:
        problems += [f"the environment: {problem}" for problem in error.problems]
    overrides = parse_overrides(settings)
    wrong = [f"-o: {problem}" for problem in problems_of(overrides.topology, "topology")]
    for component, conf in overrides.components.items():
        wrong += [f"-o {component}: {problem}" for problem in problems_of(conf, "component")]
    if problems:
        raise InvalidConfig(problems + wrong)
    if wrong:
        raise click.UsageError(str(InvalidConfig(wrong)))
    return Layers(file, site, environment, overrides)
