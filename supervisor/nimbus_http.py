"""Sends a supervisor's messages to the Nimbuses over HTTP, without ever blocking the supervisor.

Messages are queued, and one thread for each Nimbus sends them: reports, counters and heartbeats to the leader, and counters
also to the other Nimbuses, so that each of these can become the leader. Only the latest message of each worker is kept. A
message that could not be sent is sent again, unless a later message replaces it. The store says which Nimbuses there are and
which is the leader; while the store is away, the last known Nimbuses are used. A daemon is authenticated by its key pair: the
token of a request is valid if it matches the public key in the sender's record.
Must not know: processes, the meaning of reports.
"""

from __future__ import annotations

import json
import logging
import math
import threading
import time
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import to_builtins

from squall.api.requests import CountersRow, ReportRow, ReportsRequest
from squall.cluster import paths
from squall.cluster.records import NimbusRecord, WorkerReport, encode
from squall.cluster.registry import Registry
from squall.cluster.store import Store
from squall.http.client import Client, Refused, Unreachable, at
from squall.packages.file_sources import FileSources
from squall.security import sealing
from squall.security.sealing import NIMBUS_TO_SUPERVISOR, SUPERVISOR_TO_NIMBUS, BadKey, KeyPair
from squall.values import Incarnation
from supervisor.rare_warnings import RareWarnings
from topology_api.errors import SquallError

_log = logging.getLogger(__name__)

#: Seconds between two reads of the Nimbuses when nothing is sent.
LOOK: Final = 1.0
#: Seconds before a failed request is repeated.
AGAIN: Final = 0.5
#: Seconds that a Nimbus has for its answer.
ANSWER: Final = 5.0
#: HTTP statuses after which a request is not repeated: the answer would be the same.
_NEVER: Final = (400, 413, 422)
#: How deep counters may be nested. Worker processes nest them seven levels deep at most.
_MOST_LEVELS: Final = 30
#: The most workers whose counters are sent in one request.
_AT_ONCE: Final = 64
#: The most incarnations of workers whose last counters are kept.
_REMEMBERED: Final = 4096
#: Seconds that a Nimbus has for accepting the connection, and for sending each piece of a file. While the store still names a
#: lost leader, each fetch waits this long for that leader before it tries another Nimbus.
FILE: Final = 10.0

#: (topology id, worker, incarnation)
CounterKey = tuple[str, str, Incarnation]


class _Batch(msgspec.Struct, frozen=True):
    """The messages of one request. `reports`: by topology name and worker; `beat`: whether a heartbeat is due."""

    reports: dict[tuple[str, str], WorkerReport]
    counters: dict[CounterKey, bytes]
    beat: bool

    def __str__(self) -> str:
        reports = [f"the report of worker {worker} of topology {name!r}" for name, worker in self.reports]
        counters = [f"the counters of worker {worker} of {topology}" for topology, worker, _ in self.counters]
        return ", ".join([*reports, *counters, *(["a heartbeat"] if self.beat else [])])

    def parts(self) -> list[_Batch]:
        """Return a batch for each message."""
        counters = [_Batch({}, {key: each}, False) for key, each in self.counters.items()]
        reports = [_Batch({key: each}, {}, False) for key, each in self.reports.items()]
        return [*([_Batch({}, {}, True)] if self.beat else []), *counters, *reports]


class Nimbuses:
    """The Nimbuses in the store, or the last known ones. May be used by any thread."""

    def __init__(self, store: Store, supervisor: str, pair: KeyPair) -> None:
        self._registry = Registry(store)
        self._supervisor = supervisor
        self._pair = pair
        self._lock = threading.Lock()
        self._known: dict[str, NimbusRecord] = {}
        self._leader: str | None = None

    def read(self) -> tuple[dict[str, NimbusRecord], str | None]:
        """Return the Nimbuses' records by id, and the leader's id: from the store if it can be reached, else the last known
        values."""
        try:
            found = {record.id: record for record in self._registry.all_nimbuses()}
            leader = self._registry.store.get(paths.LEADER)
        except SquallError:
            found, leader = {}, None
        with self._lock:
            if found:
                self._known = found
            # A leader that is missing from the store may have lost only its session: use this leader until there is a new one.
            if leader is not None:
                self._leader = leader[0].decode(errors="replace")
            return dict(self._known), self._leader

    def authorization(self, url: str) -> str | None:
        """Return the Authorization header of a request to the Nimbus with this URL; None if the key of the Nimbus is
        unknown."""
        with self._lock:
            records = list(self._known.values())
        for record in records:
            if record.url.rstrip("/") == url.rstrip("/") and record.public_key:
                try:
                    token = self._pair.token_with(record.public_key, SUPERVISOR_TO_NIMBUS)
                except BadKey:
                    return None
                return sealing.daemon_header(self._supervisor, token)
        return None

    def comes_from_one(self, header: str) -> bool:
        """Return whether a request with this Authorization header comes from a Nimbus."""
        found = sealing.read_daemon_header(header)
        if found is None:
            return False
        name, token = found
        record = self.read()[0].get(name)
        return record is not None and self._pair.is_token_of(record.public_key, NIMBUS_TO_SUPERVISOR, token)


