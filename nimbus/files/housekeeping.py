"""The work of every Nimbus, leading or not: keeps the files of all topologies, deletes other files, saves the counters.

A file is uploaded to the present leader. The other Nimbuses fetch it from the leader, so that each of them can lead next. A
Nimbus that lacks a file asks every other Nimbus for it. From the answers, `nimbus.files.missing_files` decides which Nimbus
should lead.
Must not know: elections, the users of the files.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final, cast

from msgspec import structs

from nimbus.counters.counting import Counters
from nimbus.files.missing_files import Inventory, MissingFiles
from nimbus.files.stored_files import FileStore
from nimbus.lifecycle.replacing import every_record
from nimbus.lifecycle.versions import files_of_versions
from squall.clock import Clock
from squall.cluster import paths
from squall.cluster.records import NimbusRecord
from squall.cluster.registry import Registry
from squall.cluster.store import Cancel, Store
from squall.http.client import Client, at
from squall.packages.file_sources import FileSources
from topology_api.errors import SquallError

_log = logging.getLogger(__name__)

#: Seconds between two checks for missing files if nothing has changed.
LOOK_SECS: Final = 2.0
#: How many seconds a missing file keeps this Nimbus from leading if all other Nimbuses answer that they lack the file, too.
PATIENCE_SECS: Final = 30.0
#: How many seconds a missing file keeps this Nimbus from leading if another Nimbus does not answer, or has the file but lacks
#: other files.
UNSURE_SECS: Final = 120.0
#: Seconds between two searches for files that no topology needs.
COLLECT_SECS: Final = 60.0
#: How many seconds a file without a topology is kept. This is longer than the time between upload and submission, even if a
#: clock is changed meanwhile.
UNUSED_SECS: Final = 2 * 3600.0
#: Seconds between two saves of the counters.
SAVE_SECS: Final = 5.0


@dataclass(eq=False, repr=False)
class Housekeeping:
    """Runs in its own thread; the control thread calls only `lacks`."""

    store: Store
    files: FileStore
    counters: Counters
    counters_directory: Path
    me: NimbusRecord
    #: Makes the client that asks another Nimbus.
    ask: Callable[[NimbusRecord], Client]
    clock: Clock

    def __post_init__(self) -> None:
        self._registry = Registry(self.store)
        self._for_lacks = Registry(self.store)
        self._woken = threading.Event()
        self._ending = False
        self._thread = threading.Thread(target=self._serve, name="squall-nimbus-housekeeping", daemon=True)
        self._unwatch: list[Cancel] = []
        #: Updated only by the housekeeping thread; any thread may read it.
        self.missing = MissingFiles(PATIENCE_SECS, UNSURE_SECS)
        self._sources = FileSources(self.clock.now)
        #: SHA-256 -> the last logged reason why the file could not be fetched.
        self._told: dict[str, str] = {}
        #: The topologies at the last check.
        self._known: set[str] = set()

    def start(self) -> None:
        """Watch the store, and start the thread."""
        for prefix in (paths.TOPOLOGIES, paths.REPLACEMENTS, paths.NIMBUSES):
            self._unwatch.append(self.store.watch(prefix, lambda path: self._woken.set()))
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread, and save the counters."""
        self._ending = True
        for cancel in self._unwatch:
            cancel()
        self._woken.set()
        if self._thread.is_alive():
            self._thread.join(1.0)
        self._save()

    def lacks(self) -> str | None:
        """Return why this Nimbus should not begin to lead: it lacks a file that a topology needs. None: this Nimbus may begin
        to lead."""
        return self.missing.why_not(self._missing_of(needed_files(self._for_lacks)[0]))

    def _serve(self) -> None:
        collect_at = save_at = self.clock.now()
        while not self._ending:
            self._woken.clear()
            now = self.clock.now()
            self._try(self._look_for_missing)
            if now >= collect_at:
                collect_at = now + COLLECT_SECS
                self._try(self._collect)
            if now >= save_at and not self._ending:
                save_at = now + SAVE_SECS
                self._save()
            self._woken.wait(LOOK_SECS)

    def _try(self, do: Callable[[], None]) -> None:
        try:
            do()
        except (SquallError, OSError) as error:
            _log.debug("housekeeping waits: %s", error)
        except Exception:
            _log.exception("an error in the housekeeping of Nimbus")

    # Files

    def _missing_of(self, needed: Mapping[str, str]) -> dict[str, str]:
        return {sha256: name for sha256, name in needed.items() if not self.files.has(sha256)}

    def _look_for_missing(self) -> None:
        """Find missing files, ask which Nimbus has them, and fetch them."""
        needed, _ = needed_files(self._registry)
        kept, _ = kept_files(self._registry)
        missing = self._missing_of(kept)
        if not missing:
            self.missing.update({}, (), self.clock.now())
            return
        urgent = {sha256: name for sha256, name in missing.items() if sha256 in needed}
        others = {each.id: each for each in self._registry.all_nimbuses() if each.id != self.me.id}
        answers = [self._ask_one(other, missing, needed.keys() - missing.keys()) for other in others.values()]
        believed = [
            structs.replace(each, has=each.has - self._sources.wrong(each.nimbus)) for each in answers
        ]
        self.missing.update(urgent, believed, self.clock.now())
        for sha256, name in missing.items():
            holders = [each.nimbus for each in answers if sha256 in each.has]
            for holder in self._sources.order(sha256, holders):
                if self._ending or self._fetch(sha256, name, others[holder]):
                    break
        self.missing.update(self._missing_of(urgent), believed, self.clock.now())
        self._told = {sha256: text for sha256, text in self._told.items() if sha256 in missing}

    def _ask_one(self, other: NimbusRecord, missing: Collection[str], here: Collection[str]) -> Inventory:
        """Ask another Nimbus which of the missing files it has, and whether it has all files of this Nimbus."""
        try:
            with closing(self.ask(other)) as client:
                has = frozenset(sha256 for sha256 in missing if client.exists(at("files", sha256)))
                whole = bool(has) and all(client.exists(at("files", sha256)) for sha256 in here)
            return Inventory(other.id, has, whole)
        except SquallError as error:
            return Inventory(other.id, silent=str(error))

    def _fetch(self, sha256: str, name: str, other: NimbusRecord) -> bool:
        """Fetch a file from another Nimbus; return whether the file is here now."""
        try:
            with closing(self.ask(other)) as client, closing(self.files.receive(sha256)) as incoming:
                file = cast(BinaryIO, incoming)
                found = client.get_file(at("files", sha256), file, limit=self.files.limit)
                if not self._sources.delivered(other.id, sha256, found):
                    return False
                incoming.finish()
        except (SquallError, OSError) as error:
            self._sources.is_silent(other.id)
            if self._told.get(sha256) != str(error):
                self._told[sha256] = str(error)
                _log.warning("the file %s of %r cannot be fetched from %s: %s", sha256, name, other.id, error)
            return False
        _log.info("fetched the file %s of topology %r from %s", sha256, name, other.id)
        return True

    def _collect(self) -> None:
        records, unread = every_record(self._registry)
        known = {record.id for record in records}
        # Keep the topologies of the previous check, too: the list of topologies that was just read may be some seconds old.
        self.counters.keep(known | self._known, unread)
        self._known = known
        needed, unread = kept_files(self._registry)
        if unread:
            return  # a record that cannot be read may need any file
        for sha256 in self.files.collect(needed, UNUSED_SECS):
            _log.info("removed the file %s: no topology needs it", sha256)

    # Counters

    def _save(self) -> None:
        try:
            self.counters.save(self.counters_directory)
        except OSError as error:
            _log.warning("counters cannot be saved, and would be lost in a restart: %s", error)


def needed_files(registry: Registry) -> tuple[Mapping[str, str], set[str]]:
    """Return (SHA-256 -> the name of a topology that needs the file, the names of the topologies whose records cannot be read:
    these topologies may need other files).
    """
    records, unread = every_record(registry)
    return {sha256: record.name for record in records for sha256 in record.files.values()}, unread


def kept_files(registry: Registry) -> tuple[Mapping[str, str], set[str]]:
    """Return the same as `needed_files`, together with the files of earlier versions. Nimbuses keep these files, but a Nimbus
    that lacks one of them may lead."""
    earlier, unread_versions = files_of_versions(registry)
    needed, unread = needed_files(registry)
    return {**earlier, **needed}, unread | unread_versions
