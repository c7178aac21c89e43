"""Messages between worker processes over ZeroMQ: the carrier of real workers, and the only module that uses ZeroMQ.

A worker binds one PULL socket per channel, to a TCP endpoint and, for peers on its host, to a Unix socket whose path
`squall.transport.carriers.same_host` chooses. It connects one PUSH socket per peer and channel. Links are encrypted and
authenticated by CURVE: the workers of a topology, and no others, share one key pair; a ZAP handler accepts only peers that
prove that they have this key pair. Other connections are refused before any of their data reaches a worker; refusals are
counted, and logged at most once a minute (`squall.transport.refusals`). The handler runs in a thread of its own, so that links
come up even while the worker is inside a long user call.

Everything is bounded: queued messages, their size, the time for a handshake and for closing, connections that have not shown
the key (`squall.transport.carriers.admission`). A message may be lost with its
connection; `squall.transport.link` handles that. ZeroMQ's own heartbeats stay off: with them, libzmq aborts the process when
certain network partitions heal.

Other threads and signal handlers may call `wake`, but no other method; `side` makes sockets for one other thread.
Must not know: the contents of messages, clocks, sender and receiver.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import math
import os
import select
import socket
import struct
import threading
import time
from collections.abc import Mapping
from typing import Any, Final

import zmq
import zmq.utils.z85

from squall.transport.carrier import CONTROL, DATA, Parts
from squall.transport.carriers import same_host
from squall.transport.carriers.admission import PortAdmission, backlog
from squall.transport.carriers.other_end import other_end
from squall.transport.refusals import Handshakes, Refusals
from squall.values import Address, Keys
from topology_api.errors import SquallError

_Socket = zmq.Socket[bytes]
_Context = zmq.Context[_Socket]

_LOG = logging.getLogger(__name__)

#: The ZAP domain of links between workers; a request for any other domain is refused.
_DOMAIN: Final = b"squall"
_ZAP: Final = "inproc://zeromq.zap.01"
#: The most messages queued in one direction of one connection, by channel. For batches, credit sets a lower limit.
_HIGH_WATER: Final = (256, 1024)
#: The most bytes in one part of a message; a peer that sends a larger part is disconnected before the part is received.
MOST_PART_BYTES: Final = 1 << 30
#: Milliseconds.
_HANDSHAKE, _CONNECT, _LINGER, _RETRY, _MOST_RETRY = 3_000, 2_000, 500, 20, 500
#: Errors for a port that is in use, or that this user may not bind: the next port is tried.
_NOT_OURS: Final = (errno.EADDRINUSE, errno.EACCES)
#: The most reports on connections that may wait for the authenticator; if there were more, ZeroMQ itself would block.
_REPORTS: Final = 100_000
#: The first part of a report: an event and its value. `zmq.utils.monitor` reads it too, but imports asyncio and ssl.
_REPORT: Final = struct.Struct("=hi")
#: Parts from this size on are sent without a copy (measured at 1 MB with CURVE: twice the throughput, and 10 instead of 1,400
#: µs of the loop's time). Such parts must not change any more. Smaller parts are cheaper to copy.
_LARGE: Final = 64 * 1024
#: As a plain int: arithmetic with ZeroMQ's enumerations takes a microsecond.
_POLLIN: Final = int(zmq.POLLIN)
#: Received parts from this size on stay in ZeroMQ's memory.
_LARGE_RECEIVED: Final = 16 * 1024
_MOST_SIDE_PEERS: Final = 256
#: select() accepts only descriptors below this number.
_MOST_SELECTED: Final = 1024

#: ZeroMQ's event for a failed handshake -> the kind of the refusal.
_FAILURES: Final[Mapping[int, str]] = {
    zmq.EVENT_HANDSHAKE_FAILED_AUTH: "stranger",
    zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL: "unfinished",
}
_WATCHED: Final = (
    zmq.EVENT_ACCEPTED
    | zmq.EVENT_DISCONNECTED
    | zmq.EVENT_HANDSHAKE_SUCCEEDED
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
)
# HANDSHAKE_FAILED_PROTOCOL is not watched: libzmq 4.3.5 also reports it for an undecryptable message on an established
# connection. If the event is watched, libzmq overwrites errno while it makes that report, so that the connection is never read
# again, and never closed.


class WorkerCannotListen(SquallError):
    """A worker cannot listen: the host to bind is not an address of this machine, or has no free port."""


def check_address(bind: str) -> None:
    """Raise `WorkerCannotListen` for an address that no worker on this machine could listen on."""
    with zmq.Context() as context, context.socket(zmq.PULL) as trial:
        trial.setsockopt(zmq.IPV6, 0)
        try:
            trial.bind(f"tcp://{bind}:*")
        except zmq.ZMQError as error:
            why = zmq.strerror(error.errno or 0)
            raise WorkerCannotListen(
                f"workers cannot listen on {bind!r} (--bind): {why}; name an address of this machine, or 0.0.0.0 for all"
            ) from error


def make_keys() -> Keys:
    """Return a new key pair for a topology."""
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
        within: range | None = None,
    ) -> None:
        """`bind`: the host to listen on; `host`: the name under which peers reach this host; `ports`: the preferred ports, used
        if they are free; `within`: the ports to choose from (default: any free port).

        Without keys the links are neither encrypted nor authenticated: for tests only.
        """
        self._keys = keys
        self._process = os.getpid()
        self._context = zmq.Context(io_threads=1)
        self._context.set(zmq.MAX_SOCKETS, 16_384)
        refusals = Refusals(_LOG, time.monotonic)
        #: Refused connections, by kind.
        self.refusals = refusals.counts
        self._pulls: list[_Socket] = []
        self._pushes: dict[str, list[_Socket]] = {}
        self._sides: list[Side] = []
        self._wake_reader, self._wake_writer = _wake_pair()
        self._authenticator: ZapAuthenticator | None = None
        #: The connections that have not shown the topology's key; None until the worker listens.
        self.admission: PortAdmission | None = None
        try:
            if keys is not None:
                self._authenticator = ZapAuthenticator(self._context, keys, refusals)
            bound = [self._listen(bind, channel, ports[channel], within) for channel in (DATA, CONTROL)]
        except BaseException:
            self.close()
            raise
        self.ports = bound[DATA], bound[CONTROL]
        self.admission = PortAdmission(self.ports)
        #: The endpoints at which peers reach this worker: data and control.
        self.address: Address = f"tcp://{host}:{bound[DATA]}", f"tcp://{host}:{bound[CONTROL]}"
        # Listen on Unix sockets too, for peers on this host. If Unix sockets are impossible, these peers connect over TCP.
        for pull, endpoint in zip(self._pulls, self.address, strict=True):
            try:
                same_host.listen(keys, endpoint, pull.bind)
            except (OSError, zmq.ZMQError) as error:
                _LOG.info("peers on this host connect over TCP, not by a Unix socket: %s", error)
        wake_reader = self._wake_reader.fileno()
        watched: list[_Socket | int] = [*self._pulls, wake_reader]
        self._watched = [(source, _POLLIN) for source in watched]
        # Sorted: the last descriptor shows whether select() accepts all. select() can sleep for microseconds, poll() only for
        # whole milliseconds.
        self._descriptors = sorted([int(pull.getsockopt(zmq.FD)) for pull in self._pulls] + [wake_reader])
        if self._authenticator is not None:
            self._authenticator.start(self.admission)

    # Messages.

    def send(self, peer: str, channel: int, parts: Parts) -> bool:
        """Queue a message; return False if it was not accepted: the queue is full, or there is no such peer."""
        pushes = self._pushes.get(peer)
        return pushes is not None and _send(pushes[channel], parts)

    def receive(self, channel: int) -> Parts | None:
        """Return the next message that has arrived on a channel, or None."""
        if not self._pulls:
            return None
        pull = self._pulls[channel]
        # Checked first: this costs half as much as the exception of an empty socket.
        if not _events(pull) & _POLLIN:
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
        """Wait until a message has arrived, `wake` was called, or the time has passed (None: no limit)."""
        if any(_events(pull) & _POLLIN for pull in self._pulls):
            return  # checked first: a descriptor of ZeroMQ reports each event only once
        if self._descriptors[-1] < _MOST_SELECTED:
            timeout = None if seconds is None else max(0.0, seconds)
            ready, _, _ = select.select(self._descriptors, (), (), timeout)
        else:
            millis = -1 if seconds is None else max(0, math.ceil(seconds * 1000))
            ready = [descriptor for descriptor, _ in zmq.zmq_poll(self._watched, millis)]
        if self._wake_reader.fileno() in ready:
            with contextlib.suppress(BlockingIOError):
                while len(self._wake_reader.recv(4096)) == 4096:
                    pass

    def wake(self) -> None:
        """End the wait that is in progress, or else the next wait. Other threads and signal handlers may call this."""
        if os.getpid() == self._process:  # a forked child must not wake its parent
            with contextlib.suppress(OSError):  # full: a wake-up is pending; closed: there is no wait
                self._wake_writer.send(b"\0")

    # Peers.

    def connect(self, peer: str, address: Address) -> None:
        """Connect to a peer. Earlier connections are dropped, with their queued messages.

        An invalid address, or too many open files, is logged; the peer is not reached until the next attempt.
        """
        self.disconnect(peer)
        pushes: list[_Socket] = []
        try:
            for channel in (DATA, CONTROL):
                endpoint = same_host.nearest(self._keys, address[channel])
                pushes.append(_push(self._context, self._keys, channel, endpoint))
        except zmq.ZMQError as error:
            for push in pushes:
                push.close(0)
            _LOG.warning("cannot connect to worker %s at %s: %s", peer, " and ".join(address), error)
            return
        self._pushes[peer] = pushes

    def disconnect(self, peer: str) -> None:
        """Drop the connections to a peer, if there are any."""
        for push in self._pushes.pop(peer, ()):
            push.close(0)

    def side(self) -> Side:
        """Return sockets for one other thread."""
        side = Side(self._context, self._keys)
        self._sides.append(side)
        return side

    # The end.

    def close(self) -> None:
        """Close all sockets. ZeroMQ still tries for half a second to send the last messages."""
        if self._context.closed or os.getpid() != self._process:
            return
        for side in self._sides:
            side.close()
        for pushes in self._pushes.values():
            for push in pushes:
                push.close(_LINGER)
        self._pushes.clear()
        if self._authenticator is not None:
            self._authenticator.stop()
        for pull in self._pulls:
            pull.close(0)
        self._pulls.clear()
        if self.admission is not None:
            self.admission.close()
        self._context.term()
        same_host.sweep()
        self._wake_writer.close()
        self._wake_reader.close()

    def _listen(self, bind: str, channel: int, port: int, within: range | None) -> int:
        """Bind the socket of a channel, to `port` if that is free and allowed; return the port that was bound."""
        pull = _limited(self._context.socket(zmq.PULL), channel)
        self._pulls.append(pull)
        pull.setsockopt(zmq.BACKLOG, backlog())
        if self._keys is not None and self._authenticator is not None:
            pull.curve_server = True
            _give_keys(pull, self._keys)
            pull.zap_domain = _DOMAIN
            pull.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)
            self._authenticator.watch(pull, f"inproc://handshakes-{channel}")
        first = (port,) if port and (within is None or port in within) else ()
        for wanted in (*first, *(("*",) if within is None else within)):
            try:
                pull.bind(f"tcp://{bind}:{wanted}")
                return int(pull.getsockopt_string(zmq.LAST_ENDPOINT).rpartition(":")[2])
            except zmq.ZMQError as error:
                if wanted == "*" or error.errno not in _NOT_OURS:
                    raise WorkerCannotListen(
                        f"a worker cannot listen on {bind!r}: {error}. Name an address of this machine"
                    ) from error
        assert within is not None
        raise WorkerCannotListen(
            f"a worker finds no free port on {bind!r}: all of supervisor.worker.ports ({within[0]}-{within[-1]}) are taken,"
            " and a worker needs two. See which programs use them (ss -tlnp), or allow more ports"
        )


class Side:
    """Sends control messages from another thread, over separate connections: they may overtake messages of the worker's
    loop."""

    def __init__(self, context: _Context, keys: Keys | None) -> None:
        self._context = context
        self._keys = keys
        self._pushes: dict[str, _Socket] = {}
        # The worker's thread closes the sockets that the other thread left open. The lock keeps both from using a socket at
        # once.
        self._lock = threading.Lock()
        self._closed = False

    def send(self, address: Address, parts: Parts) -> bool:
        """Queue a control message for the worker at an address; return False if it was not accepted."""
        with self._lock:
            if self._closed:
                return False
            endpoint = same_host.nearest(self._keys, address[CONTROL])
            if (push := self._pushes.pop(endpoint, None)) is None:
                try:
                    push = _push(self._context, self._keys, CONTROL, endpoint)
                except zmq.ZMQError:  # the worker's own connection to that peer reports the error
                    return False
            self._pushes[endpoint] = push  # most recently used last
            if len(self._pushes) > _MOST_SIDE_PEERS:
                self._pushes.pop(next(iter(self._pushes))).close(0)
            return _send(push, parts)

    def close(self) -> None:
        """Close the sockets; refuse sends from now on."""
        with self._lock:
            self._closed = True
            for push in self._pushes.values():
                push.close(0)
            self._pushes.clear()


class ZapAuthenticator:
    """Accepts or refuses connections (ZeroMQ RFC 27) and counts the refused connections, in a thread of its own."""

    def __init__(self, context: _Context, keys: Keys, refusals: Refusals) -> None:
        self._context = context
        self._key = zmq.utils.z85.decode(keys.public)
        self._refusals = refusals
        self._wake_reader, self._wake_writer = _wake_pair()
        self._asked = context.socket(zmq.REP)
        self._asked.bind(_ZAP)  # must happen before the first socket listens
        self._handshakes: dict[_Socket, Handshakes] = {}
        self._watched: list[_Socket] = []
        self._thread: threading.Thread | None = None

    def watch(self, pull: _Socket, name: str) -> None:
        """Follow the connections of a socket that is about to listen."""
        pull.monitor(name, _WATCHED)
        reports = self._context.socket(zmq.PAIR)
        reports.rcvhwm = _REPORTS
        reports.connect(name)
        self._handshakes[reports] = Handshakes(self._refusals)
        self._watched.append(pull)

    def start(self, admission: PortAdmission) -> None:
        """Start the thread. From now on, it owns the sockets for requests and reports."""
        self._thread = threading.Thread(
            target=self._run, args=(admission,), name="squall-zap-authenticator", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread; the watched sockets must still be open."""
        for pull in self._watched:
            pull.disable_monitor()
        if self._thread is not None:
            self._wake_writer.send(b"\0")
            self._thread.join()
        for sock in (self._asked, *self._handshakes):
            sock.close(0)
        self._wake_writer.close()
        self._wake_reader.close()

    def _run(self, admission: PortAdmission) -> None:
        wake_reader = self._wake_reader.fileno()
        sources: list[_Socket | int] = [wake_reader, self._asked, *self._handshakes]
        watched = [(source, _POLLIN) for source in sources]
        again: int | None = None
        while True:
            ready: list[Any] = [sock for sock, _ in zmq.zmq_poll(watched, -1 if again is None else again)]
            if wake_reader in ready:
                return
            again = admission.close_oldest()  # before the reports, which may be many
            for sock in ready:
                try:
                    if sock is self._asked:
                        self._asked.send_multipart(self._answer(self._asked.recv_multipart()))
                    else:
                        self._report(self._handshakes[sock], sock.recv_multipart())
                except Exception:  # later requests must be answered nevertheless
                    _LOG.exception("the authenticator of this worker's links failed on a connection")

    def _answer(self, request: list[bytes]) -> list[bytes]:
        """Answer whether a connection is accepted."""
        version, number, domain, _, _, mechanism, *credentials = request
        if (domain, mechanism, credentials) == (_DOMAIN, b"CURVE", [self._key]):
            return [version, number, b"200", b"OK", b"", b""]
        return [version, number, b"400", b"not of this topology", b"", b""]

    def _report(self, handshakes: Handshakes, message: list[bytes]) -> None:
        """Process ZeroMQ's report on a connection."""
        number, endpoint = message
        event, value = _REPORT.unpack(number)
        if event == zmq.EVENT_ACCEPTED:
            handshakes.accepted(value, other_end(value, endpoint.decode()))
        elif event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
            handshakes.let_in()
        elif event in _FAILURES:
            handshakes.failed(_FAILURES[event])
        elif event == zmq.EVENT_DISCONNECTED:
            handshakes.ended(value)


