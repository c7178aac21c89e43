"""File systems on which files are put once, by one winner: this machine's own, HDFS by WebHDFS and S3 by boto3, all without
Java; and what Hadoop's client reaches, in a JVM.

Tables and the state of topologies are kept in such stores; the cluster's store (`squall.cluster`) has nothing to do with them.

| file | contents |
|---|---|
| `files` | what every store promises, and its errors |
| `opening` | opens the store that a path names |
| `settled` | a file that several callers put, also after lost answers |
| `local`, `webhdfs`, `s3` | the stores |
| `s3_bucket`, `s3_conditions`, `s3_errors` | the calls of S3, what a server honours, and what its errors mean |
| `java/` | the store by Hadoop's client |
| `private` | whether a folder on HDFS is for its user only |
| `renaming` | what a store with atomic renames builds from simpler calls |
| `paths` | which paths are valid, and what lies below them |
| `hadoop_errors` | what Hadoop's exceptions mean |
"""