class HttpNimbusLink:
    """A `NimbusLink` over HTTP."""

    def __init__(self, nimbuses: Nimbuses, supervisor: str, ca: str | None = None) -> None:
        self._nimbuses = nimbuses
        self._path = at("supervisors", supervisor, "reports")
        self._ca = ca
        self._lock = threading.Lock()
        self._reports: dict[tuple[str, str], WorkerReport] = {}
        self._beat = False
        #: The latest counters, for a Nimbus that appears later.
        self._latest: dict[CounterKey, bytes] = {}
        self._senders: dict[str, _Sender] = {}
        self._leader: str | None = None
        self._woken = threading.Event()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="squall-nimbus-link", daemon=True)

    def start(self) -> None:
        """Start sending."""
        self._thread.start()

    def close(self) -> None:
        """Stop sending."""
        self._closing.set()
        self._woken.set()
        with self._lock:
            senders = list(self._senders.values())
        for sender in senders:
            sender.close()

    def flush(self, seconds: float) -> None:
        """Wait until everything is sent, at most `seconds`."""
        end = time.monotonic() + seconds
        self._woken.set()
        while self._unsent() and time.monotonic() < end:
            self._closing.wait(0.01)

    def _unsent(self) -> bool:
        with self._lock:
            return bool(self._reports) or any(each.counters or each.busy for each in self._senders.values())

    # From the supervisor

    def report(self, name: str, worker: str, report: WorkerReport) -> bool:
        """See `NimbusLink`. The store shows later whether the report was accepted."""
        with self._lock:
            self._reports[name, worker] = report
        self._woken.set()
        return True

    def count(self, topology_id: str, worker: str, incarnation: Incarnation, counters: bytes) -> None:
        """See `NimbusLink`."""
        key = topology_id, worker, incarnation
        with self._lock:
            self._latest.pop(key, None)
            self._latest[key] = counters
            if len(self._latest) > _REMEMBERED:
                del self._latest[next(iter(self._latest))]
            for sender in self._senders.values():
                sender.counters[key] = counters

    def heard(self, supervisor_id: str) -> None:
        """See `NimbusLink`."""
        with self._lock:
            self._beat = True
        self._woken.set()

    # To the Nimbuses

    def _serve(self) -> None:
        """Keep a sender for each Nimbus, and wake the senders."""
        while not self._closing.is_set():
            self._woken.wait(LOOK)
            self._woken.clear()
            try:
                records, leader = self._nimbuses.read()
                self._keep_senders(records, leader)
            except Exception:  # this thread must continue
                _log.exception("internal error in the link to Nimbus; it continues")
            with self._lock:
                senders = list(self._senders.values())
            for sender in senders:
                sender.woken.set()

    def _keep_senders(self, records: dict[str, NimbusRecord], leader: str | None) -> None:
        with self._lock:
            self._leader = leader
            changed = [name for name, each in self._senders.items() if records.get(name) != each.record]
            for name in changed:
                self._senders.pop(name).close()
            for name in records.keys() - self._senders.keys():
                if self._closing.is_set() or not records[name].url:
                    continue
                client = Client([records[name].url], self._nimbuses.authorization, self._ca, ANSWER)
                sender = self._senders[name] = _Sender(records[name], client, self._path, self)
                sender.counters.update(self._latest)
                sender.thread.start()

    def next_batch(self, sender: _Sender) -> _Batch | None:
        """Return the messages that a sender has to send now; None: there are none."""
        with self._lock:
            leads = sender.record.id == self._leader
            counters = dict(list(sender.counters.items())[:_AT_ONCE])
            for key in counters:
                del sender.counters[key]
            if sender.counters:
                sender.woken.set()  # to send the rest in the next batch
            reports: dict[tuple[str, str], WorkerReport] = {}
            beat = False
            if leads:
                reports, self._reports = self._reports, {}
                beat, self._beat = self._beat, False
            sender.busy = bool(counters or reports or beat)
        return _Batch(reports, counters, beat) if sender.busy else None

    def give_back(self, sender: _Sender, batch: _Batch) -> None:
        """Queue unsent messages again, except those that a later message in the queue replaces."""
        with self._lock:
            self._reports = {**batch.reports, **self._reports}
            self._beat |= batch.beat
            sender.counters = {**batch.counters, **sender.counters}


