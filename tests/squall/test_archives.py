"""The files of a topology are packed the same way each time and come back complete, and no bad archive passes the check."""

from __future__ import annotations

import gzip
import io
import os
import stat
import tarfile
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from squall.packages import tar_members
from squall.packages.archives import BadArchive, Contents, check, digest_of, pack, unpack

LIMIT = 1 << 20
UNPACKED = 4 << 20


def member(name: str | bytes, data: bytes = b"", kind: bytes = b"0", **fields: bytes) -> bytes:
    """A member as bytes with a hand-made header: name, mode, size, magic, prefix and link may be anything."""
    name = name.encode() if isinstance(name, str) else name
    header = bytearray(512)
    parts = {
        "name": (0, name), "mode": (100, b"0000644\0"), "uid": (108, b"0000000\0"), "gid": (116, b"0000000\0"),
        "size": (124, b"%011o\0" % len(data)), "mtime": (136, b"00000000000\0"), "kind": (156, kind),
        "link": (157, b"target"), "magic": (257, b"ustar\x0000"), "prefix": (345, b""),
    }  # fmt: skip
    for field, (offset, value) in parts.items():
        value = fields.get(field, value)
        header[offset : offset + len(value)] = value
    header[148:156] = b" " * 8
    header[148:156] = fields.get("checksum", b"%06o\0 " % sum(header))
    return bytes(header) + data + bytes(-len(data) % 512)


def extended(*records: bytes, kind: bytes = b"x") -> bytes:
    body = b""
    for record in records:
        length = len(record) + 2
        while len(str(length)) + len(record) + 2 != length:
            length += 1
        body += b"%d %s\n" % (length, record)
    return member("PaxHeader", body, kind)


def archive(folder: Path, *members: bytes, end: bytes = bytes(1024)) -> Path:
    path = folder / "made-by-hand.tar.gz"
    path.write_bytes(gzip.compress(b"".join(members) + end))
    return path


def refused(path: Path, limit: int = LIMIT, unpacked_limit: int = UNPACKED) -> str:
    """The reason of the refusal; nothing of it is ever written."""
    with pytest.raises(BadArchive) as caught:
        check(path, limit, unpacked_limit)
    target = path.parent / "unpacked"
    with pytest.raises(BadArchive):
        unpack(path, target, limit, unpacked_limit)
    assert not target.exists()
    return str(caught.value)


def packed(folder: Path, files: dict[str, Path | bytes], name: str = "packed.tar.gz") -> Path:
    path = folder / name
    pack(files, path)
    return path


# Packing


def test_the_same_files_give_the_same_archive_whatever_their_times_and_order(tmp_path: Path) -> None:
    file = tmp_path / "data.txt"
    file.write_text("data")
    first = pack({"b/data.txt": file, "a.py": b"x = 1\n"}, tmp_path / "one")
    os.utime(file, (1, 1))
    assert pack({"a.py": b"x = 1\n", "b/data.txt": file}, tmp_path / "two") == first
    assert digest_of(tmp_path / "one") == first == digest_of(tmp_path / "two")
    assert pack({"a.py": b"x = 2\n", "b/data.txt": file}, tmp_path / "three") != first


def test_packed_files_come_back_with_their_data_and_plain_modes(tmp_path: Path) -> None:
    program = tmp_path / "tool.sh"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o4711)
    long = "folder/" * 20 + "long-" * 30 + ".txt"
    files: dict[str, Path | bytes] = {
        "tool.sh": program,
        "größe/日本.py": b"1",
        long: b"2",
        "empty": b"",
        "big": os.urandom(200_000),
    }
    path = packed(tmp_path, files)
    old = os.umask(0o077)
    try:
        contents = unpack(path, tmp_path / "unpacked", LIMIT, UNPACKED)
    finally:
        os.umask(old)
    assert set(contents.names) == set(files)
    assert contents == check(path, LIMIT, UNPACKED)
    assert contents.size == sum(len(data) for data in files.values() if isinstance(data, bytes)) + len(
        "#!/bin/sh\n"
    )
    for name, data in files.items():
        unpacked = tmp_path / "unpacked" / name
        assert unpacked.read_bytes() == (data if isinstance(data, bytes) else data.read_bytes())
        assert stat.S_IMODE(unpacked.stat().st_mode) == (0o755 if name == "tool.sh" else 0o644)


