"""Squall's agent on a host: starts, watches and ends the worker processes that Nimbus placed on the host.

| file | subject |
|---|---|
| `plan` | the next action for each worker: phases and goals, as one table; back-off |
| `agent` | the supervisor: carries out the plan's actions, and reports |
| `store_view` | the supervisor's view of the store, and its registration there |
| `desired_state` | the state that the store wants for the supervisor's workers |
| `managed_worker` | one worker: its state, the actions on it, its reports and events |
| `process_host` | the interface of the place where workers run: `worker_processes` here, memory in a local cluster |
| `processes` | processes: started, adopted, signalled, and ended with all their children |
| `exits` | why a process ended |
| `orders` | the orders of a worker |
| `reporter` | the reports that Nimbus does not have yet |
| `directories` | files on the host, and their removal (`removals`) |
| `artifacts` | files of topologies: bundles, code, environments; prepared off the loop (`jobs`), removed when unused |
| `environments` | how packages are installed |
| `daemon` | the supervisor's process: all these modules together, over a store |
| `nimbus_http` | the supervisor's link to the Nimbuses |
| `log_server`, `log_files` | the supervisor's HTTP server, for the logs of its workers |
| `host_letters` | the dead letters on the host: `letter_requests` of Nimbus, and `letter_reports` of their number |

A supervisor and a worker communicate only through files in the worker's directory (`squall.worker_files`), so that each
survives a restart of the other.
"""
