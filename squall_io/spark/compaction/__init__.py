"""Compaction: the rows of many small files of a table are written into few larger ones."""