def test_a_link_travels_as_its_target(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("data")
    (tmp_path / "link").symlink_to("real")
    assert unpack(packed(tmp_path, {"x": tmp_path / "link"}), tmp_path / "out", LIMIT, UNPACKED).names == (
        "x",
    )
    assert (tmp_path / "out" / "x").read_text() == "data"
    assert not (tmp_path / "out" / "x").is_symlink()


def test_only_regular_files_are_packed(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path, Path("/dev/zero")):
        with pytest.raises(BadArchive, match="is not a regular file"):
            pack({"x": path}, tmp_path / "packed")


@pytest.mark.parametrize(
    "name",
    ["/x", "../x", "a/../x", "", "a//b", "a/./b", "a\nb", "a\0b", "\udcff", "x" * 256, "y/" * 600 + "z"],
)
def test_a_name_that_would_be_refused_is_not_packed(tmp_path: Path, name: str) -> None:
    with pytest.raises(BadArchive):
        pack({name: b""}, tmp_path / "packed")


def test_a_file_that_is_also_a_folder_is_not_packed(tmp_path: Path) -> None:
    with pytest.raises(BadArchive, match="a file and a folder"):
        pack({"x": b"", "x/y": b""}, tmp_path / "packed")


@given(st.dictionaries(st.text("abc.é/ ", min_size=1, max_size=12), st.binary(max_size=2000), max_size=6))
def test_every_packed_file_is_readable_by_all(
    tmp_path_factory: pytest.TempPathFactory, files: dict[str, bytes]
) -> None:
    path = tmp_path_factory.mktemp("packed") / "packed"
    try:
        pack(dict(files), path)
    except BadArchive:
        return
    with tarfile.open(path) as tar:
        seen = {each.name: len(tar.extractfile(each).read()) for each in tar}  # type: ignore[union-attr]
    assert {each.name: each.size for each in check(path, LIMIT, UNPACKED).members} == seen


# Archives made by other tools


def test_an_archive_made_by_tar_is_accepted(tmp_path: Path) -> None:
    long = "a" * 150
    for kind in (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT, tarfile.USTAR_FORMAT):
        path = tmp_path / f"by-tar-{kind}.tar.gz"
        with tarfile.open(path, "w:gz", format=kind) as tar:
            for name in (".", "./folder"):
                folder = tarfile.TarInfo(name)
                folder.type = tarfile.DIRTYPE
                tar.addfile(folder)
            for name in ("./folder/x.py", f"folder/{long}" if kind != tarfile.USTAR_FORMAT else f"{long}/y"):
                file = tarfile.TarInfo(name)
                file.size, file.mtime = 3, 1.5
                tar.addfile(file, io.BytesIO(b"abc"))
        contents = check(path, LIMIT, UNPACKED)
        assert contents.names[0] == "folder/x.py"
        assert long in contents.names[1]


def test_a_valid_hand_made_member_is_accepted(tmp_path: Path) -> None:
    path = archive(
        tmp_path,
        member("a", b"1"),
        member("b", b"2", b"\0", prefix=b"front"),
        extended(b"path=c", b"mtime=1.5"),
        member("x"),
    )
    assert check(path, LIMIT, UNPACKED).names == ("a", "front/b", "c")


NAMES = {
    "..": ("holds '..'", "../x"),
    "inner ..": ("holds '..'", "a/../../x"),
    "only ..": ("holds '..'", ".."),
    "absolute": ("is absolute", "/etc/passwd"),
    "empty part": ("has an empty part", "a//b"),
    "empty": ("has an empty part", ""),
    "control character": ("holds a control character", "a\x1b[31m"),
}


@pytest.mark.parametrize("case", NAMES)
@pytest.mark.parametrize("way", ["header", "extended header", "GNU's long name", "folder"])
def test_a_name_that_leads_elsewhere_is_refused_in_every_form(tmp_path: Path, case: str, way: str) -> None:
    reason, name = NAMES[case]
    if way == "folder" and not name:
        return  # the root of the archive itself
    members = {
        "header": (member(name, b"x"),),
        "extended header": (extended(b"path=" + name.encode()), member("fine", b"x")),
        "GNU's long name": (member("././@LongLink", name.encode() + b"\0", b"L"), member("fine", b"x")),
        "folder": (member(name, kind=b"5"),),
    }[way]
    text = refused(archive(tmp_path, *members))
    assert reason in text
    assert "\x1b" not in text


def test_the_prefix_of_a_name_is_checked_too(tmp_path: Path) -> None:
    assert "'..'" in refused(archive(tmp_path, member("x", b"", prefix=b"../..")))
    assert "is absolute" in refused(archive(tmp_path, member("x", b"", prefix=b"/etc")))


@pytest.mark.parametrize(
    ("kind", "what"),
    [
        (b"1", "a hard link"), (b"2", "a symbolic link"), (b"3", "a character device"), (b"4", "a block device"),
        (b"6", "a named pipe"), (b"7", "unknown kind b'7'"), (b"S", "a sparse file"), (b"K", "a link with a long name"),
        (b"V", "a volume label"), (b"\xff", "unknown kind"),
    ],
)  # fmt: skip
def test_a_member_that_is_no_regular_file_is_refused_by_name(tmp_path: Path, kind: bytes, what: str) -> None:
    text = refused(archive(tmp_path, member("fine"), member("evil", kind=kind)))
    assert "at 'evil': " in text
    assert what in text


def test_a_link_through_which_a_later_file_is_written_is_refused(tmp_path: Path) -> None:
    path = archive(tmp_path, member("data", kind=b"2", link=b"/etc"), member("data/passwd", b"x"))
    assert "at 'data': it is a symbolic link" in refused(path)


def test_names_that_are_not_utf_8_or_too_long_are_refused(tmp_path: Path) -> None:
    assert "not UTF-8" in refused(archive(tmp_path, member(b"a\xff")))
    assert "not UTF-8" in refused(archive(tmp_path, extended(b"path=\xff"), member("x")))
    assert "too long" in refused(archive(tmp_path, extended(b"path=" + b"x" * 256), member("x")))
    assert "too long" in refused(archive(tmp_path, extended(b"path=" + b"ab/" * 400 + b"x"), member("x")))


@pytest.mark.parametrize(
    ("members", "reason"),
    [
        ((member("x", b"1"), member("x", b"2")), "twice"),
        ((member("x", b"1"), member("./x", b"2")), "twice"),
        ((member("x", b"1"), member("x/y", b"2")), "a file and a folder"),
        ((member("x/y", b"1"), member("x", b"2")), "a file and a folder"),
        ((member("x", kind=b"5"), member("x", b"2")), "a file and a folder"),
        ((member("x", b""), member("x", kind=b"5")), "a file and a folder"),
    ],
)
def test_two_members_of_one_name_are_refused(tmp_path: Path, members: tuple[bytes, ...], reason: str) -> None:
    assert reason in refused(archive(tmp_path, *members))


@pytest.mark.parametrize(
    ("members", "reason"),
    [
        ((extended(b"size=0"), member("x", b"1")), "sets 'size'"),
        ((extended(b"GNU.sparse.major=1"), member("x", b"1")), "sets 'GNU.sparse.major'"),
        ((extended(b"hdrcharset=BINARY"), member("x", b"1")), "sets 'hdrcharset'"),
        ((extended(b"path=all", kind=b"g"), member("x", b"1")), "sets 'path'"),
        ((member("h", b"9 path=x", b"x"), member("x")), "not sound"),
        ((member("h", b"-5 path=x\n", b"x"), member("x")), "not sound"),
        ((member("h", b"0 path=x\n", b"x"), member("x")), "not sound"),
        ((member("h", b"8 nothing\n", b"x"), member("x")), "not sound"),
        ((member("h", b"\xb2 path=x\n", b"x"), member("x")), "not sound"),
        ((member("h", bytes(20_000), b"x"), member("x")), "a header of 20,000 bytes"),
        ((member("h", b"a" * 20_000, b"L"), member("x")), "a header of 20,000 bytes"),
        ((member("h", b"one", b"L"), member("h", b"two", b"L"), member("x")), "two headers"),
        ((member("h", b"one", b"L"),), "a header is without its file"),
        ((member("x", kind=b"5", size=b"00000000001\0") + bytes(512),), "a folder that has data"),
        ((member("x", size=b"\x80" + b"\xff" * 11),), "not an octal number"),
        ((member("x", size=b"-0000000001\0"),), "not an octal number"),
        ((member("x", mode=b"rwxr-xr-"),), "not an octal number"),
        ((member("x", checksum=b"0000000\0"),), "checksum is false"),
        ((b"\0" * 512, member("x")), "an empty block in its middle"),
        ((member("x", b"1")[:-1] + b"!",), "hidden behind its data"),
    ],
)  # fmt: skip
def test_an_invalid_header_is_refused(tmp_path: Path, members: tuple[bytes, ...], reason: str) -> None:
    assert reason in refused(archive(tmp_path, *members))


def test_data_after_the_end_is_refused(tmp_path: Path) -> None:
    assert "behind its end" in refused(archive(tmp_path, end=bytes(1024) + member("hidden")))
    path = archive(tmp_path, member("x"))
    whole = path.read_bytes()
    for behind in (b"!", whole, b"\0" * 10):
        path.write_bytes(whole + behind)
        assert "behind its end" in refused(path)


def test_every_truncation_is_noticed(tmp_path: Path) -> None:
    tar = member("first", b"1" * 700) + member("second", b"2") + bytes(1024)
    path = tmp_path / "cut"
    for size in range(0, len(tar), 100):
        path.write_bytes(gzip.compress(tar[:size]))
        assert "cut off" in refused(path)
    whole = gzip.compress(tar)
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        refused(path)


def test_damaged_or_other_data_than_gzip_is_refused(tmp_path: Path) -> None:
    path = archive(tmp_path, member("x", b"data" * 1000))
    whole = bytearray(path.read_bytes())
    whole[-5] ^= 1  # the checksum at its end
    path.write_bytes(whole)
    assert "not a sound gzip file" in refused(path)
    for other in (b"PK\x03\x04", b"\x28\xb5\x2f\xfd", zlib.compress(b"x"), member("x") + bytes(1024)):
        path.write_bytes(other)
        assert "gzip" in refused(path)
    path.write_bytes(gzip.compress(b"no tar" * 200))
    assert "not a tar file" in refused(path) or "not an octal" in refused(path)


# Bombs


def test_an_archive_over_the_limit_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = packed(tmp_path, {"x": os.urandom(2000)})
    assert "at most 1,000 are allowed" in refused(path, limit=1000)
    assert check(path, path.stat().st_size, UNPACKED).size == 2000


def test_an_archive_that_declares_too_large_a_size_is_refused_without_reading_it(tmp_path: Path) -> None:
    text = refused(archive(tmp_path, member("huge", size=b"77777777777\0"), end=b""))
    assert "at 'huge': unpacked it has more than 4,194,304 bytes" in text


def test_an_archive_that_is_too_large_in_total_is_refused(tmp_path: Path) -> None:
    parts = [member(f"part-{number}", bytes(1 << 20)) for number in range(5)]
    assert "at 'part-3'" in refused(archive(tmp_path, *parts))
    assert "more than 4,194,304 bytes" in refused(archive(tmp_path, end=bytes(5 << 20)))


def test_an_archive_that_expands_out_of_proportion_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tar_members, "RATIO_FROM_BYTES", 1 << 20)
    path = archive(tmp_path, member("zeros", bytes(3 << 20)))
    assert "at 'zeros': it grows to more than 200 times its size" in refused(path)
    assert check(packed(tmp_path, {"noise": os.urandom(900_000), "zeros": bytes(1 << 20)}), LIMIT, UNPACKED)


