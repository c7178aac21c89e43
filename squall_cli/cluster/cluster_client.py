"""The options of all commands that ask a cluster, and the connection that they open.

The address of Nimbus: --nimbus, else SQUALL_NIMBUS, else `nimbus.url` of the site's file, else http://127.0.0.1:6627. Several
addresses of one cluster are separated by commas. Modules for HTTP are imported only when a connection is opened, so `--help`
loads none of them.
Must not know: the commands.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from squall_cli.options.kinds import Seconds, files
from squall_cli.terminal.lines import echo, in_json
from topology_api.errors import SquallError
from topology_api.wording import nearest

if TYPE_CHECKING:
    from squall.api.answers import TopologySummary
    from squall.http.client import Refused
    from squall_cli.cluster.nimbus_client import NimbusClient

#: Where `squall nimbus` and `squall dev` listen by default.
DEFAULT_PORT: Final = 6627
DEFAULT_URL: Final = f"http://127.0.0.1:{DEFAULT_PORT}"
VARIABLE: Final = "SQUALL_NIMBUS"
#: Seconds that a Nimbus has for each answer. A Nimbus answers within 4.5 s, if necessary with "unavailable".
ANSWER_SECS: Final = 5.0

Command = TypeVar("Command", bound=Callable[..., Any])

nimbus_option = click.option(
    "--nimbus",
    metavar="URL",
    help="The address of Nimbus, or several addresses, separated by commas."
    f"  [default: {VARIABLE}, else the site's file, else {DEFAULT_URL}]",
)
config_option = click.option(
    "--config",
    metavar="FILE",
    shell_complete=files,
    help="The site's file.  [default: SQUALL_CONFIG, else ~/.config/squall/squall.yaml or /etc/squall/squall.yaml]",
)
insecure_option = click.option(
    "--insecure", is_flag=True, help="Send the operators' token over http:// to other hosts too."
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, and nothing else, to stdout.")


def wait_secs_option(text: str) -> Callable[[Command], Command]:
    """Return the option -w SECS."""
    return click.option("-w", "--wait-secs", metavar="SECS", type=Seconds(), help=text)


def timeout_option() -> Callable[[Command], Command]:
    """Return the option --timeout SECS, which limits --wait."""
    text = "With --wait: stop waiting after SECS seconds, and exit with 1. The cluster continues the work."
    return click.option("--timeout", metavar="SECS", type=Seconds(above=True), help=text)


def check_timeout(waits: bool, timeout: float | None) -> None:
    """Raise a usage error if --timeout is given without --wait."""
    if timeout is not None and not waits:
        raise click.UsageError("--timeout says how long --wait may take: give both options")


@dataclass(frozen=True)
class ClusterOptions:
    """The values of --nimbus, --config, --insecure and --json: which cluster a command asks, and how it prints the answer."""

    nimbus: str | None
    config: str | None
    insecure: bool
    as_json: bool

    def connected(self) -> NimbusClient:
        """Return a client of the cluster. Nothing is sent yet."""
        return connect(self.nimbus, self.config, self.insecure)

    @contextmanager
    def asked(self, name: str | None = None) -> Iterator[NimbusClient]:
        """Connect to the cluster, and add advice to its refusals. `name` is the topology that the command is about."""
        client = self.connected()
        with about(client, name):
            yield client

    def answer(self, shown: object, text: str) -> None:
        """Print the outcome, as JSON or as a sentence."""
        if self.as_json:
            echo_json(shown)
        else:
            echo(text)

    def answer_list(self, shown: object, listed: Sequence[object], nothing: str) -> bool:
        """Print a list as JSON, or print the text `nothing` if the list is empty. Return True if neither was printed: then the
        caller prints a table."""
        if self.as_json:
            echo_json(shown)
        elif not listed:
            echo(nothing, err=True)
        return bool(listed) and not self.as_json


def cluster_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add --nimbus, --config, --insecure and --json to a command. The command receives them as its first argument, a
    `ClusterOptions`."""

    @wraps(command)
    def with_cluster(
        nimbus: str | None, config: str | None, insecure: bool, as_json: bool, **others: Any
    ) -> None:
        command(ClusterOptions(nimbus, config, insecure, as_json), **others)

    return nimbus_option(config_option(insecure_option(json_option(with_cluster))))


