"""`squall`, also as `python -m squall_cli`. Ctrl-C ends it without a traceback at the very beginning too."""

from __future__ import annotations

import sys


def main() -> None:
    """What the installed command calls."""
    try:
        from squall_cli.main import main as run
    except KeyboardInterrupt:
        sys.exit("\nAborted!")  # what click says from there on
    run()


if __name__ == "__main__":
    main()
