"""The master of a Squall cluster: accepts topologies, decides where their tasks run, and follows each topology to its end.

| folder | subject |
|---|---|
| `placement` | the id and the slot of each task; which supervisors are silent or drained |
| `lifecycle` | which events each state allows (a table), which steps are due, how the record changes |
| `counters` | the counters of workers, and the status of a topology |
| `files` | the files that topologies bring: stored, fetched from other Nimbuses, removed |
| `submission` | submissions: parsed, checked, accepted |
| `leader` | `Nimbus`: submit, kill, activate, deactivate, rebalance, report, heard, tick; and the thread that runs it |
| `security` | the secrets of one Nimbus |
| `http` | the HTTP API |
| `daemon` | one Nimbus, assembled from its parts |

Nimbus never unpickles anything: it works from a topology's typed description.
"""
