"""What a Nimbus does beside leading: holds the files of all topologies, drops those of none, keeps counters over a restart.

A file comes to one Nimbus, the leader of that moment; the others fetch it from there, so that each of them may lead next.
One that lacks a file should not lead, as `lacks` says. But when nobody leads and no Nimbus that is there has it, one that
lacks it is better than none: what runs goes on, and only workers that would have to be started wait for the file.
Must not know: elections, who asks for files.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import BinaryIO, Final, cast

from nimbus.counting import Counters
from nimbus.files import FileStore, Incoming
from squall.clock import Clock
from squall.cluster import paths
from squall.cluster.records import BadRecord, NimbusRecord, TopologyRecord
from squall.cluster.registry import Registry
from squall.cluster.store import Cancel, Store, TooBig
from squall.http_client import Client, at
from topology_api.errors import SquallError

_log = logging.getLogger(__name__)

#: Seconds between two looks for files that are lacking, though nothing has changed.
LOOK_SECS: Final = 2.0
#: Seconds for which a lacking file, which no other Nimbus has either, keeps this one from leading.
PATIENCE_SECS: Final = 30.0
COLLECT_SECS: Final = 60.0
#: Seconds that a file without a topology stays: longer than from its upload to the submission, also should a clock be set.
UNUSED_SECS: Final = 2 * 3600.0
SAVE_SECS: Final = 5.0
#: Seconds for each piece of a file from another Nimbus.
FETCH_SECS: Final = 20.0


class Housekeeping:
    """Runs in a thread of its own; `lacks` is called by the control thread."""

    def __init__(
        self,
        store: Store,
        files: FileStore,
        counters: Counters,
        counters_directory: Path,
        me: NimbusRecord,
        ask: Callable[[NimbusRecord], Client],
        clock: Clock,
    ) -> None:
        self._store = store
        self._registry = Registry(store)
        self._for_lacks = Registry(store)
        self._files = files
        self._counters = counters
        self._directory = counters_directory
        self._me = me
        self._ask = ask
        self._clock = clock
        self._woken = threading.Event()
        self._ending = False
        self._thread = threading.Thread(target=self._serve, name="squall-nimbus-housekeeping", daemon=True)
        self._unwatch: list[Cancel] = []
        #: sha256 -> since when no Nimbus that is there has had it.
        self._nowhere: dict[str, float] = {}
        self._told: set[str] = set()
        #: The topologies that were there at the last look.
        self._known: set[str] = set()

    def start(self) -> None:
        """Begin."""
        for prefix in (paths.TOPOLOGIES, paths.REPLACEMENTS, paths.NIMBUSES):
            self._unwatch.append(self._store.watch(prefix, lambda path: self._woken.set()))
        self._thread.start()

    def stop(self) -> None:
        """End, and keep the counters."""
        self._ending = True
        for cancel in self._unwatch:
            cancel()
        self._woken.set()
        if self._thread.is_alive():
            self._thread.join(1.0)
        self._save()

    def lacks(self) -> str | None:
        """Why this Nimbus should not lead, if it lacks a file that a topology needs."""
        needed, _ = needed_files(self._for_lacks)
        now = self._clock.now()
        for sha256, name in needed.items():
            if self._files.has(sha256):
                continue
            since = self._nowhere.get(sha256)
            if since is None or now < since + PATIENCE_SECS:
                return f"lacks the file {sha256} of topology {name!r}"
            if sha256 not in self._told:
                self._told.add(sha256)
                _log.error(
                    "the file %s of topology %r is lost: no Nimbus that is there has it. Workers of it that run go on;"
                    " none can be started on a host that has not got it: submit the topology again",
                    sha256,
                    name,
                )
        return None

    def _serve(self) -> None:
        collect_at = save_at = self._clock.now()
        while not self._ending:
            self._woken.clear()
            now = self._clock.now()
            try:
                self._fetch_missing(now)
                if now >= collect_at:
                    collect_at = now + COLLECT_SECS
                    self._collect()
            except (SquallError, OSError) as error:
                _log.debug("housekeeping waits: %s", error)
            except Exception:
                _log.exception("an error in the housekeeping of Nimbus")
            if now >= save_at:
                save_at = now + SAVE_SECS
                self._save()
            self._woken.wait(LOOK_SECS)

    # Files

    def _fetch_missing(self, now: float) -> None:
        needed, _ = needed_files(self._registry)
        missing = {sha256 for sha256 in needed if not self._files.has(sha256)}
        for sha256 in missing:
            if self._ending:
                return
            if self._fetch(sha256, needed[sha256]):
                self._nowhere.pop(sha256, None)
            else:
                self._nowhere.setdefault(sha256, now)
        for sha256 in set(self._nowhere) - missing:
            del self._nowhere[sha256]

    def _fetch(self, sha256: str, name: str) -> bool:
        """Get a file from whoever has it; whether it is here now."""
        for other in self._registry.nimbuses():
            if other.id == self._me.id or not other.url:
                continue
            incoming = self._files.receive(sha256)
            client = self._ask(other)
            try:
                client.get_file(at("files", sha256), cast(BinaryIO, _Pipe(incoming)), limit=self._files.limit)
                incoming.finish()
                _log.info("the file %s of topology %r came from %s", sha256, name, other.id)
                return True
            except SquallError as error:
                _log.debug("no file %s from %s: %s", sha256, other.id, error)
            finally:
                incoming.abandon()
                client.close()
        return False

    def _collect(self) -> None:
        known = {record.id for record in every_record(self._registry)[0]}
        # Those of the look before too: what is read may be some seconds old.
        self._counters.keep(known | self._known, self._registry.bad)
        self._known = known
        needed, whole = needed_files(self._registry)
        if not whole:
            return  # what a record says that cannot be read is not known
        for sha256 in self._files.collect(needed, UNUSED_SECS):
            _log.info("the file %s is gone: no topology needs it", sha256)

    # Counters

    def _save(self) -> None:
        try:
            self._counters.save(self._directory)
        except OSError as error:
            _log.warning("counters are not kept over a restart: %s", error)


class _Pipe:
    """What `Client.get_file` writes to: an incoming file, which cannot be begun anew."""

    def __init__(self, incoming: Incoming) -> None:
        self._incoming = incoming
        self._begun = False

    def write(self, data: bytes) -> int:
        self._begun = True
        return self._incoming.write(data)

    def tell(self) -> int:
        return 0

    def seek(self, position: int) -> int:
        if self._begun:
            raise OSError("the connection broke off within the file")
        return position

    def truncate(self) -> int:
        return 0


def needed_files(registry: Registry) -> tuple[Mapping[str, str], bool]:
    """(SHA-256 -> the name of a topology that needs it, whether that is all: every record could be read)."""
    records, whole = every_record(registry)
    return {sha256: record.name for record in records for sha256 in record.files.values()}, whole


def every_record(registry: Registry) -> tuple[list[TopologyRecord], bool]:
    """(the records of all topologies, those that wait for a name or may come back too, whether every one could be read)."""
    records: list[TopologyRecord | None] = list(registry.topologies())
    whole = not registry.bad
    for names, read in (
        (registry.replacements(), registry.replacement),
        (registry.all_replaced(), registry.replaced),
    ):
        for name in names:
            try:
                records.append(read(name))
            except (BadRecord, TooBig):
                whole = False
    return [record for record in records if record is not None], whole