def test_an_archive_with_too_many_members_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tar_members, "MOST_MEMBERS", 10)
    few = [member(f"x{number}") for number in range(10)]
    assert len(check(archive(tmp_path, *few), LIMIT, UNPACKED).members) == 10
    assert "more than 10 members" in refused(archive(tmp_path, *few, member("last")))
    assert "more than 10 members" in refused(archive(tmp_path, *[extended(b"mtime=1")] * 11))


def test_an_archive_whose_names_make_too_many_folders_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tar_members, "MOST_MEMBERS", 10)
    few = [member("a/b/c/d/x"), member("e/f/g/x")]  # seven folders and two files
    assert len(check(archive(tmp_path, *few), LIMIT, UNPACKED).members) == 2
    assert "more than 10 files and folders" in refused(archive(tmp_path, *few, member("h/x")))
    assert "more than 10 files and folders" in refused(archive(tmp_path, *few, member("h/i", kind=b"5")))


# Unpacking


def test_no_special_bit_survives(tmp_path: Path) -> None:
    path = archive(tmp_path, member("tool", b"x", mode=b"0007777\0"), member("data", b"x", mode=b"0006666\0"))
    unpack(path, tmp_path / "out", LIMIT, UNPACKED)
    assert stat.S_IMODE((tmp_path / "out" / "tool").stat().st_mode) == 0o755
    assert stat.S_IMODE((tmp_path / "out" / "data").stat().st_mode) == 0o644


