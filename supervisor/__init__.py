"""Squall's agent of a host: starts, watches and ends the worker processes that Nimbus placed on it.

| file | what it holds |
|---|---|
| `plan` | what is to be done with each worker: phases and goals, as one table; back-off |
| `agent` | the supervisor: has the plan decide, acts, reports |
| `store_view` | what it knows of the store, and that it is known there |
| `desired_state` | what the store wants of it |
| `managed_worker` | one worker: what is known of it and done with it |
| `process_host` | where workers run, as an interface: `worker_processes` here, in memory in a local cluster |
| `processes` | processes: started, adopted, signalled, ended with all that they started |
| `exits` | why a process ended |
| `worker_events` | the events of a worker that died or could not be started |
| `link_keys` | the keys of its topology's links |
| `orders` | orders to a worker, and reports on it to Nimbus |
| `reporter` | what Nimbus does not know yet |
| `directories` | what is kept on the host, and its removal (`removals`) |
| `artifacts` | what topologies bring: bundles, code, environments; prepared off the loop (`jobs`), removed when unused |
| `environments` | how packages are installed |
| `daemon` | the process: all of these together, over a store |
| `identity` | what it keeps of itself in its state directory: id, key pair, cluster, lock |
| `nimbus_http` | its link to the Nimbuses |
| `log_server`, `log_files` | its HTTP: the logs of its workers |
| `waker` | what its loop sleeps on |

A supervisor and a worker talk by the files of the worker's directory alone (`squall.worker_files`), so that each of them
survives a restart of the other.
"""
