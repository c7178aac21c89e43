"""The product's modules as the commit had them: only for making the fixtures.

They are imported by name, so that the type checker does not follow: once the refactoring has begun, these modules are
elsewhere, and this is not run any more. Must not know: which modules are asked for.
"""

from __future__ import annotations

import importlib
import subprocess
from functools import cache
from pathlib import Path
from typing import Any, Final

from tests.frozen.frozen_data import COMMIT

PACKAGES: Final = (
    "topology_api", "squall", "nimbus", "supervisor", "worker", "squall_io", "local_cluster", "squall_cli",
)  # fmt: skip
ROOT: Final = Path(__file__).resolve().parents[2]


class OtherCode(RuntimeError):
    """The product's code is not the commit's."""


@cache
def require_commit() -> None:
    """Check that the product's packages are those of the commit; raises `OtherCode`."""
    asked = ["git", "-C", str(ROOT), "diff", "--stat", COMMIT, "--", *PACKAGES]
    found = subprocess.run(asked, capture_output=True, text=True, check=True).stdout
    if found:
        raise OtherCode(f"fixtures are made by the code of {COMMIT} alone, and this is another:\n{found}")


def old(name: str) -> Any:
    """A module of the product, of the commit's code."""
    require_commit()
    return importlib.import_module(name)
