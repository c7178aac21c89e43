"""A process that makes supervisor daemons with fake workers by forking, so that each starts at once; for tests that kill them.

    python -m tests.supervisor.daemon_nursery ZOOKEEPER ROOT STATE

Each line on stdin makes one, whose pid is written to stdout. The process ends with its stdin; the test must end the daemons.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from pathlib import Path

from squall.cluster.zookeeper import ZooKeeperStore
from supervisor.daemon import SupervisorDaemon, SupervisorSettings
from supervisor.plan import Timeouts
from tests.supervisor.hosts import fake_command


def run(servers: str, root: str, state: Path) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    store = ZooKeeperStore(servers, root=root, session_secs=4)
    settings = SupervisorSettings(
        state=state, host="s1", slots=2, limits=Timeouts(stop=5.0), command=fake_command
    )
    daemon = SupervisorDaemon(store, settings)
    store.start(30.0)
    daemon.run()
    store.close()


def main() -> None:
    servers, root, state = sys.argv[1:]
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # their exits are not waited for
    for _ in sys.stdin:
        pid = os.fork()
        if not pid:
            try:
                run(servers, root, Path(state))
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(0)
        print(pid, flush=True)


if __name__ == "__main__":
    main()
