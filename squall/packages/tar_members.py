"""Reads a gzipped tar of unknown origin, member by member, without trusting its headers.

Python's own `tarfile`, even with its data filter, keeps as much in memory as a header announces (400 MB for an archive of 200
kB), follows sparse maps and global overrides, and was made to restore a file system. This reader accepts regular files and
folders, reads no more than its limits allow, and refuses everything else with an error that names it: links, devices, sparse
files, `..`, absolute names, names that are not UTF-8 or too long, duplicate names, numbers that are not octal, wrong checksums,
and data that is cut off, hidden behind the end or compressed to a suspiciously small size.
Must not know: the disk, who reads, what the files are for.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from typing import BinaryIO, Final

import msgspec

from topology_api.errors import SquallError
from topology_api.wording import shown

BLOCK: Final = 512  # everything in a tar is a multiple of this
PIECE: Final = 64 * 1024
#: Far more files than a topology has. Each file takes one block for its header, an inode and a system call. Folders are counted
#: too, even folders without a header.
MOST_MEMBERS: Final = 50_000
#: The limit of file systems for one part of a path.
MOST_PART_BYTES: Final = 255
#: The limit for a member's whole name; it leaves room for the path of the folder into which the archive is unpacked.
MOST_NAME_BYTES: Final = 1024
#: A header that carries nothing but a name or times needs no more bytes.
MOST_EXTENSION_BYTES: Final = 16 * 1024
#: Up to this number of unpacked bytes, any ratio of unpacked to compressed bytes is harmless.
RATIO_FROM_BYTES: Final = 64 * 1024 * 1024
#: The highest ratio that is accepted above `RATIO_FROM_BYTES`. Code and data shrink to a tenth, a zip bomb to a thousandth.
MOST_RATIO: Final = 200

#: Records of an extended header that change a member's contents instead of describing it.
REFUSED_RECORDS: Final = ("size", "hdrcharset", "GNU.sparse")
KINDS: Final[Mapping[bytes, str]] = {
    b"1": "a hard link", b"2": "a symbolic link", b"3": "a character device", b"4": "a block device", b"6": "a named pipe",
    b"K": "a link with a long name", b"S": "a sparse file", b"V": "a volume label", b"M": "a part of another volume",
}  # fmt: skip


class BadArchive(SquallError):
    """An archive that is refused: `member` is the name of the faulty member (None: the archive itself is faulty)."""

    def __init__(self, reason: str, member: str | None = None) -> None:
        self.reason = reason
        self.member = member
        super().__init__(reason, member)

    def __str__(self) -> str:
        place = "" if self.member is None else f" at {shown(self.member)}"
        return f"the archive is refused{place}: {self.reason}"


class Member(msgspec.Struct, frozen=True):
    """A regular file of an archive."""

    name: str
    size: int
    executable: bool = False


class Inflated:
    """The unpacked bytes of one gzip stream: at most `most`, and in a large stream at most `MOST_RATIO` for each compressed
    byte."""

    def __init__(self, source: BinaryIO, most: int) -> None:
        self._source = source
        self._most = most
        self._inflate = zlib.decompressobj(wbits=31)  # 16 + 15: gzip and nothing else
        self._taken = 0
        self.given = 0
        #: The member that is being read, for the error.
        self.member: str | None = None

    def read(self, size: int) -> bytes:
        """Return exactly `size` bytes, or fewer at the end of the stream. All of these are in memory: ask for at most
        `PIECE`."""
        pieces = []
        missing = size
        while missing > 0 and (piece := self._piece(missing)):
            pieces.append(piece)
            missing -= len(piece)
        return b"".join(pieces)

    def _piece(self, size: int) -> bytes:
        """Return some bytes; return no bytes only at the end of the stream."""
        while not self._inflate.eof:
            compressed = self._inflate.unconsumed_tail
            if not compressed:
                compressed = self._source.read(PIECE)
                self._taken += len(compressed)
            try:
                piece = self._inflate.decompress(compressed, min(size, PIECE))
            except zlib.error as error:
                raise BadArchive(f"it is not a sound gzip file ({error})", self.member) from None
            self._count(len(piece))
            if piece:
                return piece
            if not compressed:
                raise BadArchive("it is cut off", self.member)
        return b""

    def _count(self, size: int) -> None:
        self.given += size
        if self.given > self._most:
            raise too_big(self._most, self.member)
        if self.given > RATIO_FROM_BYTES and self.given > MOST_RATIO * self._taken:
            raise BadArchive(f"it grows to more than {MOST_RATIO} times its size when unpacked", self.member)

    def end(self) -> None:
        """Check the end of the archive: nothing but zeros may follow, and the compressed stream must be complete."""
        self.member = None
        while piece := self.read(PIECE):
            if piece.count(0) != len(piece):
                raise BadArchive("there is data behind its end")
        if self._inflate.unused_data or self._source.read(1):
            raise BadArchive("there is data behind its end")


def too_big(most: int, member: str | None) -> BadArchive:
    return BadArchive(f"unpacked it has more than {most:,} bytes, the limit", member)


class Members:
    """The members of an archive, in order: iterate over them, and read the data of each before the next.

    unpacked_limit: the maximum size of the tar file inside, including headers, in bytes. Any fault raises `BadArchive`.
    """

    def __init__(self, source: BinaryIO, unpacked_limit: int) -> None:
        self._bytes = Inflated(source, unpacked_limit)
        self._limit = unpacked_limit
        self._left = 0
        self._padding = 0

    def __iter__(self) -> Iterator[Member]:
        names = Names()
        count, long_name = 0, None
        while (header := self._header()) is not None:
            count += 1
            if count > MOST_MEMBERS:
                raise BadArchive(f"it has more than {MOST_MEMBERS:,} members")
            name = header_name(header) if long_name is None else long_name
            self._bytes.member = name
            kind, size = header[156:157], number(header[124:136], "size", name)
            if size > self._limit:
                raise too_big(self._limit, name)
            self._left, self._padding = size, -size % BLOCK
            if kind in (b"x", b"g", b"L"):
                if long_name is not None:
                    raise BadArchive("two headers give it a name", name)
                long_name = self._extension(kind, size, name)
                continue
            name, long_name = checked_name(name, kind == b"5"), None
            self._bytes.member = name or "."
            if kind == b"5":
                names.add_folder(name, size)
            elif kind in (b"0", b"\0"):
                names.add_file(name)
                yield Member(name, size, bool(number(header[100:108], "mode", name) & 0o111))
            else:
                raise BadArchive(
                    f"it is {KINDS.get(kind, f'a member of the unknown kind {kind!r}')}: only regular files are accepted",
                    name,
                )
            self._skip()
        if long_name is not None:
            raise BadArchive("it is cut off: a header is without its file", long_name)

    def data(self) -> Iterator[bytes]:
        """Yield the data of the current member, in pieces."""
        while self._left:
            piece = self._whole(min(self._left, PIECE))
            self._left -= len(piece)
            yield piece

    def _skip(self) -> None:
        for _ in self.data():
            pass
        if self._whole(self._padding).strip(b"\0"):
            raise BadArchive("there is something hidden behind its data", self._bytes.member)

    def _whole(self, size: int) -> bytes:
        if len(data := self._bytes.read(size)) != size:
            raise BadArchive("it is cut off", self._bytes.member)
        return data

    def _header(self) -> bytes | None:
        """Return the next header; None at the end, which is two blocks of zeros."""
        if not (block := self._whole(BLOCK)).strip(b"\0"):
            if self._whole(BLOCK).strip(b"\0"):
                raise BadArchive("it has an empty block in its middle")
            self._bytes.end()
            return None
        # The checksum is calculated as if its own field held spaces.
        if number(block[148:156], "checksum", None) != sum(block[:148]) + 8 * 32 + sum(block[156:]):
            raise BadArchive(
                "a header's checksum is false: this is not a tar file, or it is damaged", self._bytes.member
            )
        return block

    def _extension(self, kind: bytes, size: int, name: str) -> str | None:
        """Return the name that an extended header gives to the next member, or None."""
        if size > MOST_EXTENSION_BYTES:
            raise BadArchive(
                f"a header of {size:,} bytes describes it: at most {MOST_EXTENSION_BYTES:,} are read", name
            )
        body = b"".join(self.data())
        self._skip()
        if kind == b"L":
            return as_text(body.rstrip(b"\0"))
        path = None
        for key, value in records(body, name):
            if key.startswith(REFUSED_RECORDS) or (key == "path" and kind == b"g"):
                raise BadArchive(f"its header sets {key!r}, which is not accepted", name)
            if key == "path":
                path = as_text(value)
        return path


class Names:
    """The names read so far. Refuses a duplicate, a name that is both a file and a folder, and too many names."""

    def __init__(self) -> None:
        self.files: set[str] = set()
        self.folders: set[str] = set()

    def add_file(self, name: str) -> None:
        if name in self.files:
            raise BadArchive("the archive holds this name twice", name)
        if name in self.folders:
            raise BadArchive("it is a file and a folder", name)
        self.files.add(name)
        self._above(name)

    def add_folder(self, name: str, size: int) -> None:
        if size:
            raise BadArchive("it is a folder that has data", name)
        if name in self.files:
            raise BadArchive("it is a file and a folder", name)
        if name:
            self.folders.add(name)
            self._above(name)

    def _above(self, name: str) -> None:
        while (name := name.rpartition("/")[0]) and name not in self.folders:
            if name in self.files:
                raise BadArchive("it is a file and a folder", name)
            self.folders.add(name)
        if len(self.files) + len(self.folders) > MOST_MEMBERS:
            raise BadArchive(f"it has more than {MOST_MEMBERS:,} files and folders")


def header_name(header: bytes) -> str:
    """Return the name in the header itself; an extended header may give a different one. Only POSIX headers have a separate
    field for the first part of the name."""
    name = header[:100].partition(b"\0")[0]
    if header[257:265] == b"ustar\x0000":
        prefix = header[345:500].partition(b"\0")[0]
        name = prefix + b"/" + name if prefix else name
    return as_text(name)


def as_text(name: bytes) -> str:
    try:
        return name.decode("utf-8")
    except UnicodeDecodeError:
        raise BadArchive("its name is not UTF-8", ascii(name)[2:-1][:MOST_PART_BYTES]) from None


def checked_name(name: str, folder: bool = False) -> str:
    """Return the normal form of a member's name; raise `BadArchive` if the name may lead outside the folder in which the
    archive is unpacked."""
    plain = name.rstrip("/") if folder else name
    plain = "" if plain == "." and folder else plain.removeprefix("./")  # `tar -C FOLDER .` writes ./name
    problem = None if folder and not plain else name_problem(plain)
    if problem is not None:
        raise BadArchive(problem, name[:MOST_NAME_BYTES])
    return plain


def name_problem(name: str) -> str | None:
    """Return the problem with the name of a file in an archive, or None."""
    try:
        data = name.encode("utf-8")
    except UnicodeEncodeError:
        return "its name is not UTF-8"
    parts = name.split("/")
    if name.startswith("/"):
        return "its name is absolute"
    if ".." in parts:
        return "its name holds '..'"
    if "" in parts or "." in parts:
        return "its name has an empty part"
    if len(data) > MOST_NAME_BYTES or max(len(part.encode("utf-8")) for part in parts) > MOST_PART_BYTES:
        return f"its name is too long (at most {MOST_NAME_BYTES} bytes, {MOST_PART_BYTES} between slashes)"
    if any(ord(character) < 32 or ord(character) == 127 for character in name):
        return "its name holds a control character"
    return None


def number(field: bytes, what: str, member: str | None) -> int:
    """Return the octal number in a field of a header. GNU tar writes very large numbers in base 256. These are far above every
    limit of this module, and are refused."""
    digits = field.strip(b" \0")
    if digits and not all(48 <= digit <= 55 for digit in digits):
        raise BadArchive(f"the {what} in its header is {field[:12]!r}, which is not an octal number", member)
    return int(digits or b"0", 8)


def records(body: bytes, name: str) -> Iterator[tuple[str, bytes]]:
    """Yield the records of an extended header: `<length> <key>=<value>` and a newline. The length counts the whole record."""
    while body:
        digits, _, _ = body[:8].partition(b" ")
        length = int(digits) if digits.isdigit() else 0
        record, body = body[:length], body[length:]
        key, equals, value = record[len(digits) + 1 :].partition(b"=")
        if not length or len(record) != length or not record.endswith(b"\n") or not equals:
            raise BadArchive("the header that describes it is not sound", name)
        yield key.decode("utf-8", "replace"), value[:-1]
