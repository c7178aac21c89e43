"""Prepares a topology's artifacts on a host (Storm's localizer): its bundle, its code, its environment.

```
<state>/topologies/<id>/bundle/     the topology's description and pickles, from the store
<state>/topologies/<id>/needs.json  which of the artifacts below the topology uses
<state>/code/<sha256>/              the topology's modules and data files from Nimbus, unpacked; shared by digest
<state>/digests/<sha256>            the size and the digest of each of these files
<state>/environments/<key>/         the packages that the topology requires (see `supervisor.environments`); also shared
```

Each artifact is prepared off the supervisor's loop: once, or again if it was deleted. Artifacts that no topology uses any more
are removed. `state` answers at once. A file from Nimbus is accepted only with the requested digest. The remains of an
interrupted preparation are deleted: they have a temporary name, or lack the file that is written last.

Disks damage files, most often when the power fails. So bundle and code are written to the disk before they get their names, all
their bytes are checked before each start of a worker (workers that start together share a check), and damaged ones are fetched
again. SHA-256 reads some 500 MB in a second and processor, off the supervisor's loop.
Must not know: processes, how Nimbus is reached (a function is given), the contents of the files.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import secrets
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from pathlib import Path
from typing import Final, Literal

import msgspec

from squall import worker_files
from squall.atomic_files import TEMPORARY, sync_folder, sync_tree, write_bytes
from squall.cluster.records import TopologyRecord
from squall.cluster.store import Store
from squall.file_digests import checked_digests, damage_in, digests_of
from squall.guarded_files import DamagedFile, read_guarded
from squall.packages import archives
from squall.security.private_files import make_private_folder
from supervisor.directories import Directories, has_bundle
from supervisor.environments import Environments
from supervisor.jobs import BackgroundJobFailed, Jobs, JobUnderWay
from supervisor.plan import Backoff
from supervisor.removals import Removals, delete
from topology_api.errors import SquallError

_log = logging.getLogger(__name__)

#: The most files that are fetched at the same time.
FETCHES: Final = 4
#: The most environments that are built at the same time.
BUILDS: Final = 2
#: If workers wait for an artifact for this many seconds, the wait is reported to Nimbus.
WORTH_A_NOTE: Final = 2.0
#: The most bytes of a file with digests.
_MOST_DIGESTS: Final = 128 * 1024 * 1024
#: Part of the name of an unfinished file or folder.
_NEW: Final = ".new-"

#: Fetches a file from Nimbus, by its SHA-256, and writes it to a path. Raises `SquallError` or `OSError`.
FetchFile = Callable[[str, Path], object]


class NotFetched(SquallError):
    """A file of a topology cannot be fetched."""


Part = Literal["bundle", "code", "environment"]


class Provision(msgspec.Struct, frozen=True):
    """The files that a worker of a topology needs."""

    bundle: Path
    #: The Python that the worker runs on; None: the supervisor's.
    python: str | None = None
    #: The folders from which the worker imports first.
    folders: tuple[str, ...] = ()


class Pending(msgspec.Struct, frozen=True):
    """The files are being prepared. `part`: the part that takes long; None: no part has taken long so far."""

    part: Part | None


class Failed(msgspec.Struct, frozen=True):
    """The files cannot be prepared at the moment; the supervisor will try again. `part`: the part that failed."""

    part: Part
    why: str
    backoff: Backoff
    error: Exception


#: The state of a topology's files. Only with a `Provision` may workers start.
State = Provision | Pending | Failed


class PackageLimits(msgspec.Struct, frozen=True):
    """Size limits of a topology's files, in bytes: packed and unpacked."""

    packed: int = 256 * 1024 * 1024
    unpacked: int = 1024 * 1024 * 1024


def no_files(sha256: str, target: Path) -> None:
    """Raise `NotFetched`: the default where no Nimbus serves files."""
    raise NotFetched(f"there is no Nimbus to fetch the file {sha256[:16]}... from")


