"""The connection to ZooKeeper, and single requests with a time limit: the only module that uses kazoo.

Kazoo has no persistent watches (one request, after which every change at or below a path is reported as long as the connection
lasts), and restores no watch after a reconnect. So `ZooKeeperClient` sends that request and reads the events itself instead of
using kazoo's watches. It also records the session length that the server grants, names its threads, and limits the time to
connect to one host, so that one silent host cannot take the whole session length. Requests are sent without kazoo's retries,
because a request of one session must not be repeated in the next session. Must not know: values, the cache.
"""

from __future__ import annotations

import contextlib
import logging
import ssl
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from kazoo import exceptions
from kazoo.client import CLOSED_STATES, KazooClient
from kazoo.handlers.threading import KazooTimeoutError, SequentialThreadingHandler
from kazoo.protocol.connection import CREATED_EVENT, ConnectionHandler
from kazoo.protocol.serialization import Connect, Watch, int_struct, write_string
from kazoo.retry import KazooRetry
from kazoo.security import ACL, CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, Id, Permissions

from squall.cluster.store import OpenToStrangers, StoreError, Unavailable
from squall.cluster.znodes import Check, Make, Node, Step, StepFailed, Why, Write
from squall.cluster.zookeeper import tls
from squall.cluster.zookeeper.access import AclEntry, foreign_node, open_node, own_ids, stranger_in
from squall.security import zookeeper_tls
from squall.security.zookeeper_tls import ClientFiles

_log = logging.getLogger(__name__)
# Kazoo logs requests, which contain credentials and values, and a line for each attempt to connect.
_kazoo_log = logging.getLogger(f"{__name__}.kazoo")
_kazoo_log.setLevel(logging.CRITICAL)

_NOT_REACHED: Final = (
    exceptions.AuthFailedError,
    exceptions.ConnectionClosedError,
    exceptions.ConnectionLoss,
    exceptions.OperationTimeoutError,
    exceptions.SessionExpiredError,
    exceptions.SessionMovedError,
)
_WHY: Final = {
    exceptions.NoNodeError: Why.MISSING,
    exceptions.NodeExistsError: Why.THERE,
    exceptions.BadVersionError: Why.VERSION,
    exceptions.NotEmptyError: Why.CHILDREN,
    exceptions.NoChildrenForEphemeralsError: Why.EPHEMERAL,
}
#: The results of steps that were not done because another step of the transaction failed.
_BYSTANDERS: Final = (exceptions.RolledBackError, exceptions.RuntimeInconsistency)
#: The most seconds that a server which has accepted a connection may take to open the session.
_HANDSHAKE_SECS: Final = 4.0
#: The largest fraction of the session's length that this handshake may take. By default kazoo waits for the whole length, so
#: that a session ends if one handshake gets no answer, as happens when a server has just started.
_HANDSHAKE_PART: Final = 1 / 3


class NoAccess(StoreError):
    """ZooKeeper answers, but does not allow the request with these credentials, or its release does not support it."""


def _access_list(credentials: tuple[str, str] | None, encrypted: bool) -> Sequence[ACL]:
    """Return the access list of new nodes."""
    if credentials is None:
        return cast(Sequence[ACL], OPEN_ACL_UNSAFE)
    if not encrypted:
        return cast(Sequence[ACL], CREATOR_ALL_ACL)
    # With TLS, "the creator" means everyone with the credentials, and everyone with a certificate of the same subject.
    return [ACL(Permissions.ALL, Id("digest", each)) for each in sorted(own_ids(credentials))]


class _AddWatch:
    """The request for a persistent recursive watch."""

    type = 106
    _RECURSIVE = 1

    def __init__(self, path: str) -> None:
        self.path = path

    def serialize(self) -> bytes:
        return bytes(write_string(self.path)) + bytes(int_struct.pack(self._RECURSIVE))

    @classmethod
    def deserialize(cls, data: bytes, offset: int) -> bool:
        return True  # the header has already said whether the request was carried out


