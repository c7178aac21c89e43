"""What holds for every test: how Hypothesis searches, and the ZooKeeper server that some of them share.

In CI the examples are the same in every run, so that a red build is red for everybody; at home each run
looks elsewhere, and what it finds is kept in `.hypothesis` and printed as a line to paste. No deadlines:
machines differ.
"""

from __future__ import annotations

import os
import signal

from hypothesis import settings

from tests.zookeeper_servers import zookeeper, zookeeper_root, zookeeper_store

__all__ = ["zookeeper", "zookeeper_root", "zookeeper_store"]

settings.register_profile("ci", derandomize=True, print_blob=True, deadline=None)
settings.register_profile("home", print_blob=True, deadline=None)
settings.load_profile("ci" if os.environ.get("CI") == "true" else "home")

# Under nohup and in some CI systems SIGHUP is ignored, and every process that a test starts would inherit that.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