def _push(context: _Context, keys: Keys | None, channel: int, endpoint: str) -> _Socket:
    """Return a socket that sends to an endpoint."""
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


def _limited(sock: _Socket, channel: int) -> _Socket:
    """Limit a socket's queues, message size and times; return it."""
    sock.set_hwm(_HIGH_WATER[channel])
    sock.setsockopt(zmq.LINGER, _LINGER)
    sock.setsockopt(zmq.MAXMSGSIZE, MOST_PART_BYTES)
    sock.setsockopt(zmq.HANDSHAKE_IVL, _HANDSHAKE)
    sock.setsockopt(zmq.IPV6, 0)
    return sock


def _give_keys(sock: _Socket, keys: Keys) -> None:
    sock.curve_publickey = keys.public.encode()
    sock.curve_secretkey = keys.secret.encode()


def _send(push: _Socket, parts: Parts) -> bool:
    """Send all parts or none: ZeroMQ drops the first parts of a message if there is no room for the rest."""
    last = len(parts) - 1
    try:
        for position, part in enumerate(parts):
            flags = zmq.NOBLOCK | zmq.SNDMORE if position < last else zmq.NOBLOCK
            push.send(part, flags, copy=len(part) < _LARGE)
    except zmq.Again:
        return False
    return True


def _events(sock: _Socket) -> int:
    events = sock.getsockopt(zmq.EVENTS)
    assert isinstance(events, int)
    return events


def _wake_pair() -> tuple[socket.socket, socket.socket]:
    """Return a non-blocking socketpair that wakes a loop: a byte written to the second end makes the first readable."""
    wake_reader, wake_writer = socket.socketpair()
    wake_reader.setblocking(False)
    wake_writer.setblocking(False)
    return wake_reader, wake_writer
