"""The form of a backup: a tar archive whose bytes all follow from names, sizes and contents, so that all of them are checked.

```
squall-backup.json          the head: format, releases, cluster, time
files/<sha256>              an archive, wheels, requirements or a bundle (the JSON of `squall.api.backups.BundleAnswer`)
topologies/<number>.json    the records of a topology (`squall.api.backups.TopologyBackup`), and the files with its bundles
members.json                [name, size, SHA-256] of each member above, in their order; the last member
```

Members in the middle may be in any order. A member is a regular file with a fixed mode, owner and time. A header that would not
be written exactly so is refused, which excludes links, folders, sparse files and headers that change the meaning of others. No
name of a member ever becomes a path.
Must not know: files, what topologies and bundles contain.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec import Struct

from squall.api.backups import TopologyBackup
from squall.exact_structs import Finite, build_type_info

#: Increased when an older reader would misread a new file.
FORMAT: Final = 1
HEAD: Final = "squall-backup.json"
LAST: Final = "members.json"
FILES: Final = "files/"
TOPOLOGIES: Final = "topologies/"
#: The size of a header; contents are padded to a multiple of it.
BLOCK: Final = 512
#: The most zeros after the last member.
MOST_ZEROS: Final = 2 * BLOCK
#: The most bytes of a member that is read as a whole.
MOST_JSON: Final = 64 * 1024 * 1024

_MIDDLE: Final = re.compile(r"files/[0-9a-f]{64}|topologies/[0-9]{6}\.json")


class Head(Struct, frozen=True):
    """The first member. `squall`: the release that wrote the file; `records`: the format of the records."""

    squall_backup: int
    squall: str
    records: int
    cluster: str
    #: Seconds since 1970.
    time: Finite
    #: The supervisors that were drained.
    drained: list[str]


class BackedUp(Struct, frozen=True):
    """A topology. `bundles`: version -> SHA-256 of the file with its bundle."""

    backup: TopologyBackup
    bundles: dict[str, str]


class BackupMember(Struct, frozen=True, array_like=True):
    """A member, and where its content begins."""

    name: str
    size: int
    sha256: str
    start: int


def header(name: str, size: int) -> bytes:
    """Return the header of a member, in the form of POSIX (ustar); a size of 8 GiB or more is binary, as GNU tar writes it."""
    number = b"%011o\0" % size if size < 8**11 else b"\x80" + size.to_bytes(11, "big")
    before = (
        name.encode("ascii").ljust(100, b"\0") + b"0000600\0" + 2 * b"0000000\0" + number + b"00000000000\0"
    )
    after = b"0".ljust(101, b"\0") + b"ustar\x0000".ljust(BLOCK - 257, b"\0")
    checksum = sum(before) + 8 * ord(" ") + sum(after)
    return before + b"%06o\0 " % checksum + after


def parsed_header(data: bytes) -> tuple[str, int] | None:
    """Return (name, size) of the member with this header; None if `header` would not write exactly these bytes, or a backup has
    no member of this name."""
    try:
        name, number = data[:100].rstrip(b"\0").decode("ascii"), data[124:136]
        size = int.from_bytes(number[1:], "big") if number[:1] == b"\x80" else int(number[:11], 8)
        same = header(name, size) == data
    except (ValueError, OverflowError):
        return None
    known = name in (HEAD, LAST) or _MIDDLE.fullmatch(name) is not None
    return (name, size) if same and known else None


def padding(size: int) -> int:
    """Return how many zeros follow a content."""
    return -size % BLOCK


def last_member(members: Sequence[BackupMember]) -> bytes:
    """Return the content of the last member."""
    rows = [[each.name, each.size, each.sha256] for each in members]
    return json.dumps({"members": rows}, indent=0).encode()


def as_bytes(value: Struct) -> bytes:
    """Return a struct as the content of a member."""
    return json.dumps(msgspec.to_builtins(value)).encode()


def sha256_in(name: str) -> str | None:
    """Return the SHA-256 in the name of a member; None for a member that is no file."""
    return name[len(FILES) :] if name.startswith(FILES) else None


build_type_info(Head, BackedUp)
