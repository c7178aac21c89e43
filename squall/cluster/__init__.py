"""What the daemons of a cluster know together: records, the store that keeps them, and where in it they live.

| file | what it holds |
|---|---|
| `records` | the values: topologies, assignments, supervisors, what workers report |
| `store` | the promises of a store, and its errors |
| `memory` | a store in this process |
| `paths` | where in the store each thing lives |
| `blobs` | big values in chunks, and a topology's description and pickles among them |
| `registry` | the records of a store, read and written by name |
"""
