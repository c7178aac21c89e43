"""Backups of a cluster: one file, written by `squall backup` and read by `squall restore`."""
