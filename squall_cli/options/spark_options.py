"""Options of the commands that use Spark: Spark's master and settings, paths of tables, and how results are published.

The options are validated before anything is started, by the functions that validate a sink's arguments. Importing this module
is cheap and needs no PySpark.
Must not know: how a command uses Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import click

from squall_cli.options.kinds import Whole, folders
from squall_io.spark.results.versions import KEEP
from squall_io.spark.session.request import SessionRequest
from squall_io.spark.stores.opening import place_problems, settings_in
from squall_io.spark.stores.paths import InvalidPath, check_path, check_table_path, from_here

_Command = TypeVar("_Command", bound=Callable[..., Any])


def _conf(ctx: click.Context, parameter: click.Parameter, given: Sequence[str]) -> Mapping[str, str]:
    """Return the settings of `--conf KEY=VALUE`. If a key is given twice, the last value is used."""
    found: dict[object, object] = {}
    for text in given:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise click.BadParameter(
                f"{text!r}: write KEY=VALUE, as in spark.driver.memory=2g", ctx, parameter
            )
        found[key.strip()] = value
    problems: list[str] = []
    settings = settings_in(found, problems)
    if problems:
        raise click.BadParameter("\n".join(problems), ctx, parameter)
    return settings


def spark_options(command: _Command) -> _Command:
    """Add the options `master` (None if not given) and `conf` to a command."""
    command = click.option(
        "--conf",
        "conf",
        metavar="KEY=VALUE",
        multiple=True,
        callback=_conf,
        help="A setting of Spark. May be repeated.",
    )(command)
    return click.option(
        "--master",
        metavar="URL",
        help="Where Spark runs: local[4], spark://host:7077, yarn, sc://host.  [default: local[*]]",
    )(command)


def result_options(again: str) -> Callable[[_Command], _Command]:
    """Add options to a command that publishes versions: `file_format` and `partition_by` (None if not given), `keep`, `again`
    (the argument `again` is its help text), `as_json`, and the options of `spark_options`.
    """
    options = (
        click.option(
            "--format",
            "file_format",
            type=click.Choice(("parquet", "orc", "json", "csv")),
            help="The files' format.  [default: the table's, or parquet]",
        ),
        click.option(
            "--partition-by",
            metavar="NAMES",
            callback=names,
            help="Columns to partition by.  [default: the table's]",
        ),
        click.option(
            "--keep", metavar="N", type=Whole(1), default=KEEP, help=f"Versions to keep.  [default: {KEEP}]"
        ),
        click.option("--again", is_flag=True, help=again),
        spark_options,
        click.option(
            "--json",
            "as_json",
            is_flag=True,
            help="Print the outcome as JSON; everything else goes to stderr.",
        ),
    )

    def give(command: _Command) -> _Command:
        for option in reversed(options):  # decorators apply from the last to the first
            command = option(command)
        return command

    return give


def table_option(
    name: str, parameter: str, text: str, required: bool = True
) -> Callable[[_Command], _Command]:
    """Add an option for the path of a table to a command."""
    path: dict[str, Any] = {"metavar": "PATH", "callback": table_path, "shell_complete": folders}
    return click.option(name, parameter, required=required, help=text, **path)


def check_places(
    ctx: click.Context,
    master: str | None,
    conf: Mapping[str, str],
    *,
    reads: Iterable[str] = (),
    writes: Iterable[str] = (),
) -> None:
    """Raise `UsageError` if Spark clearly cannot run with this master and these settings, or cannot reach a path."""
    problems = list(place_problems(master, conf, reads=reads, writes=writes))
    if problems:
        raise click.UsageError("\n".join(problems), ctx)


def over_connect(master: str | None, conf: Mapping[str, str]) -> bool:
    """Whether a Spark Connect server does the work. Then the session also gives access to file systems."""
    return SessionRequest.of(master, conf).is_connect


def any_path(ctx: click.Context, parameter: click.Parameter, given: str | None) -> str | None:
    """Return a path in normal form. A relative path is on this machine, below the working directory."""
    return _path(ctx, parameter, given, check_path)


def table_path(ctx: click.Context, parameter: click.Parameter, given: str | None) -> str | None:
    """Return the path of a table in normal form. Refuse a path inside a folder that another table reserves."""
    return _path(ctx, parameter, given, check_table_path)


def _path(
    ctx: click.Context, parameter: click.Parameter, given: str | None, check: Callable[[str], str]
) -> str | None:
    if given is None:
        return None
    try:
        return check(from_here(given))
    except InvalidPath as error:
        raise click.BadParameter(str(error), ctx, parameter) from None


def names(ctx: click.Context, parameter: click.Parameter, given: str | None) -> tuple[str, ...] | None:
    """Return the names of columns in a text such as `a,b`; None if the option was not given."""
    if given is None:
        return None
    found = tuple(name.strip() for name in given.split(",") if name.strip())
    if not found:
        raise click.BadParameter(f"{given!r}: name one column or more, as in carrier,hour", ctx, parameter)
    return found
