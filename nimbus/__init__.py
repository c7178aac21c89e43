"""The master of a Squall cluster: takes topologies in, decides where tasks run, follows each to its end.

| folder | what it answers |
|---|---|
| `placement` | which id each task has, which slot it goes to, which supervisors are silent or drained |
| `lifecycle` | what may happen to a topology in which state (a table), what is due for it, how its record changes |
| `counters` | what workers have counted, and the status of a topology |
| `files` | the files that topologies bring: stored, fetched from other Nimbuses, removed |
| `submission` | what a submitter sends: parsed, checked, accepted |
| `leader` | `Nimbus`: submit, kill, activate, deactivate, rebalance, report, heard, tick; and the thread that runs it |
| `security` | the identity and the secrets of one Nimbus |
| `http` | the API |
| `daemon` | one Nimbus, assembled from its parts |

Nimbus never unpickles anything: it works from a topology's typed description.
"""
