"""`python -m worker DIRECTORY`: a worker process, as a supervisor starts it. Its orders are in the directory.

The process first checks that these modules are Squall's own, and then imports the rest of Squall.
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
        # The value of EXIT_INTERNAL in squall.worker_files. It is not imported: `squall` may be a different package here.
        sys.exit(70)
    from worker.process.assemble import run

    run(sys.argv[1])


if __name__ == "__main__":
    main()
