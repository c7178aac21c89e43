"""Shell completion: names of topologies, components and supervisors, requested from the cluster while the user types.

If anything fails, nothing is completed and nothing is printed: an error message or a long wait would disturb the user more than
a missing completion.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import TYPE_CHECKING, Final

import click
from click.shell_completion import CompletionItem, get_completion_class

from squall_cli.cluster import cluster_client
from squall_cli.options.site import well_formed
from topology_api.options import OPTIONS

if TYPE_CHECKING:
    from squall_cli.cluster.nimbus_client import NimbusClient

#: Seconds to wait for the cluster's answer. The value is small because the user waits too.
MOST_SECONDS: Final = 0.5


@click.command()
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the shell code that completes commands, options, files, and names of topologies, components and hosts.

    \b
    bash (4.4 or newer), in ~/.bashrc:
      eval "$(squall completion bash)"
    zsh, in ~/.zshrc, after compinit:
      eval "$(squall completion zsh)"
    fish:
      squall completion fish > ~/.config/fish/completions/squall.fish
    """
    import squall_cli.terminal.shells  # noqa: F401 - registers the shells with click

    made = get_completion_class(shell)
    assert made is not None
    click.echo(made(ctx.find_root().command, {}, "squall", "_SQUALL_COMPLETE").source())


def _asking(ask: Callable[[NimbusClient, click.Context], list[str]]) -> Callable[..., list[CompletionItem]]:
    """Return a completion function for the names that `ask` reads from the cluster."""

    def complete(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
        try:
            typed = ctx.params
            client = cluster_client.connect(
                typed.get("nimbus"), typed.get("config"), bool(typed.get("insecure")), MOST_SECONDS
            )
            with closing(client):
                names = ask(client, ctx)
        except Exception:
            return []
        # A name with a control character is not of Squall; the shell would print it as it is.
        return [CompletionItem(name) for name in names if name.startswith(incomplete) and name.isprintable()]

    return complete


@_asking
def topologies(client: NimbusClient, ctx: click.Context) -> list[str]:
    return cluster_client.topology_names(client)


def _name(ctx: click.Context) -> str:
    """Return the topology's name from an unfinished command line. If the last option lacks its value, the name is in `args`."""
    return str(ctx.params.get("name") or ctx.args[0])


@_asking
def components(client: NimbusClient, ctx: click.Context) -> list[str]:
    return list(client.topology(_name(ctx)).components)


@_asking
def parallelism(client: NimbusClient, ctx: click.Context) -> list[str]:
    return [f"{component}=" for component in client.topology(_name(ctx)).components]


@_asking
def workers(client: NimbusClient, ctx: click.Context) -> list[str]:
    return [each.worker for each in client.topology(_name(ctx)).workers]


@_asking
def supervisors(client: NimbusClient, ctx: click.Context) -> list[str]:
    there = client.supervisors()
    return sorted({each.host for each in there} | {each.id for each in there})


def settings(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the keys of `-o`: those of a topology or, after `COMPONENT:`, those of a component."""
    component, colon, typed = incomplete.rpartition(":")
    scopes = ("component", "both") if colon else ("topology", "both")
    keys = [key for key, option in OPTIONS.items() if option.scope in scopes and key.startswith(typed)]
    return [CompletionItem(f"{component}{colon}{key}=") for key in keys]


settings_option = click.option(
    "-o",
    "settings",
    metavar="KEY=VALUE",
    multiple=True,
    callback=well_formed,
    shell_complete=settings,
    help="A setting (COMPONENT:KEY=VALUE for one component); overrides all other settings. May be repeated.",
)


def not_empty(ctx: click.Context, argument: click.Parameter, name: str | None) -> str | None:
    """Raise an error for an empty NAME, which usually comes from an unset shell variable. A callback of click."""
    if name == "":
        raise click.BadParameter("it is empty: give the name of a topology")
    return name


#: The argument NAME of a topology, as the parameter `name`.
name_argument = click.argument("name", metavar="NAME", callback=not_empty, shell_complete=topologies)