@dataclass(eq=False, repr=False)
class Artifacts:
    """The artifacts of one supervisor. `threads`: prepare artifacts off the loop, and call `done` from a thread when an
    artifact is ready."""

    #: The supervisor's own directory.
    home: Path
    store: Store
    fetch: FetchFile = no_files
    _: KW_ONLY
    threads: bool = False
    done: Callable[[], object] = lambda: None
    limits: PackageLimits = field(default_factory=PackageLimits)
    environments: Environments | None = None
    removals: Removals | None = None
    _needs: dict[str, Mapping[str, str]] = field(default_factory=dict, init=False)
    _kept: tuple[frozenset[str], frozenset[str]] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._directories = Directories(self.home)
        state = self._directories.root.parent
        self._code, self._digests = state / "code", state / "digests"
        self._environments = self.environments or Environments(state / "environments")
        threads, done = self.threads, self.done
        self._bundles: Jobs[Path] = Jobs("bundles", FETCHES * threads, done, has_bundle)
        self._codes: Jobs[Path] = Jobs("code", FETCHES * threads, done, os.path.isdir)
        self._builds: Jobs[str] = Jobs("environments", BUILDS * threads, done, os.path.exists)
        self._removals = self.removals or Removals(state, threads)

    def close(self) -> None:
        """Start no more preparations, and end running builds."""
        for each in (self._bundles, self._codes, self._builds, self._removals):
            each.close()
        self._environments.close()

    # Before workers start

    def state(self, record: TopologyRecord, now: float, since: float = 0.0) -> State:
        """Return whether workers of a topology can start; begin to prepare missing artifacts. Bundle and code must have been
        checked for damage at the time `since` or later; otherwise begin to check them."""
        jobs: dict[Part, Path | str | JobUnderWay | BackgroundJobFailed] = {}
        fetch_bundle = partial(self._directories.make_bundle, self.store, record.id)
        jobs["bundle"] = self._bundles.state(record.id, fetch_bundle, now, since)
        code, environment = record.files.get("code"), self._environments.of(record.files)
        if code is not None:
            jobs["code"] = self._codes.state(code, partial(self._make_code, code), now, since)
        if environment is not None:
            build = partial(self._environments.make, environment, self._fetched)
            jobs["environment"] = self._builds.state(environment.key, build, now)
        self._note_needs(record)
        for part, job in jobs.items():
            if isinstance(job, BackgroundJobFailed):
                return Failed(part, job.why, job.backoff, job.error)
        for part, job in jobs.items():
            if isinstance(job, JobUnderWay):
                return Pending(part if now - job.since >= WORTH_A_NOTE else None)
        made = {part: str(job) for part, job in jobs.items()}
        folders = (made["code"],) if "code" in made else ()
        return Provision(Path(made["bundle"]), made.get("environment"), folders)

    def build_log(self, topology_id: str) -> Path | None:
        """Return the build log of a topology's environment; None: the topology needs no environment, or its needs are
        unknown."""
        key = self._needs_of(topology_id).get("environment")
        return None if key is None else self._environments.log(key)

    def _make_code(self, sha256: str) -> Path:
        """Return the folder with the unpacked code archive that has this digest, after fetching the archive if the folder is
        missing or damaged."""
        target = self._code / sha256
        if os.path.lexists(target):
            damage = self._damage_of_code(target)
            if damage is None:
                return target
            _log.warning("the code in %s is fetched again: %s", target, damage)
        make_private_folder(self._code)
        beside = self._code / f"{sha256}{_NEW}{secrets.token_hex(4)}"
        try:
            with self._fetched(sha256) as archive:
                beside.mkdir(mode=0o700)
                archives.unpack(archive, beside, self.limits.packed, self.limits.unpacked)
            digests = digests_of(beside)
            _write_protect(beside)
            sync_tree(beside)
            make_private_folder(self._digests)
            write_bytes(self._digests, sha256, json.dumps(digests).encode(), 0o600, durable=True)
            self._removals.remove(target)
            os.rename(beside, target)
            sync_folder(self._code)
        except BaseException:
            delete(beside)
            raise
        return target

    def _damage_of_code(self, folder: Path) -> str | None:
        """Return what is wrong with an unpacked code archive; None: every file is as it was unpacked. Raises `OSError` if this
        process can open no file. An earlier release did not record digests: its folders are unpacked again."""
        path = self._digests / folder.name
        try:
            data = read_guarded(path, _MOST_DIGESTS)
            if data is None:
                return f"there is no {path}"
            return damage_in(folder, checked_digests(json.loads(data)))
        except (DamagedFile, ValueError, TypeError, AttributeError, RecursionError) as error:
            return f"{path} is damaged: {error}"

    @contextlib.contextmanager
    def _fetched(self, sha256: str) -> Iterator[Path]:
        """Fetch a file from Nimbus into a temporary path, and check its digest."""
        make_private_folder(self._code)
        target = self._code / f"{sha256}{_NEW}{secrets.token_hex(4)}.file"
        try:
            self.fetch(sha256, target)
            found = archives.digest_of(target)
            if found != sha256:
                raise NotFetched(f"Nimbus sent a wrong file: {found[:16]}... instead of {sha256[:16]}...")
            yield target
        finally:
            target.unlink(missing_ok=True)

    # Artifacts in use

    def _needs_by(self, record: TopologyRecord) -> dict[str, str]:
        """Return the shared artifacts that a topology uses, according to its record: digest of the code, key of the
        environment."""
        environment = self._environments.of(record.files)
        code = {"code": record.files["code"]} if "code" in record.files else {}
        return code if environment is None else {**code, "environment": environment.key}

    def _note_needs(self, record: TopologyRecord) -> None:
        """Record the artifacts that a topology uses, for the next supervisor."""
        needs = self._needs_by(record)
        if self._needs.get(record.id) == needs:
            return
        self._needs[record.id] = needs
        self._kept = None
        if needs:
            directory = self._directories.topology(record.id)
            try:
                make_private_folder(directory)
                worker_files.write(directory, NEEDS, {"needs": needs}, 0o600)
            except OSError as error:  # harmless for now: the file is read only after a restart
                _log.warning("the needs of topology %s cannot be recorded: %s", record.id, error)

    def _needs_of(self, topology_id: str) -> Mapping[str, str]:
        found = self._needs.get(topology_id)
        return read_needs(self._directories.topology(topology_id)) if found is None else found

    def keep(self, records: Iterable[TopologyRecord], hosted: Collection[str]) -> None:
        """Remove the artifacts of all topologies that are neither in `records` nor in `hosted` (ids of topologies with workers
        here)."""
        used = {record.id: self._needs_by(record) for record in records}
        ids = {*used, *hosted}
        needs = [*used.values(), *map(self._needs_of, hosted)]
        codes = frozenset(each["code"] for each in needs if "code" in each)
        keys = frozenset(each["environment"] for each in needs if "environment" in each)
        for topology_id in self._needs.keys() - ids:
            del self._needs[topology_id]
        self._bundles.forget(lambda key: key in ids)
        if (codes, keys) == self._kept:
            return
        self._kept = codes, keys  # `_remove_others` resets this if an artifact cannot be removed yet
        self._codes.forget(lambda key: key in codes)
        self._builds.forget(lambda key: key in keys)
        self._remove_others(self._code, codes, self._codes)
        self._remove_others(self._digests, codes, self._codes)
        self._remove_others(self._environments.root, keys, self._builds)

    def _remove_others(self, root: Path, keep: Collection[str], jobs: Jobs[Path] | Jobs[str]) -> None:
        """Remove from a folder all artifacts whose names are not in `keep`."""
        try:
            names = os.listdir(root)
        except OSError:
            return
        for name in names:
            # What a thread is writing at the moment has a temporary name.
            if _NEW in name or name.endswith(TEMPORARY) or name in keep:
                continue
            if jobs.knows(name):  # the artifact is being prepared: remove it later
                self._kept = None
                continue
            _log.info("%s is removed: no topology uses it any more", root / name)
            self._removals.remove(root / name)

    def sweep(self) -> None:
        """Remove unfinished work of an earlier supervisor. No other supervisor may be using the state directory."""
        for folder, unfinished in ((self._code, _NEW), (self._digests, TEMPORARY)):
            with contextlib.suppress(OSError):
                for name in os.listdir(folder):
                    if unfinished in name:
                        self._removals.remove(folder / name)
        self._removals.sweep()
        self._environments.sweep()


NEEDS: Final = "needs.json"


def read_needs(topology: Path) -> Mapping[str, str]:
    """Return the shared artifacts that a topology uses, as recorded in its directory `topology`."""
    try:
        body = worker_files.read(topology, NEEDS) or {}
        return {str(name): str(value) for name, value in body["needs"].items()}
    except (worker_files.BadFile, KeyError, AttributeError):
        return {}


def _write_protect(folder: Path) -> None:
    """Make everything in a folder read-only, because several topologies may share it."""
    for path, _, files in os.walk(folder, topdown=False):
        for name in files:
            file = os.path.join(path, name)
            os.chmod(file, os.stat(file).st_mode & 0o555)
        if path != str(folder):  # not the folder itself, which must still be renamed
            os.chmod(path, 0o555)
