"""Messages between worker processes over ZeroMQ: the carrier that real workers use. Nothing else speaks ZeroMQ.

A worker binds one PULL socket per channel, to a TCP endpoint and to a Unix socket for peers on its host, which are chosen by
`squall.transport.same_host`; it connects one PUSH socket per peer and channel. Links are encrypted and
authenticated by CURVE: all workers of a topology share one key pair, which only they have; a ZAP handler lets in only who
proves to have it. Whoever else comes is turned away before anything of what it sent reaches a worker, counted, and logged at
most once a minute (`squall.transport.refusals`). A thread of its own, the doorkeeper, sees to that, so that links come up
while the worker is inside a long user call.

Everything is bounded: messages that wait, their size, the time for a handshake, the time that closing takes. ZeroMQ promises
little, and `squall.transport.link` expects no more: a message may be lost when a connection is. ZeroMQ's own heartbeats stay
off (libzmq aborts the process on some partitions that heal).

Only `wake` may be called from other threads and from signal handlers; `side` gives another thread sockets of its own.
Must not know: what is in a message, clocks, who speaks to whom and why.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import math
import os
import select
import socket
import threading
import time
from typing import Final

import zmq
import zmq.utils.z85
from zmq.utils.monitor import parse_monitor_message

from squall.transport import same_host
from squall.transport.carrier import CONTROL, DATA, Parts
from squall.transport.other_end import other_end
from squall.transport.refusals import Arrivals, Refusals
from squall.worker_files import Address, Keys
from topology_api.errors import SquallError

_LOG = logging.getLogger(__name__)

#: The ZAP domain of links between workers; a request for any other is refused.
_DOMAIN: Final = b"squall"
_ZAP: Final = "inproc://zeromq.zap.01"
#: Messages that wait in one direction of one connection, by channel. Batches are bounded by credit before this.
_HIGH_WATER: Final = (256, 1024)
#: Bytes of one part of a message; a peer that sends more is cut off before they are taken.
MOST_PART_BYTES: Final = 1 << 30
#: Milliseconds.
_HANDSHAKE, _CONNECT, _LINGER, _RETRY, _MOST_RETRY = 3_000, 2_000, 500, 20, 500
#: Connections that the kernel holds until they are accepted.
_BACKLOG: Final = 512
#: A port that another one has, or that takes rights which we lack: the next one is tried.
_NOT_OURS: Final = (errno.EADDRINUSE, errno.EACCES)
#: Reports of connections that may wait for the doorkeeper; beyond this, ZeroMQ itself would wait.
_REPORTS: Final = 100_000
#: Parts from this size on are sent as they lie in memory, not copied (measured at 1 MB with CURVE: twice the throughput, and
#: 10 instead of 1,400 µs of the loop's time): nobody may change them any more. Smaller ones are cheaper copied.
_LARGE: Final = 64 * 1024
#: As a plain int: arithmetic with ZeroMQ's enumerations takes a microsecond.
_POLLIN: Final = int(zmq.POLLIN)
#: Received parts from this size on are handed on as they lie in ZeroMQ's memory.
_LARGE_RECEIVED: Final = 16 * 1024
_MOST_SIDE_PEERS: Final = 256
#: Descriptors from this number on are beyond what select() takes.
_MOST_SELECTED: Final = 1024

_WATCHED: Final = (
    zmq.EVENT_ACCEPTED
    | zmq.EVENT_DISCONNECTED
    | zmq.EVENT_HANDSHAKE_SUCCEEDED
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
)
# Not HANDSHAKE_FAILED_PROTOCOL: libzmq 4.3.5 reports it of an undecryptable message on an established connection too, and where
# somebody listens for it, making the report overwrites errno, so that the connection is never read again, and never closed.


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


def make_keys() -> Keys:
    """A new key pair for a topology."""
    public, secret = zmq.curve_keypair()
    return Keys(public.decode(), secret.decode())


class Sockets:
    """The sockets of one worker."""

    def __init__(
        self,
        keys: Keys | None,
        bind: str = "127.0.0.1",
        host: str = "127.0.0.1",
        ports: tuple[int, int] = (0, 0),
        log: logging.Logger = _LOG,
        within: range | None = None,
    ) -> None:
        """`bind`: the host to listen on; `host`: what peers call it; `ports`: to be had again if they are free. `within`: the
        ports to choose from (default: all that are free).

        Without keys the links are neither encrypted nor authenticated: for tests alone.
        """
        self._keys = keys
        self._process = os.getpid()
        self._context = zmq.Context(io_threads=1)
        self._context.set(zmq.MAX_SOCKETS, 16_384)
        self._log = log
        self._refusals = Refusals(log, time.monotonic)
        self._pulls: list[zmq.Socket[bytes]] = []
        self._pushes: dict[str, list[zmq.Socket[bytes]]] = {}
        self._sides: list[Side] = []
        self._bell, self._rope = _bell()
        self._doorkeeper: Doorkeeper | None = None
        try:
            if keys is not None:
                self._doorkeeper = Doorkeeper(self._context, keys, self._refusals, log)
            names = [self._listen(bind, channel, ports[channel], within) for channel in (DATA, CONTROL)]
        except BaseException:
            self.close()
            raise
        self._address = _endpoint(host, names[DATA]), _endpoint(host, names[CONTROL])
        self._listen_here()
        self._watched: list[tuple[zmq.Socket[bytes] | int, int]] = [
            (self._pulls[DATA], zmq.POLLIN),
            (self._pulls[CONTROL], zmq.POLLIN),
            (self._bell.fileno(), zmq.POLLIN),
        ]
        # Sorted: the last says whether select() can take them. It sleeps by microseconds, where polls sleep by milliseconds.
        self._descriptors = sorted(
            [int(pull.getsockopt(zmq.FD)) for pull in self._pulls] + [self._bell.fileno()]
        )
        if self._doorkeeper is not None:
            self._doorkeeper.start()

    @property
    def address(self) -> Address:
        """Where peers reach this worker: the data and the control endpoint."""
        return self._address

    @property
    def ports(self) -> tuple[int, int]:
        """The ports that this worker listens on."""
        data, control = (int(endpoint.rpartition(":")[2]) for endpoint in self._address)
        return data, control

    @property
    def refusals(self) -> dict[str, int]:
        """How many connections were refused, by kind."""
        return self._refusals.counts

    # Messages.

    def send(self, peer: str, channel: int, parts: Parts) -> bool:
        """Hand a message over. False: there is no room now, or no such peer; it was not taken."""
        pushes = self._pushes.get(peer)
        return pushes is not None and _send(pushes[channel], parts)

    def receive(self, channel: int) -> Parts | None:
        """The next message that has come on a channel; None: there is none."""
        if not self._pulls:
            return None
        pull = self._pulls[channel]
        if (
            not _events(pull) & _POLLIN
        ):  # asked first: half the price of the exception that an empty socket raises
            return None
        parts: list[bytes | memoryview] = []
        try:
            while True:
                frame = pull.recv(zmq.NOBLOCK, copy=False)
                parts.append(frame.buffer if len(frame) >= _LARGE_RECEIVED else frame.bytes)
                if not frame.more:
                    return parts
        except zmq.Again:
            return None

    def wait(self, seconds: float | None) -> None:
        """Until something has come, `wake` was called, or the time is over (None: no end)."""
        if any(_events(pull) & _POLLIN for pull in self._pulls):
            return  # asked first: what a descriptor of ZeroMQ tells, it tells once
        if self._descriptors[-1] < _MOST_SELECTED:
            ready = select.select(self._descriptors, (), (), None if seconds is None else max(0.0, seconds))[
                0
            ]
        else:
            timeout = -1 if seconds is None else max(0, math.ceil(seconds * 1000))
            ready = [descriptor for descriptor, _ in zmq.zmq_poll(self._watched, timeout)]
        if self._bell.fileno() in ready:
            with contextlib.suppress(BlockingIOError):
                while len(self._bell.recv(4096)) == 4096:
                    pass

    def wake(self) -> None:
        """End a wait that is under way, or the next one. For other threads and signal handlers too."""
        if os.getpid() == self._process:  # a forked child must not wake its parent
            with contextlib.suppress(OSError):  # full: it is ringing already; closed: nobody waits
                self._rope.send(b"\0")

    # Peers.

    def connect(self, peer: str, address: Address) -> None:
        """Make the connections to a peer; those that there were are dropped, with what was queued on them.

        An address that is none, or too many open files, is logged; the peer is not reached until the next attempt.
        """
        self.disconnect(peer)
        pushes: list[zmq.Socket[bytes]] = []
        try:
            for channel in (DATA, CONTROL):
                endpoint = same_host.nearest(self._keys, address[channel])
                pushes.append(_push(self._context, self._keys, channel, endpoint))
        except zmq.ZMQError as error:
            for push in pushes:
                push.close(0)
            self._log.warning("cannot connect to worker %s at %s: %s", peer, " and ".join(address), error)
            return
        self._pushes[peer] = pushes

    def disconnect(self, peer: str) -> None:
        """Drop the connections to a peer; none there is fine."""
        for push in self._pushes.pop(peer, ()):
            push.close(0)

    def side(self) -> Side:
        """Sockets for one other thread."""
        side = Side(self._context, self._keys)
        self._sides.append(side)
        return side

    # The end.

    def close(self) -> None:
        """Give everything back. What was sent last is given half a second to leave."""
        if self._context.closed or os.getpid() != self._process:
            return
        for side in self._sides:
            side.close()
        for pushes in self._pushes.values():
            for push in pushes:
                push.close(_LINGER)
        self._pushes.clear()
        if self._doorkeeper is not None:
            self._doorkeeper.stop()
        for pull in self._pulls:
            pull.close(0)
        self._pulls.clear()
        self._context.term()
        same_host.sweep()
        self._rope.close()
        self._bell.close()

    def _listen(self, bind: str, channel: int, port: int, within: range | None) -> str:
        """Bind the socket of a channel, to that port if it is free and allowed; the endpoint it got."""
        pull = _limited(self._context.socket(zmq.PULL), channel)
        self._pulls.append(pull)
        pull.setsockopt(zmq.BACKLOG, _BACKLOG)
        if self._keys is not None and self._doorkeeper is not None:
            pull.curve_server = True
            _give_keys(pull, self._keys)
            pull.zap_domain = _DOMAIN
            pull.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)
            self._doorkeeper.watch(pull, f"inproc://arrivals-{channel}")
        first = (port,) if port and (within is None or port in within) else ()
        for wanted in (*first, *(("*",) if within is None else within)):
            try:
                pull.bind(f"tcp://{bind}:{wanted}")
                return str(pull.getsockopt_string(zmq.LAST_ENDPOINT))
            except zmq.ZMQError as error:
                if wanted == "*" or error.errno not in _NOT_OURS:
                    raise CannotListen(
                        f"a worker cannot listen on {bind!r}: {error}. Name an address of this machine"
                    ) from error
        assert within is not None
        raise CannotListen(
            f"a worker finds no free port on {bind!r}: all of supervisor.worker.ports ({within[0]}-{within[-1]}) are taken,"
            " and it takes two. See who has them (ss -tlnp), or give more"
        )

    def _listen_here(self) -> None:
        """Be there for peers on this host too; where that cannot be, they come over TCP."""
        for pull, endpoint in zip(self._pulls, self._address, strict=True):
            try:
                same_host.listen(self._keys, endpoint, pull.bind)
            except (OSError, zmq.ZMQError) as error:
                self._log.info("peers on this host come over TCP, not by a Unix socket: %s", error)


class Side:
    """Control messages from another thread, by connections of its own: in no order with those of the worker's loop."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], keys: Keys | None) -> None:
        self._context = context
        self._keys = keys
        self._pushes: dict[str, zmq.Socket[bytes]] = {}
        # The worker's thread closes what this thread has left open; a lock hands the sockets over.
        self._lock = threading.Lock()
        self._closed = False

    def send(self, address: Address, parts: Parts) -> bool:
        """Hand a control message over to the worker at an address. False: it was not taken."""
        with self._lock:
            if self._closed:
                return False
            endpoint = same_host.nearest(self._keys, address[CONTROL])
            push = self._pushes.pop(endpoint, None)
            if push is None:
                try:
                    push = _push(self._context, self._keys, CONTROL, endpoint)
                except zmq.ZMQError:  # the worker's own connection to that peer says what is wrong
                    return False
            self._pushes[endpoint] = push  # the one that was used last stands last
            if len(self._pushes) > _MOST_SIDE_PEERS:
                self._pushes.pop(next(iter(self._pushes))).close(0)
            return _send(push, parts)

    def close(self) -> None:
        """Give the sockets back; sends are refused from now on."""
        with self._lock:
            self._closed = True
            for push in self._pushes.values():
                push.close(0)
            self._pushes.clear()