class _Handler(SequentialThreadingHandler):  # type: ignore[misc] # kazoo has no types
    def __init__(self, connect_secs: float) -> None:
        super().__init__()
        self._connect_secs = connect_secs

    def create_connection(self, address: Any, timeout: float, use_ssl: bool = False, **options: Any) -> Any:
        secs = min(timeout, self._connect_secs)
        if not use_ssl:
            return super().create_connection(address, timeout=secs, **options)
        files = ClientFiles(options["ca"], options["certfile"], options["keyfile"])
        return tls.connect(address, options["hostname"], secs, files)

    def spawn(self, func: Callable[..., None], *args: Any, **options: Any) -> threading.Thread:
        def run() -> None:
            try:
                func(*args, **options)
            except Exception as error:
                _log.warning("a thread of the connection to ZooKeeper ended with %r", error)

        thread = threading.Thread(target=run, name="squall-zookeeper", daemon=True)
        thread.start()
        return thread


class _Connection(ConnectionHandler):  # type: ignore[misc]
    _turned_away = 0

    def _connect(self, host: str, address: str, port: int) -> Any:
        try:
            found = super()._connect(host, address, port)
        except exceptions.ConnectionDropped as error:
            self.client.note_failure(error.__context__, f"{host}:{port}")
            raise
        self.client.trouble = None
        return found

    def _read_socket(self, timeout: float) -> Any:
        answer = super()._read_socket(timeout)
        # What TLS has decrypted already does not make the socket readable: kazoo would see it with the next answer only.
        while answer is None and self.client.use_ssl and self._socket.pending():
            answer = super()._read_socket(timeout)
        return answer

    def _invoke(self, timeout: float, request: Any, xid: int | None = None) -> Any:
        if not isinstance(request, Connect):
            return super()._invoke(timeout, request, xid)
        try:
            limit = min(timeout, _HANDSHAKE_SECS, _HANDSHAKE_PART * self.client.session_secs)
            answer = super()._invoke(limit, request, xid)
        except exceptions.ConnectionDropped as error:
            if isinstance(error.__context__, ssl.SSLError):  # it refuses the certificate
                raise
            # A server rejects a client that has seen later changes than the server. If all servers reject the client, the
            # servers have lost these changes (they are empty, or restored from a backup), and would reject the client for ever.
            self._turned_away += 1
            if self._turned_away >= 2 * len(self.client.hosts):
                self.client.last_zxid = 0
            raise
        self._turned_away = 0
        if answer[0].time_out > 0:
            self.client.session_secs = answer[0].time_out / 1000
        return answer

    def _read_watch_event(self, data: bytes, offset: int) -> None:
        event, _ = Watch.deserialize(data, offset)
        self.client.changed(event.path, event.type != CREATED_EVENT)


