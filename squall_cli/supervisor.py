"""`squall supervisor`: the agent of a host, until a signal ends it. Its workers outlive it for the length of their lease.

Must not know: how workers are looked after.
"""

from __future__ import annotations

import logging
import socket
import threading
from typing import TYPE_CHECKING, Any, Final

import click

from squall_cli.cluster_client import config_option
from squall_cli.daemon_options import (
    daemon_settings,
    host_name,
    host_port,
    insecure_option,
    log_to_stderr,
    make_store,
    state_option,
    state_place,
    zookeeper_option,
)
from squall_cli.numbers import Whole
from topology_api.errors import InvalidConfig

if TYPE_CHECKING:
    from squall.cluster.zookeeper import ZooKeeperStore

_log = logging.getLogger(__name__)

LEASE: Final = "supervisor.worker.lease.secs"
TIMEOUT: Final = "nimbus.supervisor.timeout.secs"
#: Seconds by which a supervisor must be given up later than its workers' leases are over.
MARGIN: Final = 2.0

_HELP = """Start the agent of a host that runs workers, until Ctrl-C or SIGTERM.

Its workers do not end with it: they go on until their lease is over (supervisor.worker.lease.secs), and the next supervisor
with the same --state takes them over. So it can be restarted or upgraded under load. To move the work away first, drain it:
squall drain SUPERVISOR.

\b
Examples:
  squall supervisor --zookeeper 127.0.0.1:2181
  squall supervisor --zookeeper zk1:2181,zk2:2181,zk3:2181 --slots 8 \\
      --host worker-1.example.org --bind 0.0.0.0 --listen 0.0.0.0:6628
"""


@click.command(help=_HELP)
@zookeeper_option
@click.option(
    "--slots",
    metavar="N",
    type=Whole(1, 10_000),
    default=4,
    show_default=True,
    help="How many workers it may run.",
)
@click.option(
    "--host",
    metavar="NAME",
    callback=host_name,
    help="The name or IPv4 address that others reach this host by.  [default: its own name]",
)
@click.option(
    "--bind",
    metavar="ADDRESS",
    default="127.0.0.1",
    show_default=True,
    help="The address that workers listen on; 0.0.0.0 for all. Their links are always encrypted.",
)
@state_option("Where it keeps its files and workers.  [default: ~/.local/state/squall/supervisor]")
@click.option(
    "--listen",
    callback=host_port,
    metavar="HOST:PORT",
    default="127.0.0.1:0",
    show_default=True,
    help="Where it answers Nimbus's questions for logs; port 0 is a free one.",
)
@insecure_option
@click.option(
    "--new-cluster",
    is_flag=True,
    help="Belong to the cluster that ZooKeeper holds now, and end the workers of the one before.",
)
@config_option
def supervisor(
    zookeeper: str | None,
    slots: int,
    host: str | None,
    bind: str,
    state: str | None,
    listen: tuple[str, int],
    insecure: bool,
    new_cluster: bool,
    config: str | None,
) -> None:
    from squall.tls import server_context_files
    from supervisor.daemon import SupervisorDaemon, SupervisorSettings
    from supervisor.provisions import Limits

    conf = daemon_settings(config)
    check_lease(conf)
    ca = conf["squall.tls.ca"]
    settings = SupervisorSettings(
        state=state_place("supervisor", state),
        host=host or socket.gethostname(),
        slots=slots,
        bind=bind,
        listen=listen,
        lease_secs=float(conf[LEASE]),
        tls=server_context_files(conf),
        ca=None if ca is None else str(ca),
        insecure=insecure,
        new_cluster=new_cluster,
        packages=Limits(
            int(conf["nimbus.package.limit.bytes"]), int(conf["nimbus.package.unpacked.limit.bytes"])
        ),
    )
    log_to_stderr()
    store = make_store(zookeeper, conf)
    daemon = SupervisorDaemon(store, settings)
    try:
        connect(store, has_workers=daemon.has_workers)
        daemon.run()
    finally:
        daemon.release()
        store.close()


def check_lease(conf: dict[str, Any]) -> None:
    """Nobody may have a task twice: a supervisor is given up only when its workers have ended."""
    lease, timeout = float(conf[LEASE]), float(conf[TIMEOUT])
    if lease + MARGIN > timeout:
        raise InvalidConfig(
            [
                f"{LEASE!r} is {lease:g} and {TIMEOUT!r} is {timeout:g}: workers must have ended {MARGIN:g} s before"
                f" their tasks go to another host, so give a lease of {max(timeout - MARGIN, 0):g} or less"
            ]
        )


def connect(store: ZooKeeperStore, has_workers: bool) -> None:
    """Connect to ZooKeeper. When it is away, that ends a supervisor that has nothing to look after, and no other."""
    from squall.cluster.store import Unavailable

    try:
        store.start()
    except Unavailable as error:
        if not has_workers:
            raise
        _log.warning("%s Its workers go on meanwhile, and it is tried again", error)
        threading.Thread(target=_connect_later, args=(store,), name="squall-connect", daemon=True).start()


def _connect_later(store: ZooKeeperStore) -> None:
    from squall.cluster.store import Unavailable
    from topology_api.errors import SquallError

    while True:
        try:
            store.start(60.0)
            return
        except Unavailable as error:
            _log.warning("%s It is tried again", error)
        except SquallError as error:
            _log.error("%s", error)
            return
