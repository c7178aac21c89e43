"""Keeps files free while strangers hold connections to a worker's TCP ports: closes the oldest connections that are *unknown*.

A connection is unknown until the worker has accepted its peer's key. ZeroMQ accepts every connection, and closes an unknown one
only after its time for a handshake; a stranger with many connections could use up all files of the process meanwhile. ZeroMQ
cannot be told to stop: `unbind` also ends the links of that port, and it takes no connection that other code has accepted. So
unknown connections get a quarter of the files that the process may open. When there are more, the older half is closed and the
*gate* is shut for 10 ms or more: a filter in the kernel drops what would open a connection. Who tries again, does so after a
second, so that a flood cannot take the places back at once, while a peer needs milliseconds to show its key: it gets in by its
first or one of its next attempts. Links are never closed.

ZeroMQ does not report which connection has shown the key, but the kernel knows: the worker sends its last word of the handshake
to no other, so a connection is known once its peer has confirmed more bytes than the rest of the handshake has.

The system calls are made through `ctypes.PyDLL`, which keeps the interpreter's lock. Each call that releases the lock gets it
back only after 5 ms while user code is busy, and a look at 1,000 connections makes some 3,000 calls (measured: 3 ms).
Unix sockets are left alone: no other user can reach them. Where the system has no such calls (macOS), nothing is closed.
Must not know: ZeroMQ, keys, messages.
"""

from __future__ import annotations

import ctypes
import logging
import os
import resource
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Any, Final

_LOG = logging.getLogger(__name__)

#: One of this number of the files may be an unknown connection, within these bounds.
SHARE: Final = 4
LEAST: Final = 16
MOST: Final = 1024
#: Bytes that a peer has confirmed. All that an unknown peer is sent has 246: greeting (64), WELCOME (170), ERROR (12). A known
#: peer has also confirmed READY (52).
KNOWN_FROM: Final = 260
#: A look may take one of this number of the time.
PACE: Final = 5
#: Milliseconds between two looks while many files are open: when none is left, no further connection is accepted and reported.
AGAIN: Final = 10
#: Seconds between two lines in the log.
QUIET_SECS: Final = 60.0

#: Where `struct tcp_info` of Linux has the state, the milliseconds since bytes were sent, and the bytes that were confirmed.
_STATE, _SENT_AGO, _CONFIRMED = 0, 44, 120
#: ESTABLISHED and CLOSE_WAIT. In other states a connection is closed as soon as ZeroMQ's thread gets to it.
_OPEN: Final = (1, 8)
_LISTENS: Final = 10
_DUPLICATE: Final = 1030  # F_DUPFD_CLOEXEC
_INT: Final = struct.Struct("=I")
_LONG: Final = struct.Struct("=Q")
_ADDRESS: Final = struct.Struct("=H2s")
_ATTACH, _DETACH = 26, 27  # SO_ATTACH_FILTER, SO_DETACH_FILTER
#: The gate, in the language of the kernel's socket filters: load byte 13 of the TCP header; if it has SYN, drop, else accept.
#: Packets of connections have no SYN, so one that inherits the filter takes no harm.
_STEPS: Final = ((0x30, 0, 0, 13), (0x45, 0, 1, 0x02), (0x06, 0, 0, 0), (0x06, 0, 0, 0xFFFF_FFFF))
_CODE: Final = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *step) for step in _STEPS))
_DROP_SYN: Final = struct.pack("@HP", len(_STEPS), ctypes.addressof(_CODE))