class ZooKeeperClient(KazooClient):  # type: ignore[misc]
    """A client that begins to connect at once, and continues until `end`. Its own threads call both callbacks before they pass
    on any later answer of the server; so callbacks must return at once.

    changed(path, data): a node was made, changed or removed. If `data` is false, the node has just been made and has no value
    yet; if a value is to be written to it, a second call follows (`squall.cluster.znodes`). state(text): "connected",
    "suspended" or "lost".
    """

    def __init__(
        self,
        servers: str,
        session_secs: float,
        credentials: tuple[str, str] | None,
        changed: Callable[[str, bool], None],
        state: Callable[[str], None],
        files: ClientFiles | None = None,
    ) -> None:
        super().__init__(
            hosts=servers,
            timeout=session_secs,
            handler=_Handler(session_secs / (servers.count(",") + 2)),
            default_acl=_access_list(credentials, files is not None),
            auth_data=None if credentials is None else [("digest", ":".join(credentials))],
            connection_retry=KazooRetry(max_tries=-1, delay=0.05, backoff=2, max_delay=0.5),
            logger=_kazoo_log,
            use_ssl=files is not None,
            ca=None if files is None else files.ca,
            certfile=None if files is None else files.certificate,
            keyfile=None if files is None else files.key,
            check_hostname=True,
        )
        self.servers = servers
        #: What is wrong with TLS, in a sentence, since the client was connected last.
        self.trouble: str | None = None
        self._files = files
        self.session_secs = session_secs
        self.changed = changed
        self._connection = _Connection(self, self._conn_retry.copy(), logger=_kazoo_log)
        self.add_listener(lambda now: state(now.lower()))
        self.start_async()

    @property
    def dead(self) -> bool:
        """Whether the client has given up: after some protocol errors, kazoo never tries again."""
        return bool(self._connection.connection_stopped.is_set() and self._state in CLOSED_STATES)

    @property
    def session(self) -> int | None:
        """The number of the session, while there is a connection."""
        return None if self.client_id is None else int(self.client_id[0])

    def note_failure(self, error: BaseException | None, where: str) -> None:
        """Note why no connection by TLS could be made, if that is the reason."""
        if isinstance(error, tls.TlsFailed):
            self.trouble = str(error)
        elif self._files is not None:
            self.trouble = tls.refusal(error, where, self._files) or self.trouble

    def find_trouble(self) -> str | None:
        """Return what is wrong with TLS, None if nothing is. If the client does not use it, the servers are asked whether they
        do."""
        if self._files is None:
            for host, port in self.hosts:
                if tls.speaks_tls((host, port)):
                    return (
                        f"the ZooKeeper at {host}:{port} speaks TLS: set {zookeeper_tls.CA}, {zookeeper_tls.CERTIFICATE} and"
                        f" {zookeeper_tls.KEY}"
                    )
        return self.trouble

    def add_watch_async(self, path: str) -> Any:
        """Set a watch for every change at or below a path, as long as this connection lasts."""
        result = self.handler.async_result()
        self._call(_AddWatch(path), result)
        return result

    def end(self) -> None:
        """End the session and every thread; if no server answers, drop the connection."""
        if not self.connected:
            self._stopped.set()
            if (sock := self._connection._socket) is not None:
                with contextlib.suppress(OSError):
                    sock.shutdown(2)
        with contextlib.suppress(exceptions.KazooException, OSError, AttributeError, RuntimeError):
            self.stop()
            self._safe_close()
            self.close()


