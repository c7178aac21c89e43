"""`squall nimbus`: a master, until a signal ends it. A cluster may have several; one leads at a time.

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
    help="The URL at which others reach it.  [default: from --listen and this host's name]",
)
@state_option("Where it keeps its files.  [default: ~/.local/state/squall/nimbus]")
@insecure_option
@click.option(
    "--new-cluster",
    is_flag=True,
    help="Join the cluster that ZooKeeper holds now, or create one there if it holds none.",
)
@click.option(
    "--new-token",
    is_flag=True,
    help="Make a new operators' token when this Nimbus first leads; the old token is refused from then on.",
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

    Several may run for one cluster, each with its own --state: one leads, and if it dies, another one takes over. All of
    them answer questions; requests that change something are redirected to the leader. Topologies continue to run while no
    Nimbus is up.

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
