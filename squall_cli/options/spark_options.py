"""Options of the commands that use Spark: Spark's master and settings, paths of tables, and how results are published.

The options are validated before anything is started, by the functions that validate a sink's arguments. Importing this module
is cheap and needs no PySpark.
Must not know: how a command uses Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import click

from squall.stores.paths import InvalidPath, from_here
from squall_cli.options.kinds import Whole, folders
from squall_io.spark.reading.moments import Span, WrongMoment
from squall_io.spark.results.versions import KEEP
from squall_io.spark.stores.opening import check_table_path, place_problems, settings_in

#: Adds options to a command.
_Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def _conf(ctx: click.Context, parameter: click.Parameter, given: Sequence[str]) -> Mapping[str, str]:
    """Return the settings of `--conf KEY=VALUE`. If a key is given twice, the last value is used."""
    found: dict[object, object] = {}
    for text in given:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise click.BadParameter(f"{text!r}: write KEY=VALUE, as in spark.driver.memory=2g")
        found[key.strip()] = value
    problems: list[str] = []
    settings = settings_in(found, problems)
    if problems:
        raise click.BadParameter("\n".join(problems))
    return settings


def _all_of(*options: _Decorator) -> _Decorator:
    """Return a decorator that adds options to a command, in this order."""

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):  # decorators apply from the last to the first
            command = option(command)
        return command

    return add


#: Adds the options `master` (None if not given) and `conf` to a command.
spark_options: Final = _all_of(
    click.option(
        "--master",
        metavar="URL",
        help="Where Spark runs: local[4], spark://host:7077, yarn, sc://host.  [default: local[*]]",
    ),
    click.option(
        "--conf",
        "conf",
        metavar="KEY=VALUE",
        multiple=True,
        callback=_conf,
        help="A setting of Spark. May be repeated.",
    ),
)


def result_options(again: str) -> _Decorator:
    """Add options to a command that publishes versions: `file_format` and `partition_by` (None if not given), `keep`, `again`
    (the argument `again` is its help text), `as_json`, and the options of `spark_options`.
    """
    return _all_of(
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


def table_option(name: str, parameter: str, text: str, required: bool = True) -> _Decorator:
    """Add an option for the path of a table to a command."""
    path: dict[str, Any] = {"metavar": "PATH", "callback": table_path, "shell_complete": folders}
    return click.option(name, parameter, required=required, help=text, **path)


def check_places(
    master: str | None, conf: Mapping[str, str], *, reads: Iterable[str], writes: Iterable[str]
) -> None:
    """Raise `UsageError` if Spark clearly cannot run with this master and these settings, or cannot reach a path."""
    problems = list(place_problems(master, conf, reads=reads, writes=writes))
    if problems:
        raise click.UsageError("\n".join(problems))


def checked_path(given: str, check: Callable[[str], str]) -> str:
    """Return a path in normal form. A relative path is on this machine, below the working directory. Raises `BadParameter` if
    `check` refuses the path."""
    try:
        return check(from_here(given))
    except InvalidPath as error:
        raise click.BadParameter(str(error)) from None


def table_path(ctx: click.Context, parameter: click.Parameter, given: str | None) -> str | None:
    """Return the path of a table in normal form. Refuse a path inside a folder that another table reserves."""
    return None if given is None else checked_path(given, check_table_path)


def span_of(since: str | None, until: str | None) -> Span:
    """Return the span of --since and --until. Raises `UsageError` if one of them is not a time."""
    try:
        return Span.of(since, until)
    except WrongMoment as error:
        raise click.UsageError(str(error)) from None


def names(ctx: click.Context, parameter: click.Parameter, given: str | None) -> tuple[str, ...] | None:
    """Return the names of columns in a text such as `a,b`; None if the option was not given."""
    if given is None:
        return None
    found = tuple(name.strip() for name in given.split(",") if name.strip())
    if not found:
        raise click.BadParameter(f"{given!r}: name one column or more, as in carrier,hour")
    return found
