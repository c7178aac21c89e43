"""`squall`, also as `python -m squall_cli`. Ctrl-C ends it without a traceback at the very beginning too."""

from __future__ import annotations

import os
import sys

#: Set by the scripts of `squall completion`, for one press of Tab.
COMPLETE = "_SQUALL_COMPLETE"


def main() -> None:
    """Run the `squall` command; its installed script calls this."""
    try:
        from squall_cli.main import main as run

        run()
    except KeyboardInterrupt:  # where click does not take it: while things are loaded, or completed
        sys.exit(1 if COMPLETE in os.environ else "\nAborted!")


if __name__ == "__main__":
    main()
