"""Answers over HTTP to freeze.

Must not know: which requests there are.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.frozen.frozen_data import DATA
from tests.frozen.http_normal import normal_answer
from tests.frozen.http_play import played
from tests.frozen.old_code import old


def save_archive() -> Path:
    """An archive with a module and data in it, as `squall submit` packs them."""
    with TemporaryDirectory() as folder:
        files = {"words.py": b"WORD = 'word'\n", "data/wörter.txt": b"\xff\x00 data", "empty": b""}
        for name, data in files.items():
            (Path(folder) / name.replace("/", "-")).write_bytes(data)
        target = DATA / "code.tar.gz"
        old("squall.archives").pack({name: Path(folder) / name.replace("/", "-") for name in files}, target)
    return target


def frozen_answers() -> dict[str, Any]:
    """All answers of a play."""
    with TemporaryDirectory() as folder:
        return {name: normal_answer(answer) for name, answer in played(Path(folder)).items()}
