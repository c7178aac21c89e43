"""File systems on which files are put once, by one winner: this machine's own, and HDFS by WebHDFS, both without Java.

Tables and the state of topologies are kept in such stores; the cluster's store (`squall.cluster`) has nothing to do with them.

| file | contents |
|---|---|
| `files` | what every store promises, and its errors |
| `opening` | opens the store that a path names |
| `settled` | a file that several callers put, also after lost answers |
| `local`, `webhdfs` | the stores |
| `renaming` | what a store with atomic renames builds from simpler calls |
| `paths` | which paths are valid, and what lies below them |
| `hadoop_errors` | what Hadoop's exceptions mean |
"""