def places(limit: int) -> int:
    """Return how many connections may be unknown, with this limit on open files."""
    return MOST if limit < 0 else min(max(limit // SHARE, LEAST), MOST)


def backlog() -> int:
    """Return how many connections the kernel may hold for one port until they are accepted, which no gate prevents."""
    return places(resource.getrlimit(resource.RLIMIT_NOFILE)[0]) // 2


class Gate:
    """Stops new connections at a process's listening sockets, without a word to who tries: who tries again gets in later."""

    def __init__(self, listening: list[socket.socket]) -> None:
        self.shut = False
        self._listening = listening

    def set(self, shut: bool) -> None:
        """Shut the gate or open it."""
        if self.shut == shut:
            return
        self.shut = shut
        for sock in self._listening:
            with suppress(OSError):  # user code has closed the descriptor
                if shut:
                    sock.setsockopt(socket.SOL_SOCKET, _ATTACH, _DROP_SYN)
                else:
                    sock.setsockopt(socket.SOL_SOCKET, _DETACH, 0)

    def close(self) -> None:
        """Close the descriptors."""
        for sock in self._listening:
            with suppress(OSError):
                sock.close()


class PortAdmission:
    """The connections that one process has accepted at its ports. Any thread may call any method."""

    def __init__(self, ports: Collection[int], clock: Callable[[], float] = time.monotonic) -> None:
        self._ports = {port.to_bytes(2, "big") for port in ports}
        self._clock = clock
        self._lock = threading.Lock()
        self._not_before = self._quiet_until = float("-inf")
        self._unsaid = 0
        self._address = ctypes.create_string_buffer(128)
        self._info = ctypes.create_string_buffer(256)
        self._size = ctypes.c_uint()
        self._libc = _system()
        self._gate = Gate([] if self._libc is None else self._listening())
        # A connection is closed through a descriptor of our own: its number may mean another file a moment later.
        self._own = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._other = os.dup(self._own.fileno())
        self._inode = os.fstat(self._other).st_ino

    def close_oldest(self) -> int | None:
        """Close the older half of the unknown connections if there are too many. Return in how many milliseconds to look again,
        None: when a connection is accepted. Cheap while the process has few files open."""
        began = self._clock()
        if self._libc is None:
            return None
        if began < self._not_before:
            return AGAIN
        most = places(self._limit())
        with self._lock:
            if self._lowest_free() <= most:
                self._gate.set(shut=False)
                return None
            unknown = self._unknown()
            too_many = len(unknown) > most
            self._gate.set(shut=too_many)
            if too_many:
                self._close(unknown[: len(unknown) - most // 2], most)
            ended = self._clock()
            self._not_before = ended + PACE * (ended - began)
        return AGAIN

    def make_room(self) -> int:
        """Close the older half of the unknown connections, because the process could open no file; return how many. Until the
        next look there will be no new ones."""
        if self._libc is None:
            return 0
        with self._lock:
            unknown = self._unknown()
            self._gate.set(shut=True)
            closed = self._close(unknown[: (len(unknown) + 1) // 2], places(self._limit()))
            if not closed:  # a closed one is reported, which leads to the next look
                self._gate.set(shut=False)
            return closed

    def count(self) -> int:
        """Return how many connections are unknown."""
        if self._libc is None:
            return 0
        with self._lock:
            return len(self._unknown())

    def close(self) -> None:
        """Give the descriptors back, unless user code has closed them."""
        with self._lock:
            self._libc = None
            self._gate.close()
            for descriptor in (self._own.detach(), self._other):
                if _inode(descriptor) == self._inode:
                    os.close(descriptor)

    def _listening(self) -> list[socket.socket]:
        """Return the listening sockets of the ports, each under a second descriptor."""
        descriptors = [int(name) for name in os.listdir("/proc/self/fd")]
        found = [each for each in descriptors if self._state(each) == _LISTENS]
        return [socket.socket(fileno=os.dup(each)) for each in found]

    def _unknown(self) -> list[int]:
        """Return the descriptors of the unknown connections, the oldest first."""
        ages = ((self._age(descriptor), descriptor) for descriptor in range(self._lowest_free()))
        return [
            descriptor
            for _, descriptor in sorted((pair for pair in ages if pair[0] is not None), reverse=True)
        ]

    def _age(self, descriptor: int) -> int | None:
        """Return the milliseconds since something was sent to the peer of an unknown connection; None for any other file."""
        state = self._state(descriptor)
        if state not in _OPEN or _LONG.unpack_from(self._info, _CONFIRMED)[0] >= KNOWN_FROM:
            return None
        age: int = _INT.unpack_from(self._info, _SENT_AGO)[0]
        return age

    def _state(self, descriptor: int) -> int | None:
        """Return the state of a TCP socket of one of the ports, and have its `tcp_info`; None for any other file."""
        libc, address, info, size = self._libc, self._address, self._info, self._size
        size.value = len(address)
        if libc.getsockname(descriptor, address, ctypes.byref(size)):
            return None
        family, port = _ADDRESS.unpack_from(address)
        if family != socket.AF_INET or port not in self._ports:
            return None
        size.value = len(info)
        failed = libc.getsockopt(descriptor, socket.IPPROTO_TCP, socket.TCP_INFO, info, ctypes.byref(size))
        return None if failed or size.value < _CONFIRMED + _LONG.size else info.raw[_STATE]

    def _close(self, descriptors: list[int], most: int) -> int:
        """End these connections; ZeroMQ then closes them. Needs no free descriptor."""
        own, other = self._own.fileno(), self._other
        if not _inode(own) == _inode(other) == self._inode:
            return 0  # user code has closed them, and may use their numbers
        closed = 0
        for descriptor in descriptors:
            if self._libc.dup3(descriptor, other, os.O_CLOEXEC) == other and self._age(other) is not None:
                self._libc.shutdown(other, socket.SHUT_RDWR)
                closed += 1
        self._libc.dup3(own, other, os.O_CLOEXEC)
        self._say(closed, most)
        return closed

    def _say(self, closed: int, most: int) -> None:
        self._unsaid += closed
        now = self._clock()
        if self._unsaid and now >= self._quiet_until:
            self._quiet_until = now + QUIET_SECS
            _LOG.warning(
                "closed %d connections to this worker's ports, the oldest that had not shown the topology's key: such"
                " connections get at most %d of the files that this process may open. Links are not affected; close the"
                " ports of workers to strangers by a firewall",
                self._unsaid,
                most,
            )
            self._unsaid = 0

    def _lowest_free(self) -> int:
        """Return the lowest free descriptor: all lower ones are in use. The limit, if none is free."""
        descriptor: int = self._libc.fcntl(self._own.fileno(), _DUPLICATE, 0)
        if descriptor < 0:
            return max(self._limit(), 0)
        self._libc.close(descriptor)
        return descriptor

    def _limit(self) -> int:
        return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def _inode(descriptor: int) -> int | None:
    try:
        return os.fstat(descriptor).st_ino
    except OSError:
        return None


def _system() -> Any:
    """Return the system's calls; None where they differ from those of Linux."""
    if not sys.platform.startswith("linux"):
        return None
    try:
        libc = ctypes.PyDLL(None)
        for name in ("getsockname", "getsockopt", "dup3", "shutdown", "fcntl", "close"):
            getattr(libc, name)
    except (OSError, AttributeError):
        return None
    return libc
