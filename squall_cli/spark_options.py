"""Options of the commands that use Spark: where it runs, its settings, paths of tables, and how results become versions.

Must not know: what a command does with Spark; importing this is cheap and needs no PySpark.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import click

from squall_cli.numbers import Whole
from squall_io.spark.results.versions import KEEP
from squall_io.spark.stores.paths import InvalidPath, check_path

_Command = TypeVar("_Command", bound=Callable[..., Any])


def _conf(ctx: click.Context, parameter: click.Parameter, given: Sequence[str]) -> Mapping[str, str]:
    """The settings of `--conf KEY=VALUE`, the later of two winning."""
    found = {}
    for text in given:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise click.BadParameter(
                f"{text!r}: write KEY=VALUE, as in spark.driver.memory=2g", ctx, parameter
            )
        found[key.strip()] = value
    return found


def spark_options(command: _Command) -> _Command:
    """Gives a command `master` (or None) and `conf`."""
    command = click.option(
        "--conf",
        "conf",
        metavar="KEY=VALUE",
        multiple=True,
        callback=_conf,
        help="A setting of Spark's. May be repeated.",
    )(command)
    return click.option(
        "--master",
        metavar="URL",
        help="Where Spark runs: local[4], spark://host:7077, yarn, sc://host.  [default: local[*]]",
    )(command)


def result_options(again: str) -> Callable[[_Command], _Command]:
    """Gives a command that publishes versions `file_format`, `partition_by` (each or None), `keep`, `again` with this help,
    `as_json`, and what `spark_options` gives."""
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
            help="Columns whose values become folders.  [default: the table's]",
        ),
        click.option(
            "--keep", metavar="N", type=Whole(1), default=KEEP, help=f"Versions that stay.  [default: {KEEP}]"
        ),
        click.option("--again", is_flag=True, help=again),
        spark_options,
        click.option("--json", "as_json", is_flag=True, help="The outcome as JSON; all else goes to stderr."),
    )

    def give(command: _Command) -> _Command:
        for option in reversed(options):  # as decorators are: the last one first
            command = option(command)
        return command

    return give


def table_path(ctx: click.Context, parameter: click.Parameter, given: str | None) -> str | None:
    """The path of a table, in its normal form; a relative one is this machine's, from the working folder on."""
    if given is None:
        return None
    if given and ":" not in given.partition("/")[0]:  # no scheme
        given = os.path.abspath(given)
    try:
        return check_path(given)
    except InvalidPath as error:
        raise click.BadParameter(str(error), ctx, parameter) from None


def names(ctx: click.Context, parameter: click.Parameter, given: str | None) -> tuple[str, ...] | None:
    """The names of columns in `a,b`; None: the option was not given."""
    if given is None:
        return None
    found = tuple(name.strip() for name in given.split(",") if name.strip())
    if not found:
        raise click.BadParameter(f"{given!r}: name one column or more, as in carrier,hour", ctx, parameter)
    return found
