"""The state that a cluster's daemons share: records, the store that keeps them, and their paths.

| file | contents |
|---|---|
| `records` | the values: topologies, assignments, supervisors, reports of workers |
| `store` | the promises of a store, and its errors |
| `memory` | a store in this process |
| `sqlite` | a store in a file, for one process |
| `zookeeper` | the store of a cluster |
| `leadership` | which Nimbus leads, writes that are reserved for the leader, which daemons are present |
| `paths` | the path of each value in the store |
| `blobs` | big values in chunks, such as a topology's description and pickles |
| `numbering` | numbers that are never given twice |
| `registry` | the records of a store, read and written by name |

The duties of the host of workers (a supervisor, the local cluster), given the store:

- If the worker of a placement in one of the host's slots does not run, the host starts the worker, but not before a withdrawn
  worker in the same slot has stopped. Components come from the topology's bundle and are opened when the record is first
  ACTIVE.
- If a record and an assignment have different versions, a change is in progress: look again before acting.
- A component has as many tasks as the record lists; the topology's bundle says how many were submitted.
- If a placement lists more tasks than its worker runs, the missing tasks are added, or the worker is started again with a
  higher restart number. One incarnation never loses tasks.
- Spout tasks that the record lists as finished are not opened again.
- A running worker that is in no assignment is stopped (`close`, `cleanup`), and then reported as stopped.
- While the record is KILLED or REBALANCING, spouts pause, and `drained` reports that nothing is pending any more.
- A worker's report is sent when it changes, and once more after every change of the record's state. The report names a version
  of the assignment, to which its flags apply. If a report is refused, no assignment names its worker: the host stops this
  worker.
- A supervisor that sends heartbeats (`Nimbus.heard`) must go on sending them. Otherwise it is given up: its record is removed,
  and its workers are superseded.
"""
