"""Tests that may take longer than ten seconds on a quiet machine, each with its reason: by test, by file, or by folder."""

from __future__ import annotations

from typing import Final

LONG_TESTS: Final[dict[str, str]] = {
    "tests/cluster_faults": "real daemons: a fault lasts until timeouts of 5 to 10 s have passed, and work goes on after it",
    "tests/faults": "real workers are killed, frozen or cut off until a tuple timeout or a lease has passed",
    "tests/hdfs": "a NameNode and two DataNodes start in 10 s, notice a dead peer in 12 s; Java starts in 7 s",
    "tests/spark": "a Spark session starts in 7 s, its first query takes 4 s, and each killed Java is started again",
    "tests/repository/test_budgets.py": "parses every file of the project",
    "tests/repository/test_texts_are_not_read.py": "parses every file of the product",
    "tests/repository/test_installation.py": "pip installs all dependencies, the core is compiled, the demo runs whole",
    "tests/repository/test_builds.py": "each build starts Cython and a C compiler",
    "tests/repository/test_instruction_guard.py": "valgrind runs the word count 50 times slower than the processor",
    "tests/repository/test_cluster_document.py": "runs all commands of docs/cluster.md: nine daemons and a failover",
    "tests/repository/test_documentation_blocks.py": "runs every command of a page, which starts and ends a cluster",
    "tests/simulation/test_simulated_clusters.py": "plays 30 seeded clusters at 100 ms each",
    "tests/epochs/test_epoch_mutants.py": "with --soak: plays up to 3,000 seeded topologies at 30 ms each for one mutant",
    "tests/epochs/test_epoch_simulation.py": "plays 200 seeded topologies at 30 ms each",
    "tests/worker/test_cores_agree.py": "plays random topologies on the plain core and on the compiled one",
    "tests/worker/test_daemon_ends.py": "a user's call hangs until the worker gives up waiting for it",
    "tests/local_cluster/test_epochs.py": "worker processes are killed and started again five times while they count",
    "tests/local_cluster/test_process_cluster.py": "a store is away until its task has failed for five seconds",
    "tests/local_cluster/test_process_orphans.py": "workers end when the lease of their killed script has run out",
    "tests/squall_cli/test_cluster_dev.py": "starts and ends `squall dev` with its workers several times",
    "tests/squall_cli/test_cluster_hosts.py": "drains a host under load, then fails over to a standby Nimbus",
    "tests/squall_cli/test_submit_to_a_cluster.py": "two versions are on trial for ten seconds each",
    "tests/squall_cli/test_sick_bolts.py": "a call hangs until it is reported after five seconds, in a cluster",
    "tests/squall_cli/test_stack_command.py": "calls hang until they are reported after five seconds, in a cluster",
    "tests/worker/test_outages_over_links.py": "a task is down for minutes of simulated time",
    "tests/squall/cluster/test_store.py": "two thousand random writes to a real ZooKeeper",
    "tests/nimbus/test_takeover.py": "a topology's life is played again for each of its writes, which fails",
    "tests/local_cluster/test_no_deadlock.py": "plays random topologies with little room to their end",
    "tests/local_cluster/test_stores_away.py": "a store is away for ten simulated minutes, with each kind of bolt",
    "tests/local_cluster/test_token_sinks.py": "with --soak: a worker is killed three times, and started again after pauses",
    "tests/examples/test_accounts.py": "workers are killed while they book, and started again after pauses",
    "tests/worker/test_epochs_over_links.py": "plays minutes of three workers that die and lose messages",
    "tests/squall_io/test_file_sink.py": "a worker is killed three times, and started again after pauses",
    "tests/local_cluster/test_staged_sinks.py": "workers are killed three times each, and started again after pauses",
    "tests/local_cluster/test_deadly_tuples.py": "a tuple ends three worker processes before it is given up",
    "tests/nimbus_http/test_nimbus_command.py": "waits for sessions of ZooKeeper to end",
}
