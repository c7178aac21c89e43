"""The file of a backup: what was written is read, every other file is refused with a sentence, and no file is overwritten."""

from __future__ import annotations

import hashlib
import io
import json
import os
import stat
import tarfile
from pathlib import Path
from typing import Any, BinaryIO

import pytest
from msgspec.structs import replace

from squall.api.backups import TopologyBackup
from squall.cluster.records import FORMAT as RECORDS
from squall_cli.backups import layout
from squall_cli.backups.layout import BackedUp, BackupMember, Head, header, last_member, padding
from squall_cli.backups.reading import BadBackup, read_backup
from squall_cli.backups.writing import BackupWriter, new_file
from topology_api import SquallError

HEAD = Head(layout.FORMAT, "0.1.0", RECORDS, "cluster-1", 1_800_000_000.0, ["alpha-1"])
ARCHIVE = bytes(range(256)) * 5
DIGEST = hashlib.sha256(ARCHIVE).hexdigest()


def topology(bundle: str, name: str = "words") -> BackedUp:
    record = {"id": f"{name}-1-17", "name": name, "state": "ACTIVE", "files": {"code": DIGEST}}
    return BackedUp(TopologyBackup(name, record), {f"{name}-1-17": bundle})


def fetch(target: BinaryIO) -> str:
    target.write(ARCHIVE)
    return DIGEST


def written(file: Path, head: Head = HEAD) -> bytes:
    """A backup of one topology, in a file."""
    with new_file(file) as out:
        writer = BackupWriter(out, head)
        writer.add_file(DIGEST, fetch)
        writer.add_topology(topology(writer.add_bytes(b"a bundle")))
        writer.finish()
    return file.read_bytes()


def refusal(file: Path, data: bytes) -> str:
    """Why a file with these bytes is refused."""
    file.write_bytes(data)
    with pytest.raises(BadBackup) as refused:
        read_backup(file)
    text = str(refused.value)
    assert text.startswith(str(file)) and "\n" not in text
    return text.removeprefix(f"{file} ")


def test_what_was_written_is_read_and_any_tar_lists_it(tmp_path: Path) -> None:
    file = tmp_path / "backup.tar"
    data = written(file)
    found = read_backup(file)
    assert found.head == HEAD
    assert [each.backup.name for each in found.topologies] == ["words"]
    assert {sha256: data[each.start : each.start + each.size] for sha256, each in found.files.items()} == {
        DIGEST: ARCHIVE,
        hashlib.sha256(b"a bundle").hexdigest(): b"a bundle",
    }
    assert len(found.files_of(found.topologies[0])) == 2
    with tarfile.open(file, "r:") as tar:
        names = tar.getnames()
        assert all(each.isreg() and each.mode == 0o600 for each in tar.getmembers())
    assert names[0] == layout.HEAD and names[-1] == layout.LAST
    assert stat.S_IMODE(file.stat().st_mode) == 0o600 and os.listdir(tmp_path) == ["backup.tar"]


def test_a_file_is_kept_once(tmp_path: Path) -> None:
    writer = BackupWriter(io.BytesIO(), HEAD)
    for _ in range(2):
        writer.add_file(DIGEST, fetch)
        writer.add_bytes(b"a bundle")
    assert len(writer.members) == 3


def test_a_file_that_arrives_in_part_or_changed_leaves_nothing_behind() -> None:
    def breaks_off(target: BinaryIO) -> str:
        target.write(ARCHIVE[:700])
        raise ConnectionError("cut")

    def is_changed(target: BinaryIO) -> str:
        target.write(ARCHIVE[:-1])
        return hashlib.sha256(ARCHIVE[:-1]).hexdigest()

    out = io.BytesIO()
    writer = BackupWriter(out, HEAD)
    before = out.getvalue()
    with pytest.raises(ConnectionError):
        writer.add_file(DIGEST, breaks_off)
    with pytest.raises(SquallError, match="arrived with the SHA-256"):
        writer.add_file(DIGEST, is_changed)
    assert out.getvalue() == before and not writer.has(DIGEST)


def test_a_file_that_exists_is_not_overwritten_even_if_it_comes_later(tmp_path: Path) -> None:
    file = tmp_path / "backup.tar"
    with pytest.raises(SquallError, match="exists: give the name of a new file"), new_file(file) as out:
        out.write(b"new")
        file.write_bytes(b"another")
    with pytest.raises(SquallError, match="exists"), new_file(file):
        pass
    assert file.read_bytes() == b"another" and os.listdir(tmp_path) == ["backup.tar"]
    with pytest.raises(SquallError, match="is not a folder"), new_file(tmp_path / "none" / "backup.tar"):
        pass


def test_an_interrupted_backup_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), new_file(tmp_path / "backup.tar"):
        raise KeyboardInterrupt
    assert os.listdir(tmp_path) == []


