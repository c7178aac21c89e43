"""Where a worker listens: on an address of this machine, at ports that are free, or at free ones of those that are allowed.

Must not know: what comes in there.
"""

from __future__ import annotations

import errno
from typing import Final

import zmq

from topology_api.errors import SquallError

#: A port that another one has, or that takes rights which we lack: the next one is tried.
_NOT_OURS: Final = (errno.EADDRINUSE, errno.EACCES)


class CannotListen(SquallError):
    """The host that a worker is to listen on is none of this machine, or has no port for it."""


def check_address(bind: str) -> None:
    """Refuse an address that no worker on this machine could listen on, with `CannotListen`."""
    with zmq.Context() as context, context.socket(zmq.PULL) as trial:
        trial.setsockopt(zmq.IPV6, 0)
        try:
            trial.bind(f"tcp://{bind}:*")
        except zmq.ZMQError as error:
            why = zmq.strerror(error.errno or 0)
            raise CannotListen(
                f"workers cannot listen on {bind!r} (--bind): {why}; name an address of this machine, or 0.0.0.0 for all"
            ) from error


def bind_to(pull: zmq.Socket[bytes], bind: str, port: int, within: range | None) -> None:
    """Have a socket listen on an address, at that port if it is free and allowed (0: none is wanted); else at another one."""
    first = (port,) if port and (within is None or port in within) else ()
    for wanted in (*first, *(("*",) if within is None else within)):
        try:
            pull.bind(f"tcp://{bind}:{wanted}")
            return
        except zmq.ZMQError as error:
            final = wanted == "*" or (within is not None and error.errno not in _NOT_OURS)
            if final or error.errno == errno.ENODEV:
                raise CannotListen(
                    f"a worker cannot listen on {bind!r}: {error}. Name an address of this machine"
                ) from error
    assert within is not None
    raise CannotListen(
        f"a worker finds no free port on {bind!r}: all of supervisor.worker.ports ({within[0]}-{within[-1]}) are taken, and it"
        " takes two. See who has them (ss -tlnp), or give more"
    )
