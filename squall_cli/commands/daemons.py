"""`squall nimbus` and `squall supervisor`: run the daemons of a cluster until a signal ends them.

A cluster may have several masters; one leads at a time. A supervisor's workers continue to run until their lease ends.
Must not know: the work of a master, how a supervisor manages workers.
"""

from __future__ import annotations

import logging
import signal
import socket
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import click

from squall.http.host_names import EVERYWHERE, is_local_name, own_host
from squall_cli.cluster.cluster_client import config_option
from squall_cli.commands import daemon_options
from topology_api.errors import InvalidConfig
from topology_api.options import port_range

if TYPE_CHECKING:
    from supervisor.daemon import SupervisorSettings


@click.command()
@daemon_options.zookeeper_option
@daemon_options.listen_option("Where Nimbus answers HTTP", "127.0.0.1:6627")
@click.option(
    "--advertise",
    metavar="URL",
    help="The URL at which other machines reach this Nimbus.  [default: from --listen and this host's name]",
)
@daemon_options.state_option("Where Nimbus keeps its files.  [default: ~/.local/state/squall/nimbus]")
@daemon_options.insecure_option
@daemon_options.insecure_zookeeper_option
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
    state: str | None,
    insecure_zookeeper: bool,
    config: str | None,
    **others: Any,
) -> None:
    """Start a Nimbus, a master of a cluster. It runs until Ctrl-C or SIGTERM.

    Several masters may run for one cluster, each with its own --state: one leads, and if the leader dies, another master takes
    over. Every master answers requests that only read; it redirects requests that change something to the leader. Topologies
    continue to run while no Nimbus is up.

    \b
    Examples:
      squall nimbus --zookeeper 127.0.0.1:2181
      squall nimbus --zookeeper zk1:2181,zk2:2181,zk3:2181 --listen 0.0.0.0:6627 \\
          --advertise https://nimbus-1.example.org:6627 --config squall.yaml
    """
    from nimbus.daemon import NimbusDaemon, NimbusSettings

    daemon_options.keep_private()
    conf = daemon_options.daemon_settings(config)
    place, (host, port) = daemon_options.state_place("nimbus", state), listen
    # The other options are settings of the same names.
    settings = NimbusSettings(state=place, host=host.strip("[]"), port=port, conf=conf, **others)
    daemon_options.log_to(logging.StreamHandler())
    daemon_options.warn_of_root("a flaw in it would give away this host")
    store = daemon_options.make_store(zookeeper, conf, insecure_zookeeper)
    daemon = NimbusDaemon(store, settings)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, frame: daemon.ask_to_stop())
    daemon_options.run_daemon(store, daemon.run, daemon.ask_to_stop, daemon.stop)


_log = logging.getLogger(__name__)

LEASE: Final = "supervisor.worker.lease.secs"
TIMEOUT: Final = "nimbus.supervisor.timeout.secs"
PORTS: Final = "supervisor.worker.ports"
#: The number of ports on which a worker listens: one port is for tuples, the other for messages that must not queue behind
#: tuples.
PORTS_OF_ONE: Final = 2
#: The minimum number of seconds between the end of the workers' leases and the moment at which Nimbus gives their supervisor
#: up.
MARGIN: Final = 2.0


@click.command()
@daemon_options.zookeeper_option
@daemon_options.slots_option
@click.option(
    "--host",
    metavar="NAME",
    callback=daemon_options.host_name,
    help="The name or IPv4 address at which other hosts reach this host.  [default: the host's own name]",
)
@click.option(
    "--bind",
    metavar="ADDRESS",
    default="127.0.0.1",
    show_default=True,
    help="The address that workers listen on; 0.0.0.0: all addresses. Workers' links are always encrypted.",
)
@daemon_options.state_option(
    "Where the supervisor keeps its files and workers.  [default: ~/.local/state/squall/supervisor]"
)
@daemon_options.listen_option(
    "Where the supervisor serves logs to Nimbus", note="  [default: a free port of --bind]"
)
@daemon_options.insecure_option
@daemon_options.insecure_zookeeper_option
@click.option(
    "--new-cluster",
    is_flag=True,
    help="Join the cluster that ZooKeeper holds now, and end the workers of the previous one.",
)
@config_option
def supervisor(
    zookeeper: str | None,
    slots: int,
    host: str | None,
    bind: str,
    state: str | None,
    listen: tuple[str, int] | None,
    insecure_zookeeper: bool,
    config: str | None,
    **others: Any,
) -> None:
    """Start a supervisor, the daemon that runs workers on a host. It runs until Ctrl-C or SIGTERM.

    The workers do not end with the supervisor: they run until their lease ends (supervisor.worker.lease.secs), and the next
    supervisor with the same --state takes them over. So a supervisor can be restarted or upgraded under load. To move the work
    to other hosts first, run squall drain SUPERVISOR.

    \b
    Examples:
      squall supervisor --zookeeper 127.0.0.1:2181
      squall supervisor --zookeeper zk1:2181,zk2:2181,zk3:2181 --slots 8 \\
          --host worker-1.example.org --bind 0.0.0.0 --listen 0.0.0.0:6628
    """
    from squall.security.tls import server_context_files
    from supervisor.daemon import SupervisorDaemon

    umask = daemon_options.keep_private()
    conf = daemon_options.daemon_settings(config)
    listen = listen or listen_by(bind)
    # The other options are settings of the same names.
    settings = configured(conf, slots)(
        state=daemon_options.state_place("supervisor", state),
        host=host or own_host(),
        bind=bind,
        listen=listen,
        tls=server_context_files(conf),
        worker_umask=umask,
        **others,
    )
    daemon_options.log_to(logging.StreamHandler())
    daemon_options.warn_of_root(
        "so does the code of every topology, and it may change everything on this host"
    )
    store = daemon_options.make_store(zookeeper, conf, insecure_zookeeper)
    daemon = SupervisorDaemon(store, settings)
    for warning in unreached(host, settings.host, bind, listen[0], store.servers):
        _log.warning("%s", warning)
    # Running workers need this process, even if ZooKeeper refuses access to it.
    daemon_options.run_daemon(
        store, daemon.run, daemon.stop, daemon.release, needed=lambda: daemon.has_workers
    )