class Doorkeeper:
    """Answers who may come in, and keeps account of who was turned away. A thread of its own."""

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        keys: Keys,
        refusals: Refusals,
        log: logging.Logger,
    ) -> None:
        self._context = context
        self._key = zmq.utils.z85.decode(keys.public)
        self._refusals = refusals
        self._log = log
        self._bell, self._rope = _bell()
        self._asked = context.socket(zmq.REP)
        self._asked.bind(_ZAP)  # before the first socket that needs it listens
        self._arrivals: dict[zmq.Socket[bytes], Arrivals] = {}
        self._watched: list[zmq.Socket[bytes]] = []
        self._thread = threading.Thread(target=self._run, name="squall-doorkeeper", daemon=True)

    def watch(self, pull: zmq.Socket[bytes], name: str) -> None:
        """Follow the connections of a socket that is about to listen."""
        pull.monitor(name, _WATCHED)
        reports = self._context.socket(zmq.PAIR)
        reports.rcvhwm = _REPORTS
        reports.connect(name)
        self._arrivals[reports] = Arrivals(self._refusals)
        self._watched.append(pull)

    def start(self) -> None:
        """Begin. From now on the sockets for questions and reports are the thread's."""
        self._thread.start()

    def stop(self) -> None:
        """End; the sockets that were watched are still open."""
        for pull in self._watched:
            pull.disable_monitor()
        if self._thread.ident is not None:
            self._rope.send(b"\0")
            self._thread.join()
        for sock in (self._asked, *self._arrivals):
            sock.close(0)
        self._rope.close()
        self._bell.close()

    def _run(self) -> None:
        bell = self._bell.fileno()
        sources: list[zmq.Socket[bytes] | int] = [bell, self._asked, *self._arrivals]
        watched = [(source, int(zmq.POLLIN)) for source in sources]
        while True:
            ready = [sock for sock, _ in zmq.zmq_poll(watched, -1)]
            if bell in ready:
                return
            for sock in ready:
                try:
                    self._serve(sock)
                except Exception:  # whatever it was, the next one who comes must be answered
                    self._log.exception("the doorkeeper of this worker's links could not serve a connection")

    def _serve(self, sock: zmq.Socket[bytes] | int) -> None:
        if sock is self._asked:
            self._asked.send_multipart(self._answer(self._asked.recv_multipart()))
        elif isinstance(sock, zmq.Socket):
            self._report(self._arrivals[sock], sock.recv_multipart())

    def _answer(self, request: list[bytes]) -> list[bytes]:
        """Whether somebody may come in (ZeroMQ RFC 27)."""
        version, number, domain, _, _, mechanism, *credentials = request
        if (domain, mechanism, credentials) == (_DOMAIN, b"CURVE", [self._key]):
            return [version, number, b"200", b"OK", b"", b""]
        return [version, number, b"400", b"not of this topology", b"", b""]

    def _report(self, arrivals: Arrivals, message: list[bytes]) -> None:
        """What ZeroMQ says of a connection."""
        report = parse_monitor_message(message)
        event, value = report["event"], report["value"]
        if event == zmq.EVENT_ACCEPTED:
            arrivals.accepted(value, other_end(value, report["endpoint"].decode()))
        elif event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
            arrivals.let_in()
        elif event == zmq.EVENT_HANDSHAKE_FAILED_AUTH:
            arrivals.failed("stranger")
        elif event == zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL:
            arrivals.failed("unfinished")
        elif event == zmq.EVENT_DISCONNECTED:
            arrivals.ended(value)


