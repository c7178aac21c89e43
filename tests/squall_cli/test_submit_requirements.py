"""--requirements and --wheels of `squall submit`: how they are read and packed, and which are refused."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from squall.packages.archives import unpack
from squall_cli.packing.packing import Package, find_wheels, pack_all, read_requirements
from squall_cli.packing.user_modules import CannotShip


@pytest.mark.parametrize(
    "line",
    [
        "-r more.txt", "--requirement more.txt", "-c limits.txt", "-e .", "--editable=.", ".", "./pkg", "../pkg", "/opt/x.whl",
        "mine @ file:///opt/mine.whl", "file:///x", "--find-links wheels", "-f wheels",
    ],
)  # fmt: skip
def test_requirements_that_point_to_files_are_refused_with_their_line(tmp_path: Path, line: str) -> None:
    (tmp_path / "requirements.txt").write_text(f"# fine\nsix==1.16\n{line}\n")
    with pytest.raises(CannotShip, match=r"line 3: .*--wheels DIR"):
        read_requirements(tmp_path / "requirements.txt")


def test_requirements_of_every_other_kind_are_accepted(tmp_path: Path) -> None:
    text = (
        "# -r commented\nsix==1.16 # as in -e .\nnumpy>=2,<3 ; python_version > '3.9'\n--index-url https://host/simple\n"
        "six==1 \\\n    --hash=sha256:ab\nmine @ https://host/mine.whl\n--no-binary :all:\n\n"
    )
    (tmp_path / "requirements.txt").write_text(text)
    assert read_requirements(tmp_path / "requirements.txt") == tmp_path / "requirements.txt"


def test_unreadable_requirements_are_refused(tmp_path: Path) -> None:
    (tmp_path / "latin").write_bytes(b"# \xe9\n")
    (tmp_path / "long").write_bytes(b"#" * 300_000)
    for name, reason in (
        ("missing", "No such file"),
        ("latin", "not UTF-8"),
        ("long", "at most"),
        (".", "directory"),
    ):
        with pytest.raises(CannotShip, match=reason):
            read_requirements(tmp_path / name)


def test_wheels_are_packed_and_a_folder_without_any_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "wheels").mkdir()
    for name, text in (("a-1-py3-none-any.whl", "a"), ("b-1-py3-none-any.whl", "b"), ("c.tar.gz", "")):
        (tmp_path / "wheels" / name).write_text(text)
    wheels = find_wheels(tmp_path / "wheels")
    packed = pack_all(Package({}, None, wheels), tmp_path)
    assert [each.purpose for each in packed] == ["wheels"]
    assert len(unpack(packed[0].path, tmp_path / "out", 1 << 20, 1 << 20).names) == 2
    for name in ("missing", "elsewhere"):
        with pytest.raises(CannotShip):
            find_wheels(tmp_path / name)


def test_a_hidden_file_is_no_wheel_and_an_unreadable_folder_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".whl").write_text("")
    with pytest.raises(CannotShip, match="contains no wheel"):
        find_wheels(tmp_path)

    def forbidden(path: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    for name in ("listdir", "scandir"):  # the tests may run as root, which may read everything
        monkeypatch.setattr(os, name, forbidden)
    with pytest.raises(PermissionError):
        find_wheels(tmp_path)
