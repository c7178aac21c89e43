"""Finds the site's file, and reads the settings from outside of a topology: site file, working folder, environment, -o.

The site's file is the file of --config, else of SQUALL_CONFIG, else `$XDG_CONFIG_HOME/squall/squall.yaml`, else
`/etc/squall/squall.yaml`: one file, never a mixture, so that a token is always beside the URL that it belongs to. The folder
in which a command is typed may come from anyone, so its `conf/squall.yaml` sets `topology.*` only. --config replaces both.
All commands use this module, so all commands read the same places. Must not know: the purpose of the settings.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import click

from squall.settings import Overrides, environment_conf, load_site, parse_override, parse_overrides
from topology_api.errors import InvalidConfig
from topology_api.options import problems_of
from topology_api.wording import listed

WORKERS: Final = "topology.workers"
VARIABLE: Final = "SQUALL_CONFIG"
#: The site's file of all users of this host.
HOST_FILE: Final = Path("/etc/squall/squall.yaml")
#: The file of the working folder.
FOLDER_FILE: Final = Path("conf/squall.yaml")
#: What the file of the working folder may set.
FOLDER_PREFIX: Final = "topology."


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
    #: The file of the working folder, and its settings.
    folder_file: Path | None
    folder: Mapping[str, object]
    environment: Mapping[str, object]
    overrides: Overrides

    @property
    def files(self) -> dict[str, object]:
        """The settings of both files; those of the working folder override those of the site."""
        return {**self.site, **self.folder}


def users_file(environ: Mapping[str, str]) -> Path | None:
    """Return where this user's file would be; None for a user without a home."""
    above, home = (Path(environ.get(name) or "") for name in ("XDG_CONFIG_HOME", "HOME"))
    if not above.is_absolute():  # the XDG specification says to ignore relative paths
        above = home / ".config"
    return above / "squall" / "squall.yaml" if above.is_absolute() else None


def site_file(given: str | Path | None, environ: Mapping[str, str]) -> Path | None:
    """Return the site's file; None if there is none. Raises InvalidConfig if the variable does not hold an absolute path: the
    folder in which a command is typed would choose the file."""
    if given is not None:
        return Path(given)
    if variable := environ.get(VARIABLE):
        if not os.path.isabs(variable):
            raise InvalidConfig(
                [
                    f"{VARIABLE}={variable}: give an absolute path, so that it names the same file in every folder"
                ]
            )
        return Path(variable)
    there = (file for file in (users_file(environ), HOST_FILE) if file is not None and os.path.isfile(file))
    return next(there, None)


def folder_file(given: str | Path | None, site: Path | None) -> Path | None:
    """Return the file of the working folder; None if there is none, or if it is not read."""
    if given is not None or not os.path.isfile(FOLDER_FILE):
        return None
    is_site = site is not None and os.path.exists(site) and site.samefile(FOLDER_FILE)
    return None if is_site else FOLDER_FILE


def named(file: Path, problem: str) -> str:
    """Return a problem of the site's file, with the file's name added unless the problem names the file already."""
    return problem if str(file) in problem else f"{file}: {problem}"


def read_layers(given: str | Path | None, environ: Mapping[str, str], settings: Iterable[str]) -> Layers:
    """Read all layers. Raises InvalidConfig with the problems of all layers, or UsageError if only settings of -o are
    wrong."""
    problems: list[str] = []
    file = site_file(given, environ)
    in_folder = folder_file(given, file)
    site, folder = _load(file, problems), _load(in_folder, problems)
    if foreign := [key for key in folder if not key.startswith(FOLDER_PREFIX)]:
        problems.append(_only_topologies(foreign, environ))
    environment: Mapping[str, object] = {}
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
    return Layers(file, site, in_folder, folder, environment, overrides)


def _load(file: Path | None, problems: list[str]) -> Mapping[str, object]:
    """Return the settings of a file; add its problems to the list."""
    if file is None:
        return {}
    try:
        return load_site(file)
    except InvalidConfig as error:
        problems += [named(file, problem) for problem in error.problems]
        return {}


def _only_topologies(keys: list[str], environ: Mapping[str, str]) -> str:
    own = users_file(environ)
    mine = "" if own is None else f"{own} (for you), "
    return (
        f"{FOLDER_FILE} in the working folder may set {FOLDER_PREFIX}* only: move {listed(keys)} to"
        f" {mine}{HOST_FILE} (for all users of this host), or to a file that you name by --config or {VARIABLE}"
    )


def with_workers(layers: Layers, workers: int | None) -> Layers:
    """Return the settings with the number of workers of -n. Raises UsageError if -o gives another number."""
    if workers is None:
        return layers
    given = layers.overrides.topology.get(WORKERS, workers)
    if given != workers:
        raise click.UsageError(f"--workers {workers} and -o {WORKERS}={given} contradict each other")
    topology = {**layers.overrides.topology, WORKERS: workers}
    return replace(layers, overrides=replace(layers.overrides, topology=topology))