def _push(
    context: zmq.Context[zmq.Socket[bytes]], keys: Keys | None, channel: int, endpoint: str
) -> zmq.Socket[bytes]:
    """A socket that sends to an endpoint."""
    push = context.socket(zmq.PUSH)
    try:
        _limited(push, channel)
        push.setsockopt(zmq.RECONNECT_IVL, _RETRY)
        push.setsockopt(zmq.RECONNECT_IVL_MAX, _MOST_RETRY)
        push.setsockopt(zmq.CONNECT_TIMEOUT, _CONNECT)
        if keys is not None:
            _give_keys(push, keys)
            push.curve_serverkey = keys.public.encode()
        push.connect(endpoint)
    except BaseException:
        push.close(0)
        raise
    return push


def _limited(sock: zmq.Socket[bytes], channel: int) -> zmq.Socket[bytes]:
    """The socket with a limit on everything."""
    sock.setsockopt(zmq.SNDHWM, _HIGH_WATER[channel])
    sock.setsockopt(zmq.RCVHWM, _HIGH_WATER[channel])
    sock.setsockopt(zmq.LINGER, _LINGER)
    sock.setsockopt(zmq.MAXMSGSIZE, MOST_PART_BYTES)
    sock.setsockopt(zmq.HANDSHAKE_IVL, _HANDSHAKE)
    sock.setsockopt(zmq.IPV6, 0)
    return sock


def _give_keys(sock: zmq.Socket[bytes], keys: Keys) -> None:
    sock.curve_publickey = keys.public.encode()
    sock.curve_secretkey = keys.secret.encode()


def _send(push: zmq.Socket[bytes], parts: Parts) -> bool:
    """All parts or none: ZeroMQ takes back what it has of a message when there is no room for the rest."""
    last = len(parts) - 1
    try:
        for position, part in enumerate(parts):
            flags = zmq.NOBLOCK | zmq.SNDMORE if position < last else zmq.NOBLOCK
            push.send(part, flags, copy=len(part) < _LARGE)
    except zmq.Again:
        return False
    return True


def _events(sock: zmq.Socket[bytes]) -> int:
    events = sock.getsockopt(zmq.EVENTS)
    assert isinstance(events, int)
    return events


def _bell() -> tuple[socket.socket, socket.socket]:
    """Two ends of a line that never waits: what goes in at the second makes the first readable."""
    bell, rope = socket.socketpair()
    bell.setblocking(False)
    rope.setblocking(False)
    return bell, rope


def _endpoint(host: str, bound: str) -> str:
    return f"tcp://{host}:{bound.rpartition(':')[2]}"
