"""`python -m worker DIRECTORY`: a worker process, as a supervisor starts it. Its orders are in the directory.

It first checks that these modules are Squall's own, and imports the rest of Squall after that.
"""

import sys

from squall.packages.distributions import NotOurs, check_ours


def main() -> None:
    """Run the worker whose directory the command line names."""
    if len(sys.argv) != 2:
        sys.exit("usage: python -m worker DIRECTORY    (a supervisor starts workers; see squall run)")
    try:
        check_ours()
    except NotOurs as error:
        print(error, file=sys.stderr)
        # EXIT_INTERNAL of squall.worker_files, which is not imported here: it may be a different package.
        sys.exit(70)
    from worker.process.assemble import run

    run(sys.argv[1])


if __name__ == "__main__":
    main()
