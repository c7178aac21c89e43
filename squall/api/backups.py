"""The structs of backups over HTTP: what a topology consists of besides its files, and how it is restored.

The records are the JSON objects of `squall.cluster.records`, with kind and format, as they are in the store.
Must not know: paths, handlers, files.
"""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct

RecordJson = dict[str, Any]


class TopologyBackup(Struct, frozen=True):
    """All lasting records of a topology, of one moment: the present version; the one that waits to replace it; the one that may
    return; the earlier versions that are kept; and what is kept of those that have ended. They hold the settings with their
    secrets."""

    name: str
    topology: RecordJson
    waiting: RecordJson | None = None
    replaced: RecordJson | None = None
    versions: list[RecordJson] = []
    ended: list[RecordJson] = []

    def submitted(self) -> list[RecordJson]:
        """Return the versions that run, or may run again by themselves; the one that has the name comes first."""
        return [each for each in (self.topology, self.waiting, self.replaced) if each is not None]

    def files_by_version(self) -> dict[str, dict[str, str]]:
        """Return the files of each version that has a bundle, by the version's id. The records are not checked yet: what is no
        text is left out."""
        found = {}
        for record in (*self.submitted(), *self.versions):
            files = record.get("files")
            texts = files.items() if isinstance(files, dict) else ()
            found[str(record.get("id"))] = {kind: text for kind, text in texts if isinstance(text, str)}
        return found


class BundleAnswer(Struct, frozen=True):
    """The bundle of a version: its typed description, and component -> its pickle, as base64. It never changes."""

    id: str
    description: dict[str, Any]
    pickles: dict[str, str]


class RestoreRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A topology to restore."""

    submission: Annotated[
        str,
        Meta(description="A key that the caller chooses, the same in each retry.", max_length=100),
    ]
    backup: Annotated[TopologyBackup, Meta(description="Its records, as a backup has them.")]
    bundles: Annotated[
        dict[str, str],
        Meta(description="Version -> SHA-256 of a file with its bundle (a `BundleAnswer`), sent before."),
    ]
    inactive: Annotated[bool, Meta(description="Whether its spouts rest even if they ran.")] = False


class RestoredAnswer(Struct, frozen=True):
    """The topology that was restored. Its versions keep their ids."""

    name: str
    id: str
    state: str