class _Sender:
    """Sends to one Nimbus."""

    def __init__(self, record: NimbusRecord, client: Client, path: str, link: HttpNimbusLink) -> None:
        self.record = record
        self.counters: dict[CounterKey, bytes] = {}
        #: Whether something is being sent.
        self.busy = False
        self.woken = threading.Event()
        self._client = client
        self._path = path
        self._link = link
        self._closed = threading.Event()
        self._failing_since: float | None = None
        self._warnings = RareWarnings()
        self.thread = threading.Thread(target=self._serve, name=f"squall-to-{record.id}", daemon=True)

    def close(self) -> None:
        self._closed.set()
        self.woken.set()

    def _serve(self) -> None:
        while not self._closed.is_set():
            self.woken.wait()
            self.woken.clear()
            batch = None if self._closed.is_set() else self._link.next_batch(self)
            if batch is None:
                continue
            unsent = [batch]
            try:
                while unsent:
                    unsent[0:1] = self._send(unsent[0])
            except (SquallError, OSError) as error:
                for each in unsent:
                    self._link.give_back(self, each)
                self.busy = False
                self._failed(error)
                self._closed.wait(AGAIN)
                self.woken.set()
            else:
                self.busy = False
                if self._failing_since is not None:
                    _log.info("Nimbus %s answers again", self.record.id)
                    self._failing_since = None
        self._client.close()

    def _send(self, batch: _Batch) -> list[_Batch]:
        """Send a batch. If Nimbus rejects it, return its messages one by one, so that a message that Nimbus does not accept
        takes no other message with it; one message that is rejected is dropped. Raises `SquallError` or `OSError` if the batch
        has to be sent again."""
        try:
            self._client.post(self._path, _body(batch), repeatable=True)
            return []
        except Exception as error:  # this thread must continue
            refused = isinstance(error, Refused) and error.status in _NEVER
            expected = isinstance(error, (SquallError, OSError))
            if expected and not refused:
                raise
            parts = batch.parts()
            if len(parts) > 1:
                return parts
            if self._warnings.due(("rejected", type(error)), time.monotonic()):
                text = "Nimbus %s cannot be sent %s: %s"
                _log.error(text, self.record.id, batch, error, exc_info=None if expected else error)
            return []

    def _failed(self, error: Exception) -> None:
        now = time.monotonic()
        if self._failing_since is None:
            self._failing_since, self._warnings = now, RareWarnings()
        if self._warnings.due("unsent", now):
            _log.warning("reports cannot be sent to Nimbus %s at the moment: %s", self.record.id, error)


@dataclass(eq=False, repr=False)
class NimbusFiles:
    """Fetches files of topologies from any Nimbus that has them. The leader is tried first. A Nimbus that delivered a wrong
    file is not asked for that file for some time; a Nimbus that did not answer is tried last for some time. `limit`: the most
    bytes of a file; `ca`: the file with the CA certificates for HTTPS."""

    nimbuses: Nimbuses
    limit: int
    ca: str | None = None
    sources: FileSources = field(default_factory=FileSources)

    def fetch(self, sha256: str, target: Path) -> None:
        """Fetch a file to a path. Raises `SquallError` or `OSError`."""
        records, leader = self.nimbuses.read()
        urls = {f"Nimbus {each.id} at {each.url}": each.url for each in records.values() if each.url}
        if not urls:
            raise SquallError("there is no Nimbus at the moment to fetch the file from")
        first = None if leader not in records else records[leader].url
        names = self.sources.order(sha256, sorted(urls, key=lambda name: urls[name] != first))
        failure = SquallError("every Nimbus delivered a wrong file instead; each is asked again later")
        for name in names:  # a Nimbus without the file answers 404, and so is not silent
            client = Client([urls[name]], self.nimbuses.authorization, self.ca, FILE)
            try:
                with closing(client), open(target, "wb") as file:
                    found = client.get_file(at("files", sha256), file, limit=self.limit)
            except SquallError as error:
                if isinstance(error, Unreachable):
                    self.sources.is_silent(name)
                failure = error
                continue
            if self.sources.delivered(name, sha256, found):
                return
            failure = SquallError(f"{name} delivered a wrong file instead: its SHA-256 is {found}")
        raise failure


def _body(batch: _Batch) -> Any:
    request = ReportsRequest(
        reports=[ReportRow(name, json.loads(encode(report))) for (name, _), report in batch.reports.items()],
        counters=[CountersRow(*key, _json(counters)) for key, counters in batch.counters.items()],
    )
    return to_builtins(request)


def _json(counters: bytes) -> Any:
    """Return counters as JSON values that Nimbus accepts: NaN and infinite numbers as texts; {} for bytes that are not JSON, or
    are nested too deeply. User code may have written anything into the file."""
    try:
        values = json.loads(counters, parse_constant=str, parse_float=_finite)
    except (ValueError, RecursionError):
        return {}
    level: list[Any] = [values] if isinstance(values, dict) else []
    for _ in range(_MOST_LEVELS):
        if not level:
            break
        inside = [each.values() if isinstance(each, dict) else each for each in level]
        level = [value for found in inside for value in found if isinstance(value, (dict, list))]
    return values if isinstance(values, dict) and not level else {}


def _finite(text: str) -> float | str:
    """Return the number in a text; the text itself if the number is too large for a float."""
    return number if math.isfinite(number := float(text)) else text