def test_only_an_empty_folder_is_written_to(tmp_path: Path) -> None:
    path = packed(tmp_path, {"x/y": b"1"})
    target = tmp_path / "out"
    target.mkdir()
    (target / "x").symlink_to("/tmp")
    with pytest.raises(OSError, match="not empty"):
        unpack(path, target, LIMIT, UNPACKED)
    (target / "x").unlink()
    assert unpack(path, target, LIMIT, UNPACKED) == Contents(check(path, LIMIT, UNPACKED).members, 1)


@given(st.data())
def test_damage_is_refused_or_harmless_and_never_another_error(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    tar = bytearray(
        member("a", b"1" * 600)
        + extended(b"path=long/name")
        + member("b", b"2")
        + member("c", kind=b"5")
        + bytes(1024)
    )
    for _ in range(data.draw(st.integers(1, 4))):
        tar[data.draw(st.integers(0, len(tar) - 1))] = data.draw(st.integers(0, 255))
    for start in (0, 1536, 2560, 3584):  # damage that the checksum does not cover
        header = tar[start : start + 512]
        header[148:156] = b" " * 8
        if len(header) == 512 and any(tar[start : start + 512]):
            tar[start + 148 : start + 156] = b"%06o\0 " % sum(header)
    path = tmp_path_factory.mktemp("damaged") / "damaged"
    path.write_bytes(gzip.compress(bytes(tar)))
    target = path.parent / "out"
    check_or_refuse: Callable[[], Contents] = lambda: unpack(path, target, LIMIT, UNPACKED)  # noqa: E731
    try:
        contents = check_or_refuse()
    except BadArchive:
        assert not target.exists()
        return
    assert all((target / name).resolve().is_relative_to(target.resolve()) for name in contents.names)
