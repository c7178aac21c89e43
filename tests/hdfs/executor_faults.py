"""A sink whose Spark has two executors, one of which is frozen, and later one killed, as they write.

`python -m tests.hdfs.executor_faults TABLE` runs in a process of its own, since a process has one Spark driver. It prints
how often each batch is in the table.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path

from squall_io.spark.session.sessions import shared_session
from tests.hdfs.sink_tasks import Task, check, watched
from tests.spark_classes import small_java
from tests.zookeeper_servers import eventually

MASTER = "local-cluster[2,1,512]"
#: Spark considers a task of one second slow: then the other executor gets it too.
CONF = {
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    "spark.driver.extraJavaOptions": small_java(),
    "spark.executor.extraJavaOptions": small_java(),
    "spark.sql.shuffle.partitions": "2",
    "spark.hadoop.dfs.replication": "2",
    # An executor that waits for data from a frozen one does not wait for two minutes.
    "spark.network.timeout": "15s",
    "spark.network.timeoutInterval": "5s",
    "spark.executor.heartbeatInterval": "5s",
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.minTaskRuntime": "100ms",
    "spark.speculation.task.duration.threshold": "1s",
}
#: This variable of its environment identifies a process as one of ours.
MARK = "SQUALL_TEST_EXECUTORS"


def executors() -> list[int]:
    """The processes of the executors, the oldest last."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            ours = f"{MARK}={os.getpid()}\0".encode() in (folder / "environ").read_bytes()
            if ours and b"CoarseGrainedExecutorBackend" in (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
        except OSError:
            continue
    return sorted(found)


def main(table: str) -> None:
    """Write a batch while an executor is frozen for a while, and one while an executor is killed in the middle."""
    os.environ[MARK] = str(os.getpid())
    task = Task(table, master=MASTER, conf=CONF)
    batches = [1]
    with watched(), shared_session(MASTER, CONF) as lease:
        task.prepare()
        task.write(1)
        # A thawed one continues a task that the other one got meanwhile: it must not be allowed to commit.
        for signum, secs in ((signal.SIGCONT, 4.0), (signal.SIGKILL, 1.0)):
            pid, _ = eventually(lambda: found if len(found := executors()) == 2 else [], 150)
            os.kill(pid, signal.SIGSTOP)
            over = threading.Timer(secs, os.kill, (pid, signum))
            over.start()
            batches.append(batches[-1] + 1)
            task.write(batches[-1])
            over.join()
        last = Task(table, restart=1, master=MASTER, conf=CONF).prepare()
        print(sorted(check(lease.session, table, set(batches), set(batches)).items()))
        last.cleanup()
        task.cleanup()


if __name__ == "__main__":
    main(sys.argv[1])
