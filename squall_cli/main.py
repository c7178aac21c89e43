"""The entry point of `squall`: the table of commands, and how an error ends the process.

Exit status: 0 done, 1 failed (the reason is on stderr), 2 wrong usage. A command's module is imported only when that command
runs; `squall --help` imports no such module. Must not know: the work of a command.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from errno import EPIPE
from importlib import import_module
from io import TextIOWrapper
from typing import Final, NamedTuple

import click

from squall import __version__
from squall.packages.distributions import NotOurs, check_ours


class Entry(NamedTuple):
    """A line of `squall --help`, and its command as `MODULE` or `MODULE:FUNCTION` of `commands`."""

    text: str
    place: str

    def load(self) -> click.Command:
        module, _, name = self.place.partition(":")
        command: click.Command = getattr(import_module(f"squall_cli.commands.{module}"), name or module)
        return command


COMMANDS: Final = {
    "run": Entry("Run a topology on this machine until it is completed or stopped.", "run"),
    "pipe": Entry("Copy rows from a source to a sink, without a file of code.", "pipe"),
    "explain": Entry("Show what a topology guarantees: how often a tuple counts.", "explain"),
    "submit": Entry("Send a topology to a cluster.", "submit"),
    "list": Entry("List the topologies of a cluster.", "listing"),
    "status": Entry("Show state, counters and workers of a topology.", "status"),
    "kill": Entry("Drain a topology and remove it.", "lifecycle:kill"),
    "activate": Entry("Start the spouts of a topology.", "lifecycle:activate"),
    "deactivate": Entry(
        "Stop the spouts of a topology; tuples in flight are processed.", "lifecycle:deactivate"
    ),
    "rebalance": Entry("Change the number of workers or tasks of a topology.", "lifecycle:rebalance"),
    "history": Entry("Show the versions of a topology, and how each of them ended.", "history"),
    "rollback": Entry("Replace the present version of a topology by an earlier one.", "rollback"),
    "errors": Entry("Show the errors that a topology's components reported.", "status:errors"),
    "logs": Entry("Show the logs of a topology's workers.", "logs"),
    "stack": Entry("Show where the threads of a topology are at this moment.", "stack"),
    "dead-letters": Entry("Show the tuples that a topology gave up, and send them again.", "dead_letters"),
    "state": Entry("Show the state that a topology has committed to its folder.", "state"),
    "top": Entry("Watch the busiest components of a cluster.", "top"),
    "drain": Entry("Move all work away from a host.", "supervisors:drain"),
    "backup": Entry("Write all topologies of a cluster into a file.", "backup"),
    "restore": Entry("Bring back the topologies of a backup.", "backup:restore"),
    "nimbuses": Entry("List the Nimbuses of a cluster and their keys.", "nimbuses"),
    "supervisors": Entry("List the hosts of a cluster and their slots.", "supervisors"),
    "nimbus": Entry("Start a Nimbus, a master of a cluster.", "daemons:nimbus"),
    "supervisor": Entry("Start the daemon that runs workers on a host.", "daemons:supervisor"),
    "dev": Entry("Start a small cluster on this machine.", "dev"),
    "zookeeper": Entry("Start a ZooKeeper server for development.", "zookeeper"),
    "config": Entry("Show the current settings, and where each setting comes from.", "config"),
    "version": Entry("Show the version of Squall, and of a cluster.", "version"),
    "table": Entry("Show the contents of a table that Spark wrote, and check its files.", "table"),
    "compact": Entry("Put the rows of a table's small files into few larger ones.", "compact"),
    "vacuum": Entry("Delete files of a table whose rows are in other files, and old partitions.", "vacuum"),
    "reprocess": Entry("Run a PySpark job over committed rows and publish its result.", "reprocess"),
    "replay": Entry("Run a topology's bolts over stored rows, as a Spark job.", "replay"),
    "completion": Entry("Print the shell code that completes commands and names.", "completion"),
}


class UsageRefused(click.ClickException):
    """A SquallError, shown as the name of the failed command and the reason; exit status 1."""

    def show(self, file: object = None) -> None:
        from squall_cli.terminal.lines import echo

        echo(self.message, err=True)


class Squall(click.Group):
    """The group of all commands. Each command is loaded when it is needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = COMMANDS.get(cmd_name)
        return None if entry is None else entry.load()

    def shell_complete(
        self, ctx: click.Context, incomplete: str
    ) -> list[click.shell_completion.CompletionItem]:
        from click.shell_completion import CompletionItem  # click's own method would load every command

        found = [
            CompletionItem(name, help=entry.text)
            for name, entry in COMMANDS.items()
            if name.startswith(incomplete)
        ]
        return found + click.Command.shell_complete(self, ctx, incomplete)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and args[0] not in COMMANDS:
            from difflib import get_close_matches

            near = get_close_matches(args[0], COMMANDS, n=1)
            ctx.fail(f"There is no command {args[0]!r}{f'; did you mean {near[0]!r}?' if near else '.'}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):  # click's own method would load every command for its first line
            formatter.write_dl([(name, entry.text) for name, entry in COMMANDS.items()])

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except click.NoSuchOption as error:
            raise with_the_way_out(error) from None
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except Exception as error:
            from topology_api.errors import SquallError

            # An OSError is, for example, a full disk. click handles EPIPE itself.
            if isinstance(error, SquallError) or (isinstance(error, OSError) and error.errno != EPIPE):
                raise UsageRefused(f"squall {ctx.invoked_subcommand}: {error}") from error
            raise


def with_the_way_out(error: click.NoSuchOption) -> click.NoSuchOption:
    """Return the error. If the command takes a name, the error's text also says how to give a name that begins with a dash."""
    command = None if error.ctx is None else error.ctx.command
    arguments = [each for each in command.params if isinstance(each, click.Argument)] if command else []
    if error.possibilities or not arguments or any(each.nargs != 1 for each in arguments):
        return error
    text = f"{error.message.rstrip('.')}; put names that begin with - after --"
    return click.NoSuchOption(error.option_name, text, ctx=error.ctx)


squall = Squall(
    "squall",
    help="Squall: Storm, native to Python. See `squall COMMAND --help`.",
    context_settings={"help_option_names": ["-h", "--help"]},
)
click.version_option(__version__, prog_name="squall", message="%(prog)s %(version)s")(squall)


def fill_closed_streams() -> None:
    """Open /dev/null for each standard stream that is None, because its descriptor was closed when the process was started."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 - open as long as the process runs


def take_any_character() -> None:
    """Escape characters that the encoding of stdout lacks: names, and errors of other programs, may contain them."""
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command and end the process with its exit status."""
    fill_closed_streams()
    take_any_character()
    if "_SQUALL_COMPLETE" in os.environ:
        import squall_cli.terminal.shells  # noqa: F401 - registers the shells with click
    try:
        check_ours()
    except NotOurs as error:
        print(f"squall: {error}", file=sys.stderr)
        sys.exit(1)
    squall.main(args=None if arguments is None else list(arguments), prog_name="squall")
