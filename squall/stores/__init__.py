"""File systems on which files are put once, by one winner: this machine's own, and HDFS by WebHDFS, both without Java.

Tables and the state of topologies are kept in them. `files` is what every store promises.
"""