def echo_json(value: object) -> None:
    """Print a value as JSON on stdout."""
    click.echo(in_json(value))


def site_settings(config: str | None) -> dict[str, object]:
    """Return the settings of the files and the environment; the environment overrides the files."""
    from squall_cli.options.site import read_layers

    layers = read_layers(config, os.environ, ())
    return {**layers.files, **layers.environment}


def addresses(nimbus: str | None, site: Mapping[str, object], environ: Mapping[str, str]) -> list[str]:
    """Return the URLs of the cluster's Nimbuses. HOST:PORT means http; HOST means http at the default port."""
    return urls_of(nimbus or environ.get(VARIABLE) or site.get("nimbus.url")) or [DEFAULT_URL]


def urls_of(given: object) -> list[str]:
    """Return the URLs in a text, which are separated by commas."""
    parts = (part.strip() for part in str(given or "").split(","))
    return [_url(part) for part in parts if part]


def _url(text: str) -> str:
    if "://" in text:
        return text
    has_port = ":" in text.rpartition("]")[2]  # an IPv6 address has colons, in brackets
    return f"http://{text}" if has_port else f"http://{text}:{DEFAULT_PORT}"


def connect(
    nimbus: str | None, config: str | None, insecure: bool = False, timeout: float | None = None
) -> NimbusClient:
    """Return a client of the cluster that the options, the environment or the site's file name. Nothing is sent yet. The
    client's connections are closed when the command ends. `timeout`: seconds for each answer."""
    from squall.security.tokens import bearer
    from squall_cli.cluster.credentials import Credentials
    from squall_cli.cluster.nimbus_client import NimbusClient
    from squall_cli.options.site import read_layers

    layers = read_layers(config, os.environ, ())
    site = {**layers.site, **layers.environment}
    urls = addresses(nimbus, site, os.environ)
    credentials = Credentials(urls, layers, urls_of(layers.site.get("nimbus.url")), os.environ, insecure)

    def authorization(url: str) -> str | None:
        token = credentials.token_for(url)
        return None if token is None else bearer(token)

    ca = site.get("squall.tls.ca")
    client = NimbusClient(urls, authorization, None if ca is None else str(ca), timeout or ANSWER_SECS)
    if context := click.get_current_context(silent=True):
        context.call_on_close(client.close)
    return client


@contextmanager
def about(client: NimbusClient, name: str | None = None) -> Iterator[None]:
    """Add advice to a refusal: for an unknown name the nearest existing name, for missing credentials the places that are
    searched."""
    from squall.http.client import Refused

    try:
        yield
    except Refused as refused:
        advice = _advice(client, refused, name)
        if not advice:
            raise
        raise SquallError(f"{refused}{advice}") from refused


def _advice(client: NimbusClient, refused: Refused, name: str | None) -> str:
    if refused.status == 401:
        return (
            "; the command reads it from the file that SQUALL_TOKEN_FILE or squall.token.file names, else"
            " from the user's own file for this Nimbus, in ~/.local/state/squall/tokens"
        )
    if refused.kind == "NameTaken":
        killed = any(topology.name == name and topology.state == "KILLED" for topology in _topologies(client))
        return " (--name NAME)" if killed else " (--name NAME), or replace the running one (--replace)"
    if refused.kind != "NoSuchTopology" or name is None:
        return ""
    return nearest(name, topology_names(client)) or "; `squall list` shows the existing ones"


def topology_names(client: NimbusClient) -> list[str]:
    """Return the names of the topologies, for suggestions; return no names if they cannot be read."""
    return [topology.name for topology in _topologies(client)]


def _topologies(client: NimbusClient) -> list[TopologySummary]:
    try:
        return client.topologies()
    except (SquallError, OSError):
        return []