def test_a_flip_of_any_byte_is_found(tmp_path: Path) -> None:
    data, file = written(tmp_path / "whole.tar"), tmp_path / "flipped.tar"
    for at in range(0, len(data), 13):
        flipped = bytearray(data)
        flipped[at] ^= 1 << at % 8
        assert refusal(file, bytes(flipped))


def test_a_file_that_is_cut_off_anywhere_is_refused(tmp_path: Path) -> None:
    data, file = written(tmp_path / "whole.tar"), tmp_path / "short.tar"
    assert refusal(file, b"") == "is empty"
    for size in (*range(512, len(data), 211), len(data) - 1):
        assert refusal(file, data[:size]).startswith(("is cut off", "is damaged"))
    assert "something follows its last member" in refusal(file, data + bytes(512))


def test_a_foreign_or_a_newer_file_is_named_as_such(tmp_path: Path) -> None:
    file = tmp_path / "other"
    for data in (b"hello", os.urandom(4096), bytes(10_240)):
        assert refusal(file, data) == "is not a backup that `squall backup` wrote"
    with tarfile.open(file, "w") as tar:
        tar.add(__file__, layout.HEAD)
    assert "is not a backup" in refusal(file, file.read_bytes())
    for number, (head, why) in enumerate((
        (Head(2, "9.0", RECORDS, "", 0.0, []), "was written by a newer Squall (its format is 2, this Squall reads 1)"),
        (Head(1, "0.0.7", 4, "", 0.0, []), "was written by Squall 0.0.7, with records of format 4"),
    )):  # fmt: skip
        assert refusal(file, written(tmp_path / f"{number}.tar", head)).startswith(why)
    file.write_bytes(written(tmp_path / "before.tar", replace(HEAD, records=5)))
    assert read_backup(file).head.records == 5, "the format before is read"


def packed(*members: tuple[bytes, bytes], head: Any = None) -> bytes:
    """A backup with these (header, content) between its head and its last member, which lists them truly."""
    heads = layout.as_bytes(HEAD)
    rows, data = [BackupMember(layout.HEAD, len(heads), hashlib.sha256(heads).hexdigest(), 0)], b""
    for top, content in ((header(layout.HEAD, len(heads)), heads), *members):
        data += top + content + bytes(padding(len(content)))
    for top, content in members:
        name = top[:100].rstrip(b"\0").decode()
        rows.append(BackupMember(name, len(content), hashlib.sha256(content).hexdigest(), 0))
    last = last_member(rows)
    return data + header(layout.LAST, len(last)) + last + bytes(padding(len(last)) + layout.MOST_ZEROS)


@pytest.mark.parametrize(
    "name",
    ["../escape", "/etc/passwd", "files/../../x", "files/" + "A" * 64, "topologies/1.json", "topologies/000000.json/x",
     "files/", "x" * 101],
)  # fmt: skip
def test_a_member_with_another_name_is_refused(tmp_path: Path, name: str) -> None:
    top = header(name, 1)[:512].ljust(512, b"\0")
    assert "is damaged: what follows squall-backup.json is not a member" in refusal(
        tmp_path / "bad.tar", packed((top, b"x"))
    )


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE,
                                  tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_SPARSE])  # fmt: skip
def test_a_member_that_is_no_regular_file_is_refused(tmp_path: Path, kind: bytes) -> None:
    info = tarfile.TarInfo(f"files/{DIGEST}")
    info.type, info.linkname, info.mode = kind, "/etc/passwd", 0o600
    assert "is not a member" in refusal(tmp_path / "bad.tar", packed((info.tobuf(tarfile.USTAR_FORMAT), b"")))


def test_a_size_that_no_file_has_costs_no_memory(tmp_path: Path) -> None:
    data = packed()
    for size in (10**12, 2**80):
        huge = data[:1024] + header(f"files/{DIGEST}", size) + bytes(5000)
        assert refusal(tmp_path / "bad.tar", huge).startswith("is cut off")
    text = header("topologies/000000.json", 10**9)
    assert "at most 67,108,864 are written" in refusal(tmp_path / "bad.tar", data[:1024] + text)


def test_members_that_are_listed_truly_but_make_no_sense_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "bad.tar"
    name = "topologies/000000.json"
    for content in (b"[]", b"{}", b"{", b"[" * 100_000, b'{"backup": {"name": 1}, "bundles": {}}'):
        assert refusal(file, packed((header(name, len(content)), content))).startswith(
            f"is damaged: {name}: "
        )
    one = header(f"files/{DIGEST}", len(ARCHIVE)), ARCHIVE
    assert f"it has files/{DIGEST} twice" in refusal(file, packed(one, one))
    assert "has the SHA-256" in refusal(file, packed((header(f"files/{DIGEST}", 1), b"x")))
    lacking = layout.as_bytes(topology("0" * 64))
    file.write_bytes(packed((header(name, len(lacking)), lacking)))
    found = read_backup(file)
    with pytest.raises(BadBackup, match="it lacks the file 0000"):
        found.files_of(found.topologies[0])
    assert json.loads(lacking)["bundles"] == {"words-1-17": "0" * 64}
