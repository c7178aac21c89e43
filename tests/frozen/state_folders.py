"""State directories of daemons, made of texts, and the current code's result for each: the daemon's identity, or the error's
name.

Must not know: which texts are valid.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from tests.frozen import current_code
from tests.frozen.plain_values import former, plain

CLUSTER: Final = b'{"id": "0123456789abcdef0123456789abcdef", "format": 5}'
#: The content of a valid state directory.
SOUND: Final = {
    "id": "rack-1-0a1b2c3d",
    "key": "01" * 32,
    "cluster": "0123456789abcdef" * 2,
    "token": "a-token_1",
}


def folder_of(folder: Path, files: Mapping[str, str], mode: int = 0o600) -> Path:
    """A folder with these files, as daemons write them: a line each."""
    folder.mkdir(mode=0o700)
    for name, text in files.items():
        path = folder / name
        path.write_bytes(text.encode("latin-1" if text == "\xff" else "utf-8") + b"\n")
        path.chmod(mode)
    return folder


def states(texts: Mapping[str, list[str]]) -> dict[str, tuple[dict[str, str], int]]:
    """Each state directory to try, by name: its files and their mode."""
    found = {"sound": (SOUND, 0o600), "readable by all": (SOUND, 0o644)}
    for file in ("id", "key", "token"):
        for text in texts[f"{file}s"]:
            found[f"{file} {text!a}"] = ({**SOUND, file: text}, 0o600)
    found["of another cluster"] = ({**SOUND, "cluster": "another"}, 0o600)
    found["of no cluster yet"] = ({**SOUND, "cluster": ""}, 0o600)
    return found


def identities(folder: Path, files: Mapping[str, str], mode: int) -> dict[str, Any]:
    """The reports of daemons on a state directory with these files."""
    found: dict[str, Any] = {}
    try:
        found["nimbus"] = plain(current_code.nimbus_state(folder_of(folder / "nimbus", files, mode)))
    except Exception as error:
        found["nimbus"] = former(type(error).__name__)
    try:
        state = folder_of(folder / "supervisor", files, mode)
        found["supervisor"] = plain(current_code.supervisor_state(state, CLUSTER))
    except Exception as error:
        found["supervisor"] = former(type(error).__name__)
    return found
