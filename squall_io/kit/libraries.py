"""Loading the library of a connector where it is used: a missing one is an error of one line that names the extra.

Must not know: connectors.
"""

from __future__ import annotations

import importlib
from typing import Any

from topology_api import SquallError


def load_library(component: str, module: str, *, library: str, extra: str) -> Any:
    """Return a module of a connector's library. Raises SquallError if the library is missing.

    component: the class that needs it, for the error. library: its name in the package index. extra: Squall's extra that
    installs it.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        if error.name is not None and error.name.partition(".")[0] != module.partition(".")[0]:
            raise  # something that the library itself needs
        raise SquallError(
            f"{component} needs {library}: install Squall with its extra `{extra}`, here and where workers run"
        ) from None
