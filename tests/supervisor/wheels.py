"""Wheels and archives made in a test: the files of a topology, without a network."""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Mapping
from pathlib import Path

from squall.packages.archives import digest_of, pack


def make_wheel(folder: Path, name: str, version: str = "1.0", requires: str = "", text: str = "") -> Path:
    """A wheel of one module of that name, which contains `text`."""
    info = f"{name}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    metadata += f"Requires-Dist: {requires}\n" if requires else ""
    files = {
        f"{name}.py": text or f"version = {version!r}\n",
        f"{info}/METADATA": metadata,
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{path},,\n" for path in (*files, f"{info}/RECORD"))
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        for inside, content in {**files, f"{info}/RECORD": record}.items():
            wheel.writestr(inside, content)
    return path


def archive(folder: Path, files: Mapping[str, Path | bytes]) -> bytes:
    """The bytes of an archive of files."""
    target = folder / "archive.tar.gz"
    pack(files, target)
    data = target.read_bytes()
    assert digest_of(target) == sha256(data)
    target.unlink()
    return data


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
