"""`squall nimbus`: a master, until a signal ends it. Any number of them may run for one cluster: one leads at a time.

Must not know: what a master does.
"""

from __future__ import annotations

import signal

import click

from squall_cli.cluster.cluster_client import config_option
from squall_cli.commands.daemon_options import (
    daemon_settings,
    insecure_option,
    listen_option,
    log_to_stderr,
    make_store,
    run_daemon,
    state_option,
    state_place,
    zookeeper_option,
)


@click.command()
@zookeeper_option
@listen_option("Where it answers HTTP", "127.0.0.1:6627")
@click.option(
    "--advertise",
    metavar="URL",
    help="The URL that others reach it by.  [default: by --listen and this host's name]",
)
@state_option("Where it keeps its files.  [default: ~/.local/state/squall/nimbus]")
@insecure_option
@click.option(
    "--new-cluster",
    is_flag=True,
    help="Belong to the cluster that ZooKeeper holds now, or begin one there if it holds none.",
)
@click.option(
    "--new-token",
    is_flag=True,
    help="Make another token for the operators when it first leads; the one before is refused from then on.",
)
@config_option
def nimbus(
    zookeeper: str | None,
    listen: tuple[str, int],
    advertise: str | None,
    state: str | None,
    insecure: bool,
    new_cluster: bool,
    new_token: bool,
    config: str | None,
) -> None:
    """Start a master of a cluster, until Ctrl-C or SIGTERM.

    Several may run for one cluster, each with its own --state: one leads, and when it dies another takes over. They
    all answer what is asked; what changes something is redirected to the one that leads. Topologies run on while none of them
    does.

    \b
    Examples:
      squall nimbus --zookeeper 127.0.0.1:2181
      squall nimbus --zookeeper zk1:2181,zk2:2181,zk3:2181 --listen 0.0.0.0:6627 \\
          --advertise https://nimbus-1.example.org:6627 --config squall.yaml
    """
    from nimbus.daemon import NimbusDaemon, NimbusSettings

    conf = daemon_settings(config)
    settings = NimbusSettings(
        state=state_place("nimbus", state),
        host=listen[0].strip("[]"),
        port=listen[1],
        advertise=advertise,
        insecure=insecure,
        new_cluster=new_cluster,
        new_token=new_token,
        conf=conf,
    )
    log_to_stderr()
    store = make_store(zookeeper, conf)
    daemon = NimbusDaemon(store, settings)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, frame: daemon.ask_to_stop())
    run_daemon(store, daemon.run, daemon.ask_to_stop, daemon.stop)
