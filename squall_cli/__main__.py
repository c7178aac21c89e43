"""`squall`, also as `python -m squall_cli`. Ctrl-C ends the command without a traceback, even while modules are imported."""

from __future__ import annotations

import os
import sys

#: The environment variable that the scripts of `squall completion` set when a user presses Tab.
COMPLETE = "_SQUALL_COMPLETE"


def main() -> None:
    """Run the installed command."""
    try:
        from squall_cli.main import main as run

        run()
    except KeyboardInterrupt:  # outside click: while modules are imported, or while the shell completes
        sys.exit(1 if COMPLETE in os.environ else "\nAborted!")


if __name__ == "__main__":
    main()