def configured(conf: Mapping[str, Any], slots: int) -> partial[SupervisorSettings]:
    """Return the supervisor's settings that come from the configuration. Raises InvalidConfig if settings contradict each
    other."""
    from supervisor.artifacts import PackageLimits
    from supervisor.daemon import SupervisorSettings

    check_lease(conf)
    check_ports(conf, slots)
    ca = conf["squall.tls.ca"]
    return partial(
        SupervisorSettings,
        slots=slots,
        ports=conf[PORTS],
        lease_secs=float(conf[LEASE]),
        keep_days=float(conf["supervisor.logs.keep.days"]),
        per_address=int(conf["squall.http.unknown.per.address"]),
        ca=None if ca is None else str(ca),
        packages=PackageLimits(
            int(conf["nimbus.package.limit.bytes"]), int(conf["nimbus.package.unpacked.limit.bytes"])
        ),
    )


def listen_by(bind: str) -> tuple[str, int]:
    """Return the default address of the log server: the address that workers listen on. If `bind` is the name of a network
    interface, which only ZeroMQ understands, return the loopback address."""
    interfaces = {name for _, name in socket.if_nameindex()}
    return ("127.0.0.1" if bind in interfaces else "0.0.0.0" if bind == "*" else bind), 0


def unreached(said: str | None, host: str, bind: str, listen: str, servers: str) -> list[str]:
    """Return a sentence for each address that other hosts cannot reach, or that every host uses for itself, such as
    `localhost`.

    `said` is --host. If it is None, `host` is the host's own name, and other hosts matter only if one of the ZooKeeper
    `servers` runs on another host."""
    found = []
    here = "fine where the whole cluster is on this machine. Otherwise"
    local = is_local_name(host)
    # Whether other hosts must reach this host.
    meant = said is not None or not all(map(is_local_name, hosts_of(servers)))
    for option, address, whose in (("--bind", bind, "workers"), ("--listen", listen, "logs")):
        if is_local_name(address):
            if meant and not local:
                found.append(
                    f"{whose} of host {host!r} can be reached only from this machine ({option} {address}): {here}"
                    f" give {option} an address that other hosts reach, or 0.0.0.0"
                )
        elif address in EVERYWHERE and local:
            found.append(
                f"other hosts look for {whose} of this host at {host!r}, which each of them takes for its own"
                f" address: {here} give --host NAME, a name at which they reach this host"
            )
    return found


def hosts_of(servers: str) -> list[str]:
    """Return the hosts of ZooKeeper's servers."""
    return [server.strip().rpartition(":")[0] or server for server in servers.partition("/")[0].split(",")]


def check_ports(conf: Mapping[str, Any], slots: int) -> None:
    """Check that there are enough ports for all slots."""
    ports = None if conf[PORTS] is None else port_range(str(conf[PORTS]))
    if ports is not None and len(ports) < PORTS_OF_ONE * slots:
        problem = (
            f"{PORTS!r} is {conf[PORTS]}, which has {len(ports)} ports, but {slots} slots need"
            f" {PORTS_OF_ONE * slots}: {PORTS_OF_ONE} for each worker."
            f" Give more ports, or --slots {max(len(ports) // PORTS_OF_ONE, 1)}"
        )
        raise InvalidConfig([problem])


def check_lease(conf: Mapping[str, Any]) -> None:
    """Check that workers end before their supervisor is given up, so that no task runs twice."""
    lease, timeout = float(conf[LEASE]), float(conf[TIMEOUT])
    if lease + MARGIN > timeout:
        problem = (
            f"{LEASE!r} is {lease:g} and {TIMEOUT!r} is {timeout:g}: workers must have ended {MARGIN:g} s before"
            f" their tasks go to another host, so give a lease of {max(timeout - MARGIN, 0):g} or less"
        )
        raise InvalidConfig([problem])