@dataclass(eq=False, repr=False)
class TimedCall:
    """One call of the store. It may send several requests, with one deadline for all of them.

    overdue(result) is called when an answer has not arrived in time; this callback can use `result.rawlink` to learn of an
    answer that arrives later.
    """

    client: ZooKeeperClient
    root: str
    path: str
    secs: float
    overdue: Callable[[Any], None]

    def __post_init__(self) -> None:
        self._deadline = time.monotonic() + self.secs

    def read(self, path: str) -> tuple[bytes, int] | None:
        """Return the data of a node and its version, None if there is no node with data."""
        try:
            data, stat = self._ask(self.client.get_async(self.full(path)))
        except exceptions.NoNodeError:
            return None
        return (bytes(data), stat.version) if data else None

    def names(self, path: str) -> list[str]:
        """Return the names of the nodes directly below a path, sorted."""
        try:
            return sorted(self._ask(self.client.get_children_async(self.full(path))))
        except exceptions.NoNodeError:
            return []

    def read_node(self, path: str) -> Node | None:
        """Return the present metadata of a node, None if there is none."""
        if (stat := self._ask(self.client.exists_async(self.full(path)))) is None:
            return None
        return Node(stat.version, stat.dataLength, stat.numChildren, stat.ephemeralOwner)

    def owns(self, path: str) -> bool:
        """Return whether a node belongs to this session, according to the leading server."""
        session = self.client.session
        # A server that is cut off from the others still answers for a while: `sync` makes it ask the leading server.
        self.sync()
        node = self.read_node(path)
        return node is not None and node.owner == session

    def sync(self) -> None:
        """Ensure that later reads are at least as new as this call, whichever server answers."""
        self._ask(self.client.sync_async(self.full("/")))

    def commit(self, steps: Sequence[Step]) -> list[int]:
        """Do all steps and return the version after each, or do none and raise `StepFailed`."""
        transaction = self.client.transaction()
        for step in steps:
            path = self.full(step.path)
            if isinstance(step, Check):
                transaction.check(path, step.version)
            elif isinstance(step, Make):
                transaction.create(path, b"", ephemeral=step.ephemeral)
            elif isinstance(step, Write):
                transaction.set_data(path, step.data, step.version)
            else:
                transaction.delete(path, step.version)
        results = self._ask(transaction.commit_async())
        for number, result in enumerate(results):
            if type(result) in _WHY:
                raise StepFailed(number, _WHY[type(result)])
            if isinstance(result, Exception) and not isinstance(result, _BYSTANDERS):
                raise self._refused(result)
        return [getattr(result, "version", 0) for result in results]

    def make_root(self) -> None:
        """Create the root of the store, and the nodes above it."""
        names = self.root.split("/")
        for depth in range(2, len(names) + 1):
            with contextlib.suppress(exceptions.NodeExistsError):
                self._ask(self.client.create_async("/".join(names[:depth]), b""))

    def watch_changes(self) -> None:
        """Set the watch at the root of the store, even if that node does not exist yet."""
        try:
            self._ask(self.client.add_watch_async(self.full("/")))
        except exceptions.UnimplementedError:
            raise NoAccess(
                f"the ZooKeeper at {self.client.servers} is too old: 3.6 or newer is needed"
            ) from None

    def check_access(self, credentials: tuple[str, str] | None) -> None:
        """Check the access by a read, because ZooKeeper accepts any password when a client connects. With credentials, also
        check that no other user has access to the root.
        """
        try:
            self._ask(self.client.get_async(self.full("/")))
        except exceptions.NoNodeError:
            self.make_root()
            return
        if credentials is None:
            return
        try:
            self.check_closed(["/"], credentials)
        except OpenToStrangers as error:
            raise NoAccess(str(error)) from None

    def check_closed(self, paths: Sequence[str], credentials: tuple[str, str]) -> list[str]:
        """Check that only these credentials have access to the nodes at these paths; return the paths directly below them. The
        requests are sent together. Raises `OpenToStrangers`; a node that is gone is not checked.
        """
        own, parents = own_ids(credentials), []
        for path, asked in [(path, self.client.get_acls_async(self.full(path))) for path in paths]:
            if (found := self._ask_own(path, asked)) is None:
                continue
            entries, stat = found
            stranger = stranger_in(
                (AclEntry(each.id.scheme, each.id.id, each.perms) for each in entries), own
            )
            if stranger is not None:
                where = self.full(path), self.client.servers
                raise OpenToStrangers(open_node(*where, stranger, credentials[0], self.root or "/"))
            if stat.numChildren:
                parents.append(path)
        below = []
        for path, asked in [(path, self.client.get_children_async(self.full(path))) for path in parents]:
            below += [f"{path.rstrip('/')}/{name}" for name in self._ask_own(path, asked) or ()]
        return below

    def _ask_own(self, path: str, result: Any) -> Any:
        """Wait for the answer to a question about a node that should be Squall's own; None if it is gone. Raises
        `OpenToStrangers` if ZooKeeper refuses the question."""
        try:
            return self._ask(result)
        except exceptions.NoNodeError:
            return None
        except NoAccess:
            where = self.full(path), self.client.servers
            raise OpenToStrangers(foreign_node(*where, self.root or "/")) from None

    def full(self, path: str) -> str:
        """Return the path in ZooKeeper for a path of the store."""
        return (self.root + path).rstrip("/") or "/"

    def _ask(self, result: Any) -> Any:
        """Wait for an answer. Raises kazoo's error if the state of a node forbids the request, and a `StoreError` for all other
        failures.
        """
        try:
            return result.get(timeout=max(0.0, self._deadline - time.monotonic()))
        except KazooTimeoutError:
            self.overdue(result)
            raise Unavailable(
                f"{self.path}: ZooKeeper at {self.client.servers} has not answered within {self.secs:g} seconds"
            ) from None
        except _NOT_REACHED as error:
            raise Unavailable(
                f"{self.path}: the connection to ZooKeeper at {self.client.servers} was lost ({type(error).__name__})"
            ) from None
        except (*_WHY, exceptions.UnimplementedError):
            raise
        except exceptions.KazooException as error:
            raise self._refused(error) from None

    def _refused(self, error: Exception) -> StoreError:
        where = f"{self.full(self.path)}: ZooKeeper at {self.client.servers}"
        if isinstance(error, exceptions.NoAuthError):
            return NoAccess(f"{where} does not allow this with these credentials")
        return StoreError(f"{where} refuses the request ({type(error).__name__})")
