"""The handlers of backups: the records of a topology, the bundle of a version, and a topology that is restored.

A backup is a file of the operator. It reaches Nimbus in pieces: archives and bundles as files, by their SHA-256, then the
records of one topology at a time.
Must not know: Starlette, the form of that file, what a record means.
"""

from __future__ import annotations

import time
from base64 import b64encode
from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec import structs

from nimbus.files.stored_files import NoSuchFile
from nimbus.http.requests import parsed_json
from nimbus.http.views import NoSuchPart
from nimbus.submission.parse import BODY_LIMIT, TooLarge, check_versions, read_bundle
from nimbus.submission.restoration import Restoration
from squall.api.backups import BundleAnswer, RestoredAnswer, TopologyBackup
from squall.cluster.blobs import BadBlob, get_bundle, get_description
from squall.cluster.registry import name_of
from squall.packages.versions import own_versions
from topology_api.topology import Topology

if TYPE_CHECKING:
    from nimbus.http.handlers import ApiCall, Plain, Services


def backup(services: Services, call: Plain) -> tuple[int, TopologyBackup]:
    return 200, services.lead(call, lambda nimbus: nimbus.backup(call.path["name"]))


def bundle(services: Services, call: Plain) -> tuple[int, BundleAnswer]:
    name, id, store = call.path["name"], call.path["id"], services.views.store
    try:
        if name_of(id) != name:
            raise BadBlob(f"{id!r:.200} is no version of it")
        description, pickles = get_description(store, id), get_bundle(store, id).pickles
    except BadBlob as error:
        raise NoSuchPart(f"topology {name!r} has no such bundle: {error}") from None
    return 200, BundleAnswer(
        id, description, {each: b64encode(data).decode() for each, data in pickles.items()}
    )


def restore(services: Services, call: ApiCall[None, Restoration]) -> tuple[int, RestoredAnswer]:
    restoration = call.body
    bundles = _checked_parts(services, restoration, all_there=True)
    call = structs.replace(
        call, began=time.monotonic()
    )  # checking large archives may take long, but is done only once
    record, known = services.lead(call, lambda nimbus: nimbus.restore(restoration, bundles))
    return 200 if known else 201, RestoredAnswer(record.name, record.id, record.state)


def check_restore(services: Services, call: ApiCall[None, Restoration]) -> tuple[int, RestoredAnswer]:
    restoration = call.body
    bundles = _checked_parts(services, restoration, all_there=False)
    services.lead(call, lambda nimbus: nimbus.check_restore(restoration, bundles))
    record = restoration.topology
    return 200, RestoredAnswer(record.name, record.id, record.state)


def _checked_parts(services: Services, restoration: Restoration, all_there: bool) -> dict[str, Topology]:
    """Check whether the hosts can run a topology, and check its files. Return the bundles of its versions, by id. `all_there`:
    a missing file is an error; otherwise, only those that are there are checked."""
    own, supervisors = own_versions(), services.views.registry.all_supervisors()
    for record in restoration.submitted:
        # The cloudpickle of the backup is not known.
        packed = own if not record.python else {**own, "python": record.python}
        check_versions(record.name, packed, own, supervisors)
    for version in restoration.with_bundles().values():
        for kind, sha256 in version.files.items():
            if all_there or services.files.has(sha256):
                services.files.check(kind, sha256)
    bundles = dict(_bundles(services, restoration))
    missing = restoration.bundles.keys() - bundles.keys()
    if all_there and missing:
        raise NoSuchFile(f"this Nimbus lacks the bundle of {min(missing)}: send it first")
    return bundles


def _bundles(services: Services, restoration: Restoration) -> Iterator[tuple[str, Topology]]:
    """Yield those bundles that are there, each with its version."""
    for id, sha256 in restoration.bundles.items():
        if not services.files.has(sha256):
            continue
        path = services.files.path(sha256)
        if path.stat().st_size > BODY_LIMIT:
            raise TooLarge(f"the bundle of {id} has more than the {BODY_LIMIT:,} bytes that are allowed")
        yield id, read_bundle(parsed_json(path.read_bytes()), f"the bundle of {id}")
