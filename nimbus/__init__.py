"""The master of a Squall cluster: takes topologies in, decides where tasks run, follows each to its end.

| file | what it answers |
|---|---|
| `lifecycle` | what may happen to a topology in which state (a table) |
| `tasks` | which id each task has |
| `scheduler` | which slot each task goes to |
| `placing` | which workers an assignment has, and which of them keep their incarnation |
| `rebalancing` | what a rebalance may ask for, and what it makes of the numbers of tasks |
| `liveness` | which supervisors are silent |
| `counting` | the counters of workers, and the status of a topology |
| `progress` | what is due for a topology, given what its workers reported |
| `master` | `Nimbus`: submit, kill, activate, deactivate, rebalance, report, heard, tick |

Nimbus never unpickles anything: it works from a topology's typed description.
"""
