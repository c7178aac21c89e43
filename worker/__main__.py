"""`python -m worker DIRECTORY`: a worker process, as a supervisor starts it. What it is to do stands in the directory.

Nothing of ours is imported before it is known to be ours.
"""

import sys

from squall.distributions import NotOurs, check_ours


def main() -> None:
    """Run the worker of the directory that the command line names."""
    if len(sys.argv) != 2:
        sys.exit("usage: python -m worker DIRECTORY    (a supervisor starts workers; see squall run)")
    try:
        check_ours()
    except NotOurs as error:
        print(error, file=sys.stderr)
        sys.exit(70)  # EXIT_INTERNAL of squall.worker_files, which imports what may not be ours
    from worker.process import run

    run(sys.argv[1])


if __name__ == "__main__":
    main()
