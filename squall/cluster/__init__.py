"""The shared knowledge of a cluster's daemons: records, the store that keeps them, and their paths.

| file | what it holds |
|---|---|
| `records` | the values: topologies, assignments, supervisors, what workers report |
| `store` | the promises of a store, and its errors |
| `memory` | a store in this process |
| `sqlite` | a store in a file, for one process |
| `zookeeper` | the store of a cluster |
| `leadership` | which Nimbus leads, writes that only the leader may do, which daemons are present |
| `paths` | where in the store each thing lives |
| `blobs` | big values in chunks, and a topology's description and pickles among them |
| `numbering` | numbers that are never given twice |
| `registry` | the records of a store, read and written by name |

What is asked of the host of workers (a supervisor, the local cluster), given the store:

- A placement in one of its slots whose worker does not run is started, after a withdrawn worker in the same
  slot has stopped. Components come from the topology's bundle and are opened when the record is first ACTIVE.
- A record and an assignment of different versions are in the middle of a change: look again before acting.
- A component has as many tasks as the record lists; the topology's bundle says how many were submitted.
- A placement that lists more tasks than its worker runs: those are added, or the worker is started again with
  a higher restart number. Tasks never become fewer under one incarnation.
- Spout tasks that the record lists as finished are not opened again.
- A worker that runs and is in no assignment is stopped (`close`, `cleanup`), and then reported as stopped.
- While the record is KILLED or REBALANCING spouts rest, and `drained` says that nothing is pending any more.
- A worker's report is sent when it changes, and once more after every change of the record's state. Its flags
  are true for the assignment of the version that it names. A report that is refused comes from a worker that
  no assignment names: it is stopped.
- A supervisor that sends heartbeats (`Nimbus.heard`) goes on sending them, or it is given up: its record goes,
  and its workers are superseded.
"""
